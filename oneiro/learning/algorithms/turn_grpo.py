"""GRPO with credit for each turn: its tokens are judged by what was earned from it on, against the group's same turn.

Where every turn earns a reward of its own (each predicted frame of a video), an episode's total says little about a
single turn: an early turn cannot be blamed on a later one, nor a later turn praised for what came before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from oneiro.learning.algorithms.base import Algorithm, Estimate, Trajectory, by_group


class TurnGrpo(Algorithm):
    name: Literal["turn-grpo"] = "turn-grpo"
    gamma: float = Field(1.0, ge=0, le=1)
    """How much a turn answers for the rewards after its own; 0: not at all."""
    epsilon: float = 1e-6

    def estimate(self, trajectories: Sequence[Trajectory]) -> Estimate:
        earned = [self.returns(t) for t in trajectories]
        advantages = [np.zeros_like(returns) for returns in earned]
        for members in by_group(trajectories):
            for turn in range(max((len(earned[i]) for i in members), default=0)):
                there = [i for i in members if turn < len(earned[i])]
                values = np.array([earned[i][turn] for i in there])
                spread = values.std(ddof=1) if len(values) > 1 else 0.0
                for i, value in zip(there, values, strict=True):
                    advantages[i][turn] = (value - values.mean()) / (spread + self.epsilon)
        return Estimate(
            [each[turns_of(t)].astype(np.float32) for each, t in zip(advantages, trajectories, strict=True)]
        )

    def returns(self, t: Trajectory) -> NDArray[np.float64]:
        """What was earned from each turn on, [turns]."""
        rewards = np.zeros(int(t.turn_ends.sum()))
        np.add.at(rewards, turns_of(t), t.rewards)
        for turn in range(len(rewards) - 2, -1, -1):
            rewards[turn] += self.gamma * rewards[turn + 1]
        return rewards


def turns_of(t: Trajectory) -> NDArray[np.int64]:
    """[N]: the turn of each sampled token, counted from 0."""
    return np.cumsum(t.turn_ends) - t.turn_ends
