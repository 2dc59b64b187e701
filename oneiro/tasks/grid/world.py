"""A trained predictor in the place of a true lake: the same interface, the same views, every step a prediction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from oneiro.tasks.base import Cached, Dynamics, LearnedWorld, Malformed
from oneiro.worlds.base import Step, World, WorldConfig
from oneiro.worlds.grid.frozen_lake.world import WORDS, FrozenLake


class LearnedFrozenLake(LearnedWorld, FrozenLake):
    """Starts on a true map and continues in predictions, on which the lake's own rule decides reward and end.

    `dynamics` may remember (`Cached`): where many worlds are stepped in turn, ask it for all their pairs before.
    """

    name: ClassVar[str] = "learned-frozen-lake"

    def __init__(self, dynamics: Dynamics[str], config: WorldConfig | None = None) -> None:
        super().__init__(config)
        self.dynamics = dynamics

    def ceiling(self) -> None:  # type: ignore[override]
        return None  # the rules do not hold in here

    def step(self, action: str) -> Step:
        if self.over:
            return self.ended(success=self.lake.arrived)
        word = understood(action)
        if word is None:
            return self.outcome(0.0, valid=False, effective=False, malformed=False)
        before = self.lake
        told = self.dynamics.predict([(self.render(), word)])[0][0].state
        lake = None if isinstance(told, Malformed) else self.parse(told)
        self.lake = lake if lake is not None else before
        arrived = self.lake.arrived
        return self.outcome(
            float(arrived),
            done=arrived or self.lake.fallen,
            success=arrived,
            effective=self.lake != before,
            malformed=lake is None,
        )


def foresee(dynamics: Cached[str], asked: Sequence[tuple[World, str]]) -> None:
    """Predict the next step of many learned lakes in one call; those that share `dynamics` find it remembered."""
    words = [(world.render(), understood(action)) for world, action in asked]
    dynamics.predict([(state, word) for state, word in words if word is not None])


def understood(action: str) -> str | None:
    """The lake's word for an action as an agent may write it."""
    written = action.strip().lower()
    return next((word for word in WORDS if word.lower() == written), None)
