"""PPO's advantages: generalised advantage estimation (arXiv 1506.02438), over tokens or over turns and tokens.

Bi-level estimation (VAGEN, RAGEN): first between the ends of turns with its own discount, then inside each turn
towards that turn's estimated return. Here a turn's end is where the turn ends, not where the reward happens to be
non-zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

import numpy as np

from oneiro.episode import Floats
from oneiro.learning.algorithms.base import Algorithm, Trajectory, whiten


class Ppo(Algorithm):
    name: Literal["ppo"] = "ppo"
    critic: ClassVar[bool] = True
    gamma: float = 1.0
    """Discount of later rewards."""
    lam: float = 1.0
    """Of generalised advantage estimation."""
    bi_level: bool = False
    """Advantages by turns first, then by tokens (VAGEN)."""
    turn_gamma: float = 0.95
    """Discount between turns, with `bi_level`."""
    whiten: bool = True
    """Scale the advantages of a batch to mean 0 and variance 1."""

    def estimate(self, trajectories: Sequence[Trajectory]) -> list[Floats]:
        advantages = []
        for t in trajectories:
            assert t.values is not None, "PPO needs a critic's values"
            if self.bi_level:
                advantage = bi_level_gae(t.rewards, t.values, t.turn_ends, self.gamma, self.turn_gamma, self.lam)
            else:
                advantage = gae(t.rewards, t.values, self.gamma, self.lam)
            advantages.append(advantage)
            t.returns = advantage + t.values
        return whiten(advantages) if self.whiten else advantages


def gae(rewards: Floats, values: Floats, gamma: float, lam: float) -> Floats:
    """A_i = sum_k (gamma lam)^k delta_{i+k},  delta_i = r_i + gamma V_{i+1} - V_i,  V after the end = 0."""
    advantages = np.zeros(len(rewards), np.float32)
    running = following = 0.0
    for i in range(len(rewards) - 1, -1, -1):
        delta = rewards[i] + gamma * following - values[i]
        running = delta + gamma * lam * running
        advantages[i], following = running, values[i]
    return advantages


def bi_level_gae(
    rewards: Floats, values: Floats, turn_ends: np.ndarray, gamma: float, turn_gamma: float, lam: float
) -> Floats:
    """Turn-level estimation at the turn ends, whose returns then replace the rewards of token-level estimation in
    each turn.
    """
    ends = np.flatnonzero(turn_ends)
    starts = np.concatenate([[0], ends[:-1] + 1])
    earned = np.array([rewards[s : e + 1].sum() for s, e in zip(starts, ends, strict=True)], np.float32)
    turn_returns = gae(earned, values[ends], turn_gamma, lam) + values[ends]
    advantages = np.zeros(len(rewards), np.float32)
    for start, end, target in zip(starts, ends, turn_returns, strict=True):
        inside = np.zeros(end + 1 - start, np.float32)
        inside[-1] = target
        advantages[start : end + 1] = gae(inside, values[start : end + 1], gamma, lam)
    return advantages
