"""Who says what a predicted state is worth: the world's own rule, a trained head, or a language model as judge.

All are `Value`s: states under their tasks in, judgements between -1 and 1 out. A task evaluator's proxy (a check of the
predicted page or database) is a `RuleValue` too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from oneiro.agents.planning.base import Judged, Root
from oneiro.sampling.server import Server, ServerConfig

if TYPE_CHECKING:
    from oneiro.episode import Tokens
    from oneiro.models.language import LanguageModel

StateT = TypeVar("StateT")


@dataclass(frozen=True)
class RuleValue(Generic[StateT]):
    """A rule on states. A rule that raises on a predicted state makes it worth nothing: predictions may be absurd."""

    rule: Callable[[StateT, Any], Judged]

    def __call__(self, roots: Sequence[Root[StateT]]) -> list[Judged]:
        return [self._judge(root) for root in roots]

    def _judge(self, root: Root[StateT]) -> Judged:
        try:
            return self.rule(root.state, root.task)
        except Exception:
            return Judged(0.0)


JUDGE = (
    "Task: {task}\n\nThis is the state that an action is predicted to lead to:\n{state}\n\nHow far is the task done in "
    "this state, and is it on the way there? Answer with one number from 0 (hopeless) to 100 (done), and nothing else."
)
NUMBER = re.compile(r"-?\d{1,4}(?:\.\d{1,4})?")
MAX_STATE_CHARS = 8000
"""What of a state a judge is shown: about 2,000 tokens, since each state of a search is judged and paid for."""


@dataclass(frozen=True)
class JudgeValue(Generic[StateT]):
    """A language model behind an OpenAI-compatible address says how far a task is done, as in WebDreamer.

    The mean of `samples` answers counts. An answer without a number, or an error of the server, counts as `unknown`. A
    state is data, never an instruction: nothing in an answer is used but its last number.
    """

    server: ServerConfig
    show: Callable[[StateT], str]
    samples: int = 1
    unknown: float = 0.0

    def __call__(self, roots: Sequence[Root[StateT]]) -> list[Judged]:
        messages = [
            [{"role": "user", "content": JUDGE.format(task=root.task, state=self.show(root.state)[:MAX_STATE_CHARS])}]
            for root in roots
        ]
        return [
            Judged(
                float(np.mean([self._read(reply.text) for reply in replies])),
                tokens=max((reply.usage.get("completion_tokens", 0) for reply in replies), default=0),
            )
            for replies in Server(self.server).chat(messages, n=self.samples)
        ]

    def _read(self, text: str) -> float:
        numbers = NUMBER.findall(text[-MAX_STATE_CHARS:])
        return min(100.0, max(0.0, float(numbers[-1]))) / 100 if numbers else self.unknown


@dataclass(frozen=True)
class HeadValue(Generic[StateT]):
    """A linear head on what a language model makes of a state; `fit` trains it on states and their returns."""

    language: LanguageModel
    prompt: Callable[[Root[StateT]], Tokens]
    weights: NDArray[np.float64]
    """[width + 1], the last entry the bias."""

    @classmethod
    def fit(
        cls,
        language: LanguageModel,
        prompt: Callable[[Root[StateT]], Tokens],
        roots: Sequence[Root[StateT]],
        returns: Sequence[float],
        ridge: float = 1.0,
    ) -> HeadValue[StateT]:
        """Ridge regression on the frozen model's last hidden state: exact, and the same on every machine."""
        features = _features(language, [prompt(root) for root in roots])
        gram = features.T @ features + ridge * np.eye(features.shape[1])
        solved = np.linalg.solve(gram, features.T @ np.asarray(returns, np.float64))
        return cls(language, prompt, solved.astype(np.float64))

    def __call__(self, roots: Sequence[Root[StateT]]) -> list[Judged]:
        values = _features(self.language, [self.prompt(root) for root in roots]) @ self.weights
        return [Judged(float(np.clip(value, -1, 1))) for value in values]


AT_ONCE = 256


def _features(language: LanguageModel, prompts: Sequence[Tokens]) -> NDArray[np.float64]:
    """[N, width + 1]: the hidden state of each prompt's last token, and a 1 for the bias."""
    import torch

    from oneiro.models.attention import Causal

    rows = []
    device = language.backbone.device
    with torch.inference_mode():
        for first in range(0, len(prompts), AT_ONCE):
            part = prompts[first : first + AT_ONCE]
            lasts = torch.tensor([len(prompt) - 1 for prompt in part], device=device)
            tokens = torch.zeros(len(part), int(lasts.max()) + 1, dtype=torch.long)
            for row, prompt in enumerate(part):
                tokens[row, : len(prompt)] = torch.from_numpy(np.asarray(prompt, np.int64))
            hidden = language.backbone(tokens.to(device), torch.arange(tokens.shape[1], device=device), Causal())
            rows.append(hidden[torch.arange(len(part), device=device), lasts].double().cpu().numpy())
    hidden_rows = np.concatenate(rows)
    return np.concatenate([hidden_rows, np.ones((len(hidden_rows), 1))], axis=1)
