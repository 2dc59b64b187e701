"""GRPO (arXiv 2402.03300): an episode's advantage is its score against its group, in units of the group's std.

Dr.GRPO (arXiv 2503.20783) leaves out the two normalisations that bias it, the group's std and the reply's length.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

import numpy as np

from oneiro.episode import Floats
from oneiro.learning.algorithms.base import Algorithm, Trajectory, by_group, constant
from oneiro.learning.settings import Aggregate


class Grpo(Algorithm):
    name: Literal["grpo"] = "grpo"
    epsilon: float = 1e-6
    """Added to the standard deviation of a group."""

    def estimate(self, trajectories: Sequence[Trajectory]) -> list[Floats]:
        scores = np.array([t.score for t in trajectories], np.float64)
        advantages = np.zeros_like(scores)
        for members in by_group(trajectories):
            own = scores[members]
            # The sample standard deviation (n - 1); a group of one has no std and no advantage.
            std = own.std(ddof=1) if len(own) > 1 else 0.0
            advantages[members] = (own - own.mean()) / (std + self.epsilon)
        return constant(trajectories, advantages)


class DrGrpo(Algorithm):
    name: Literal["dr-grpo"] = "dr-grpo"
    aggregate: ClassVar[Aggregate | None] = "constant"

    def estimate(self, trajectories: Sequence[Trajectory]) -> list[Floats]:
        scores = np.array([t.score for t in trajectories], np.float64)
        advantages = np.zeros_like(scores)
        for members in by_group(trajectories):
            advantages[members] = scores[members] - scores[members].mean()
        return constant(trajectories, advantages)
