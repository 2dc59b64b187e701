"""An agent that writes the next state before it acts (SPA), asked as a world model: what does this action lead to?

Its reply is `<prediction>s'</prediction></think><answer>a</answer>`: the state comes first and the action after it, so
that the model gives the joint p(s', a | s). For an action that somebody else chose, the answer is the state that goes
with it best, the argmax of that joint over the states that the agent itself writes down in a number of samples, and
the present one ("nothing happens").
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from oneiro.agents import reply as replies
from oneiro.agents.loading import AgentMetadata
from oneiro.agents.prompts import SYSTEM, history_message
from oneiro.agents.rollout import start_reply
from oneiro.episode import Row, Tokens, given
from oneiro.learning.batch import Example
from oneiro.learning.learner import Learner
from oneiro.learning.settings import LearnerSettings
from oneiro.models.chat import ChatFormat
from oneiro.runtime import seeds
from oneiro.sampling.engine import Engine
from oneiro.tasks.base import Dynamics, Flaw, Imagined, Malformed
from oneiro.worlds.base import World

SAMPLES = 32  # of each temperature
TEMPERATURES = (1.0, 1.7)  # the second finds states that the trained agent seldom wants


@dataclass(frozen=True)
class Candidate:
    """An action the agent would take, how often, and what it expects then."""

    action: str
    share: float
    prediction: str | None


class ImaginingAgent(Dynamics[str]):
    """States are texts in the view that the agent was taught in."""

    def __init__(self, metadata: AgentMetadata, engine: Engine, make_world: Callable[[], World]) -> None:
        self.metadata, self.engine, self.world = metadata, engine, make_world()
        self.world.reset(seed=0)  # its instruction may be part of the prompt
        self.chat = ChatFormat(engine.language.tokenizer)
        self._replies = lru_cache(maxsize=256)(self._sample_replies)  # the same for all actions of a state

    def predict(self, pairs: Sequence[tuple[str, str]], outcomes: int = 1, seed: int = 0) -> list[list[Imagined[str]]]:
        """The likeliest state; also where more outcomes are asked for, since it has one best."""
        return [[self._imagine(state, action)] * outcomes for state, action in pairs]

    def candidates(self, state: str) -> list[Candidate]:
        """What the agent would do here by itself, most frequent first."""
        actions: dict[str, list[str | None]] = {}
        for reply in self._replies(state, TEMPERATURES[0]):
            if reply.actions:
                actions.setdefault(reply.actions[0], []).append(reply.body(reply.prediction))
        made = [Candidate(action, len(seen) / SAMPLES, max(seen, key=seen.count)) for action, seen in actions.items()]
        return sorted(made, key=lambda candidate: -candidate.share)

    def _imagine(self, state: str, action: str) -> Imagined[str]:
        proposed = [reply.body(reply.prediction) for heat in TEMPERATURES for reply in self._replies(state, heat)]
        possible = [text for text in dict.fromkeys([*proposed, state]) if text and self.world.parse(text) is not None]
        if not possible:
            return Imagined(Malformed(Flaw.SHAPE))
        prompt, start = self._prompt(state), start_reply(self.metadata.response_prefix, state)
        examples = []
        for text in possible:
            written = replies.write([action], state, text)
            reply = self.chat.encode(written.removeprefix(start))
            examples.append(Example.of(Row([given(prompt), given(reply, ce=1.0)])))
        scores = [float(values.sum(dtype=np.float64)) for values in self._scorer.logprobs(examples)[0]]
        return Imagined(possible[int(np.argmax(scores))])

    @cached_property
    def _scorer(self) -> Learner:
        return Learner(self.engine.language.backbone, LearnerSettings(), 1)

    def _prompt(self, state: str) -> Tokens:
        settings = self.metadata.dialogue
        message = history_message(self.world, [], 1, state, self.world.config.max_actions, settings)
        opening = self.chat.opening(message, "" if settings.brief else SYSTEM)
        return np.concatenate([opening, self.chat.encode(start_reply(self.metadata.response_prefix, state))])

    def _sample_replies(self, state: str, temperature: float) -> list[replies.Reply]:
        sampling = self.metadata.sampling.model_copy(update={"temperature": temperature})
        seed = seeds.derive(0, "imagine", state, str(temperature))
        samples = self.engine.generate([self._prompt(state)], SAMPLES, sampling, seed=seed)[0]
        start, dialogue = start_reply(self.metadata.response_prefix, state), self.metadata.dialogue
        texts = [start + self.engine.language.text(sample.tokens) for sample in samples]
        return [replies.read(text, dialogue.think, True, dialogue.actions_per_turn, dialogue.parser) for text in texts]
