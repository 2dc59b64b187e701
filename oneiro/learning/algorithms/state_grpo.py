"""GRPO with credit for each turn by comparison with other turns that began in the same state of the same group.

Members of a group start alike and often meet again (arXiv 2505.10978 compares such meetings). What the group earned,
from all its visits to a state on, is that state's value: a critic of a group's size, with nothing to train. A turn is
then judged by where it led, and noise before it or, with `lam` below 1, long after it, is not its own.

States are the same where the agent was told the same: its action can depend on nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from oneiro.episode import Floats
from oneiro.learning.algorithms.base import Algorithm, Trajectory, by_group
from oneiro.learning.algorithms.ppo import gae
from oneiro.learning.algorithms.turn_grpo import returns_of, turns_of


class StateGrpo(Algorithm):
    name: Literal["state-grpo"] = "state-grpo"
    gamma: float = Field(1.0, ge=0, le=1)
    """How much a turn answers for the rewards after its own."""
    lam: float = Field(0.5, ge=0, le=1)
    """1: a turn is judged by what its episode came to; 0: by the value of the state it led to; between: by both."""
    prior: float = Field(1.0, ge=0)
    """The group's mean return from the same turn on counts as so many visits: where nobody else was, it is half of
    what a turn is judged by.
    """
    epsilon: float = 1e-6
    """Added to the standard deviation of a group."""

    def estimate(self, trajectories: Sequence[Trajectory]) -> list[Floats]:
        advantages: list[Floats] = [np.zeros(0, np.float32)] * len(trajectories)
        for members in by_group(trajectories):
            own = [trajectories[i] for i in members]
            returns = [returns_of(t, self.gamma) for t in own]
            values = self.values([t.states for t in own], returns)
            std = np.concatenate(returns).std()
            for i, t, value in zip(members, own, values, strict=True):
                turns = gae(returns_of(t, 0.0).astype(np.float32), value, self.gamma, self.lam)
                advantages[i] = (turns[turns_of(t)] / (std + self.epsilon)).astype(np.float32)
        return advantages

    def values(
        self, states: Sequence[Sequence[bytes]], returns: Sequence[NDArray[np.float64]]
    ) -> list[NDArray[np.float32]]:
        """The value of the state each turn began in, for every member of a group."""
        numbers: dict[bytes, int] = {}
        state = np.array([numbers.setdefault(s, len(numbers)) for own in states for s in own], np.int64)
        turn = np.concatenate([np.arange(len(r)) for r in returns])
        flat = np.concatenate(returns)
        usual = (np.bincount(turn, flat) / np.maximum(np.bincount(turn), 1))[turn]
        value = (np.bincount(state, flat)[state] + self.prior * usual) / (np.bincount(state)[state] + self.prior)
        return np.split(value.astype(np.float32), np.cumsum([len(r) for r in returns])[:-1])
