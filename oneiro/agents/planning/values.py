"""Who says what a predicted state is worth: the world's own rule, or a language model as judge.

All are `Value`s: states under their tasks in, judgements between -1 and 1 out. A task evaluator's proxy (a check of the
predicted page or database) is a `RuleValue` too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np

from oneiro.agents.planning.base import Judged, Root
from oneiro.sampling.server import Server, ServerConfig

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
        except Exception:  # a predicted state may be anything, also what the rule never met
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
                # Servers give the usage of a request with every reply of it, so their sum would count it several times.
                tokens=max((reply.usage.get("completion_tokens", 0) for reply in replies), default=0),
            )
            for replies in Server(self.server).chat(messages, n=self.samples)
        ]

    def _read(self, text: str) -> float:
        numbers = NUMBER.findall(text[-MAX_STATE_CHARS:])  # the last number is the verdict; thoughts come before it
        return min(100.0, max(0.0, float(numbers[-1]))) / 100 if numbers else self.unknown
