"""Play in learned worlds: many dreams at once, every turn's predictions in one call of the model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from oneiro.agents import reply as replies
from oneiro.agents.game import Game
from oneiro.agents.policies import Policy
from oneiro.agents.prompts import DialogueSettings
from oneiro.sampling.sample import Sample
from oneiro.worlds.base import World


@dataclass
class DreamingPolicy:
    """A policy whose actions are predicted together before the worlds, which share a model, are stepped one by one.

    It changes no result: a world that finds its prediction remembered steps as if it had asked for it.
    """

    policy: Policy
    predict_together: Callable[[Sequence[tuple[World, str]]], object]
    """Asks the model, which remembers its answers, about the next action in each world."""
    dialogue: DialogueSettings

    @property
    def independent(self) -> bool:
        return getattr(self.policy, "independent", False)

    @property
    def longest_prompt(self) -> int | None:
        return getattr(self.policy, "longest_prompt", None)

    def answer(self, turns: Sequence[Game], seed: int) -> list[Sample]:
        answers = self.policy.answer(turns, seed)
        pairs = []
        for turn, answer in zip(turns, answers, strict=True):
            form = self.dialogue
            reply = replies.read(answer.text, form.think, form.world_model, form.actions_per_turn, form.parser)
            if reply.actions:
                pairs.append((turn.playing, reply.actions[0]))
        if pairs:
            self.predict_together(pairs)
        return answers
