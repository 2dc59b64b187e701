"""What planning and dreaming start from: a world model and a policy, learned from play, as stages of a run."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from oneiro.rundir.run import Run
from oneiro.runtime import seeds


class Repeat(ABC):
    """One of the repeats of a run: its own play, weights and order."""

    recipe: Any
    stages: Sequence[str]
    """Those of `learn` in order, without the repeat's number."""

    def __init__(self, recipe: Any, run: Run, number: int) -> None:
        self.recipe, self.run, self.number = recipe, run, number

    @property
    def seed(self) -> int:
        return seeds.derive(self.recipe.seed, "repeat", self.number)

    def name_stage(self, stage: str) -> str:
        return f"{stage}-{self.number}"

    @abstractmethod
    def learn(self) -> None:
        """Carry out `stages`."""
