"""Another goal on the same lake: the dynamics are the old ones, and nothing in the picture shows the new goal."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from oneiro.runtime.seeds import generator
from oneiro.worlds.base import Step
from oneiro.worlds.grid.frozen_lake.views import Lake
from oneiro.worlds.grid.frozen_lake.world import FrozenLake, success_values


class TargetLake(FrozenLake):
    """Success is to stand on the level's `target`, an ice cell. The old goal still ends an episode, now in vain."""

    name: ClassVar[str] = "frozen-lake-target"
    target: int = -1
    """-1: no other cell can be reached, and the level has no target."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        observation, info = super().reset(seed=seed, options=options)
        cells = [cell for cell in range(self.lake.size**2) if self._chance(cell) > 0]
        rng = generator("frozen-lake", "target", self.seed)
        self.target = cells[int(rng.integers(len(cells)))] if cells else -1
        return observation, {**info, "optimum": None, "target": self.target}

    def step(self, action: str) -> Step:
        if self.over:
            return self.ended(success=self.lake.player == self.target)
        state, _, terminated, truncated, info = super().step(action)
        reached = self.lake.player == self.target
        self.over = self.over or reached
        return state, float(reached), terminated or reached, truncated and not reached, {**info, "success": reached}

    def ceiling(self) -> float:
        return self._chance(self.target) if self.target >= 0 else 0.0

    @property
    def has_oracle(self) -> bool:
        return False

    def _chance(self, target: int) -> float:
        """The best chance to come from here to a cell that is neither this one, nor a hole, nor the old goal."""
        lake = self.lake
        if target in (lake.player, lake.goal) or target in lake.holes:
            return 0.0
        other = Lake(lake.size, lake.holes | {lake.goal}, target, lake.player)
        return float(success_values(other, self.config.success_rate, self.remaining)[-1, lake.player])


def has_target(world: TargetLake, seed: int) -> bool:
    """Whether the evaluation level of a seed has a target."""
    world.reset(seed=seed, options={"split": "eval"})
    return world.target >= 0


def best_possible(world: FrozenLake, seeds: list[int]) -> list[float]:
    """The best chance of success on evaluation levels."""
    chances = []
    for seed in seeds:
        world.reset(seed=seed, options={"split": "eval"})
        chances.append(float(np.clip(world.ceiling(), 0, 1)))
    return chances
