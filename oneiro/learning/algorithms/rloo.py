"""RLOO (arXiv 2402.14740): each episode against the mean of the *other* members of its group."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from oneiro.episode import Floats
from oneiro.learning.algorithms.base import Algorithm, Trajectory, by_group, constant


class Rloo(Algorithm):
    name: Literal["rloo"] = "rloo"

    def estimate(self, trajectories: Sequence[Trajectory]) -> list[Floats]:
        scores = np.array([t.score for t in trajectories], np.float64)
        advantages = np.zeros_like(scores)
        for members in by_group(trajectories):
            own = scores[members]
            if len(own) > 1:
                advantages[members] = own - (own.sum() - own) / (len(own) - 1)
        return constant(trajectories, advantages)
