"""Play in learned worlds: many dreams at once, every turn's predictions in one call of the model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from oneiro.agents import reply as replies
from oneiro.agents.policies import Policy, Turn, Utterance
from oneiro.agents.prompts import DialogueSettings
from oneiro.predictors.dynamics import Cached
from oneiro.worlds.base import World

StateT = TypeVar("StateT")


@dataclass
class DreamingPolicy(Generic[StateT]):
    """A policy whose actions are predicted together before the worlds, which share `dynamics`, are stepped one by one.

    It changes no result: a world that finds its prediction remembered steps as if it had asked for it.
    """

    policy: Policy
    dynamics: Cached[StateT]
    dialogue: DialogueSettings
    observe: Callable[[World], StateT]
    """The state of a learned world in the model's form."""
    understood: Callable[[str], str | None]
    """The world's word for an action as it is written."""

    @property
    def longest_prompt(self) -> int | None:
        return getattr(self.policy, "longest_prompt", None)

    def answer(self, turns: Sequence[Turn], seed: int) -> list[Utterance]:
        answers = self.policy.answer(turns, seed)
        pairs = []
        for turn, answer in zip(turns, answers, strict=True):
            asked = self.dialogue
            found = replies.read(answer.text, asked.think, asked.world_model, asked.actions_per_turn, asked.parser)
            word = self.understood(found.actions[0]) if found.actions else None
            if word is not None:
                pairs.append((self.observe(turn.world), word))
        if pairs:
            self.dynamics.predict(pairs)
        return answers
