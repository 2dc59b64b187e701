"""What an algorithm is: from the rewards of a batch of episodes to one advantage per sampled token.

An algorithm sees `Trajectory`s: every sampled token of an episode in order, whatever rows it was laid out in. It
knows no model and no world, so each one is a page of arithmetic that can be checked by hand.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from oneiro.episode import Episode, Floats
from oneiro.learning.settings import Aggregate
from oneiro.recipe import Settings

StateValue = tuple[Floats, float]
"""An outcome critic's value of each turn's state, and of the state that the last turn left."""


@dataclass(slots=True)
class Trajectory:
    """The N tokens that the agent said in one episode. Rewards stand on the last sampled token of their turn."""

    rewards: Floats
    turn_ends: NDArray[np.bool_]
    """True on the last sampled token of each turn, whether or not it earned anything."""
    group: int
    score: float
    """The raw return of the episode."""
    values: Floats | None = None
    """What a critic expects before each token; an outcome critic's is that of the turn's state."""
    states: tuple[bytes, ...] = ()
    """For each turn the tokens that stood before its first sampled one: all the agent had been told."""
    last_value: float = 0.0
    """An outcome critic's value of the state that the last turn left."""
    returns: Floats | None = None
    """What a critic should learn, where there is one: written by the algorithm."""

    def __len__(self) -> int:
        return len(self.rewards)

    @property
    def turn_starts(self) -> NDArray[np.int64]:
        """[T] where each turn's first token stands."""
        return np.concatenate([[0], np.flatnonzero(self.turn_ends)[:-1] + 1]).astype(np.int64)

    def spread(self, numbers: Floats) -> Floats:
        """One number a turn -> the same number for each of its tokens."""
        lengths = np.diff(np.append(self.turn_starts, len(self)))
        return np.repeat(np.asarray(numbers, np.float32), lengths)


class Algorithm(Settings):
    """Base of every algorithm: its settings, and `estimate`."""

    name: str
    critic: ClassVar[bool] = False
    """Whether `estimate` needs a value before every token, of a critic that learns beside the policy."""
    outcome_critic: ClassVar[bool] = False
    """Whether it needs a value of every turn's state, of a critic that learned the outcome before."""
    recompute: ClassVar[bool] = False
    """Whether the policy before the first update is the reference, whoever sampled the tokens."""
    weighted: ClassVar[bool] = False
    """Whether `advantages` are weights of the tokens' cross-entropy instead."""
    aggregate: ClassVar[Aggregate | None] = None
    """An aggregation the algorithm insists on."""

    @property
    def loss(self) -> dict[str, Any]:
        """Settings of the loss that the algorithm insists on, besides the aggregation."""
        return {}

    def estimate(self, trajectories: Sequence[Trajectory]) -> list[Floats]:
        """Advantages [N] of each trajectory; an algorithm with a critic also writes `returns` into it."""
        raise NotImplementedError("estimate(trajectories) -> one array of advantages a trajectory")


def trajectory(episode: Episode, group: int) -> Trajectory:
    """Line up an episode's sampled tokens and put each turn's reward on its last one."""
    numbers: list[int] = []
    lengths: list[int] = []
    states: list[bytes] = []
    for row in episode.rows:
        history = b""
        for segment in row.segments:
            if segment.acts and len(segment):
                if not numbers or numbers[-1] != segment.turn:
                    states.append(history)
                numbers.append(segment.turn)
                lengths.append(len(segment))
            history += segment.tokens.tobytes()
    turns = np.repeat(np.array(numbers, np.int32), lengths)
    rewards = np.zeros(len(turns), np.float32)
    ends = np.zeros(len(turns), bool)
    if len(turns):
        ends[:-1] = turns[1:] != turns[:-1]
        ends[-1] = True
        # Turns are numbered from 1 where there are several.
        for turn, reward in enumerate(episode.rewards, start=min(1, int(turns[0]))):
            # A turn in which nothing was sampled (an empty reply) pays on the token before it, or on the first one.
            rewards[max(0, int(np.searchsorted(turns, turn, side="right")) - 1)] += reward
    return Trajectory(rewards, ends, group, episode.score, states=tuple(states))


def constant(trajectories: Sequence[Trajectory], advantages: NDArray[np.float64]) -> list[Floats]:
    """The same advantage for every token of an episode."""
    return [np.full(len(t), a, np.float32) for t, a in zip(trajectories, advantages, strict=True)]


def by_group(trajectories: Sequence[Trajectory]) -> list[NDArray[np.int64]]:
    groups = np.array([t.group for t in trajectories])
    return [np.flatnonzero(groups == g) for g in dict.fromkeys(groups.tolist())]


def whiten(arrays: Sequence[Floats]) -> list[Floats]:
    """Zero mean and unit variance over all tokens together."""
    flat = np.concatenate(arrays).astype(np.float64)
    mean, std = flat.mean(), flat.std()
    return [((a - mean) / (std + 1e-8)).astype(np.float32) for a in arrays]
