"""Dr.GRPO (arXiv 2503.20783): GRPO without the two normalisations that bias it, the group's std and the reply's
length.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

import numpy as np

from oneiro.episode import Floats
from oneiro.learning.algorithms.base import Algorithm, Trajectory, by_group, constant
from oneiro.learning.settings import Aggregate


class DrGrpo(Algorithm):
    name: Literal["dr-grpo"] = "dr-grpo"
    aggregate: ClassVar[Aggregate | None] = "constant"

    def estimate(self, trajectories: Sequence[Trajectory]) -> list[Floats]:
        scores = np.array([t.score for t in trajectories], np.float64)
        advantages = np.zeros_like(scores)
        for members in by_group(trajectories):
            advantages[members] = scores[members] - scores[members].mean()
        return constant(trajectories, advantages)
