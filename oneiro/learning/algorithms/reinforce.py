"""REINFORCE++ (arXiv 2501.03262): every token's return to come, whitened over the whole batch; no critic, no groups.

With `baseline`, scores are first centred within their group (REINFORCE++-baseline). Per-token KL penalties arrive
through the rewards (`kl_in_reward` of the loop).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from oneiro.episode import Floats
from oneiro.learning.algorithms.base import Algorithm, Trajectory, by_group, whiten


class Reinforce(Algorithm):
    name: Literal["reinforce++"] = "reinforce++"
    gamma: float = 1.0
    """Discount of later rewards."""
    baseline: bool = False
    """Centre scores within their group first (REINFORCE++-baseline)."""

    def estimate(self, trajectories: Sequence[Trajectory]) -> list[Floats]:
        shift = np.zeros(len(trajectories))
        if self.baseline:
            for members in by_group(trajectories):
                shift[members] = np.mean([trajectories[i].score for i in members])
        returns = []
        for t, mean in zip(trajectories, shift, strict=True):
            future = np.zeros(len(t), np.float64)
            running = 0.0
            for i in range(len(t) - 1, -1, -1):
                running = t.rewards[i] + self.gamma * running
                future[i] = running - mean
            returns.append(future.astype(np.float32))
        return whiten(returns)
