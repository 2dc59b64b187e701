"""How the linear agent learns from the turns of episodes (`Episode.info["turns"]`), in numpy.

A reply counts as one token: its log-probability is that of its action among the page's candidates.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from oneiro.agents.linear.policy import SIZE, Choice, Index, LinearPolicy, choice, past_actions
from oneiro.agents.reply import action_in
from oneiro.episode import Episode, Floats
from oneiro.learning.algorithms import Algorithm, Trajectory
from oneiro.learning.algorithms.base import StateValue
from oneiro.learning.logistic import sigmoid
from oneiro.learning.losses import official_row_loss
from oneiro.runtime import seeds

Turn = Mapping[str, Any]
"""What was read (`message`, `state`) and said (`reply`)."""
Log = Callable[[int, dict[str, float]], None]
Slope = Callable[[float, float, float], float]
"""(log-ratio to the policy before, the turn's number, its probability before) -> the derivative of the turn's loss by
its log-probability."""
SHARPNESS = 10.0
"""What a mean of the critic's weights is multiplied by before the logistic function: a page has about a hundred
features, and a plain mean would move too slowly.
"""
LEAST = 1e-12
"""Probabilities below it count as it, so that logarithms stay finite."""


@dataclass(frozen=True)
class TurnDecision:
    """A turn as the policy sees it."""

    offered: Choice
    taken: int | None
    """None where the reply is none of the candidates: it is left out of learning."""

    @classmethod
    def of(cls, turn: Turn) -> TurnDecision:
        offered = choice(turn["state"], past_actions(turn["message"]))
        action = action_in(turn["reply"])
        return cls(offered, offered.actions.index(action) if action in offered.actions else None)

    @cached_property
    def state(self) -> Index:
        """Features of the state alone."""
        return np.unique(np.concatenate(self.offered.features))

    def probability(self, weights: NDArray[np.float64]) -> float:
        """Of the action that was taken; 0 where it is no candidate."""
        return 0.0 if self.taken is None else float(self.offered.chances(weights)[self.taken])


def turn_numbers(
    algorithm: Algorithm, episodes: Sequence[Episode], values: Sequence[StateValue] | None = None
) -> list[Floats]:
    """[T] of each episode: what an RL algorithm makes of its turns, a reply being one token."""
    trajectories = []
    for number, episode in enumerate(episodes):
        messages = tuple(turn["message"].encode() for turn in episode.info["turns"])
        own, after = values[number] if values is not None else (None, 0.0)
        rewards = np.asarray(episode.rewards, np.float32)
        ends = np.ones(len(messages), bool)  # a reply is one token here, and so the last one of its turn
        trajectories.append(Trajectory(rewards, ends, episode.group, episode.score, own, messages, after))
    return algorithm.estimate(trajectories)


def cross_entropy(log_ratio: float, weight: float, before: float) -> float:
    """The slope of imitation: the number of a turn is its weight."""
    return -weight


def slope_of(algorithm: Algorithm) -> Slope:
    """The derivative of the algorithm's loss by the log-probability of a reply of one token."""
    kind = algorithm.loss.get("row")
    if kind == "squared":
        beta = float(algorithm.loss["row_beta"])
        return lambda rho, target, before: 2 * beta * (beta * rho - target)
    if kind == "official":

        def slope(rho: float, target: float, before: float) -> float:
            parts = (torch.tensor([number]) for number in (rho, target, before))
            return float(official_row_loss(*parts)[1])

        return slope
    return lambda rho, number, before: -number


def fit(
    policy: LinearPolicy,
    lessons: Sequence[tuple[Turn, float]],
    epochs: int,
    rate: float,
    seed: int,
    slope: Slope = cross_entropy,
    log: Log = lambda epoch, values: None,
) -> dict[str, float]:
    """Learn from turns, each with its number, one at a time; by default, imitate them. `log` gets the mean negative
    log-probability of each epoch.
    """
    decided = [(TurnDecision.of(turn), number) for turn, number in lessons]
    known = [(decision, decision.taken, number) for decision, number in decided if decision.taken is not None]
    # As it was before the first update: ratios of all epochs are against it.
    before = [max(LEAST, decision.probability(policy.weights)) for decision, _, _ in known]
    for epoch in range(epochs):
        loss = 0.0
        for i in seeds.generator(seed, "steps", epoch).permutation(len(known)):
            decision, taken, number = known[i]
            now = max(LEAST, decision.probability(policy.weights))
            loss -= math.log(now) / len(known)
            policy.nudge(decision.offered, taken, slope(math.log(now / before[i]), number, before[i]), rate)
        log(epoch + 1, {"loss": loss, "ce": loss})
    after = [max(LEAST, decision.probability(policy.weights)) for decision, _, _ in known]
    ratios = np.log(after) - np.log(before)
    return {"updates": epochs * len(known), "log_ratio": float(ratios.mean()) if len(ratios) else 0.0}


@dataclass
class LinearCritic:
    """Whether the task will be done: a logistic regression on the features of all candidates of a page."""

    epochs: int = 1
    rate: float = 0.1
    weights: NDArray[np.float64] = field(default_factory=lambda: np.zeros(SIZE))

    def value(self, state: Index) -> float:
        return float(sigmoid(SHARPNESS * self.weights[state].mean()))

    def values(self, turns: Sequence[Turn]) -> Floats:
        return np.array([self.value(TurnDecision.of(turn).state) for turn in turns], np.float32)

    def fit(self, turns: Sequence[Turn], outcomes: Sequence[float], seed: int, log: Log) -> dict[str, float]:
        """Learn the outcome in every state; the mean loss of the last epoch."""
        states = [TurnDecision.of(turn).state for turn in turns]
        loss = 0.0
        for epoch in range(self.epochs):
            loss = 0.0
            for i in seeds.generator(seed, "critic", epoch).permutation(len(states)):
                value = self.value(states[i])
                loss -= math.log(value if outcomes[i] > 0 else 1 - value) / max(1, len(states))
                self.weights[states[i]] -= self.rate * (value - outcomes[i]) * SHARPNESS / len(states[i])
            log(epoch + 1, {"loss": loss})
        return {"loss": loss}

    def save(self, folder: Path) -> None:
        LinearPolicy(0.0, self.weights).save(folder)

    def load(self, folder: Path) -> None:
        self.weights = LinearPolicy.load(folder).weights
