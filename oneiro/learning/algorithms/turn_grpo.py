"""GRPO with credit for each turn: its tokens are judged by what was earned from it on, against the group's same turn.

Where every turn earns a reward of its own (each predicted frame of a video), an episode's total says little about a
single turn: an early turn cannot be blamed on a later one, nor a later turn praised for what came before it. The unit
is the group's std over all its turns together, so that a turn on which all members agree stays small.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from oneiro.episode import Floats
from oneiro.learning.algorithms.base import Algorithm, Trajectory, by_group


class TurnGrpo(Algorithm):
    name: Literal["turn-grpo"] = "turn-grpo"
    gamma: float = Field(1.0, ge=0, le=1)
    """How much a turn answers for the rewards after its own; 0: not at all."""
    epsilon: float = 1e-6
    """Added to the standard deviation of a group."""

    def estimate(self, trajectories: Sequence[Trajectory]) -> list[Floats]:
        advantages: list[Floats] = [np.zeros(0, np.float32)] * len(trajectories)
        for members in by_group(trajectories):
            earned = [returns_of(trajectories[i], self.gamma) for i in members]
            table = np.full((len(members), max(map(len, earned))), np.nan)
            for row, returns in zip(table, earned, strict=True):
                row[: len(returns)] = returns
            # Members of a group may have more turns than others: each turn is compared where it took place.
            apart = table - np.nanmean(table, axis=0)
            free = np.sum(~np.isnan(table), axis=0) - 1
            std = np.sqrt(np.nansum(apart**2) / free.sum()) if free.sum() else 0.0
            for i, row in zip(members, apart, strict=True):
                advantages[i] = (row[turns_of(trajectories[i])] / (std + self.epsilon)).astype(np.float32)
        return advantages


def returns_of(t: Trajectory, gamma: float) -> NDArray[np.float64]:
    """What was earned from each turn on, [turns]; with gamma 0, in it."""
    rewards = np.zeros(int(t.turn_ends.sum()))
    np.add.at(rewards, turns_of(t), t.rewards)
    for turn in range(len(rewards) - 2, -1, -1):
        rewards[turn] += gamma * rewards[turn + 1]
    return rewards


def turns_of(t: Trajectory) -> NDArray[np.int64]:
    """[N]: the turn of each sampled token, counted from 0."""
    return np.cumsum(t.turn_ends) - t.turn_ends
