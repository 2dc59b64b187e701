"""WebRL's objective (arXiv 2411.02337), its released variant, and the baselines of its paper.

A turn is one whole reply in one state. Each algorithm turns an episode's outcome (1: the task was done) and a critic's
value of every state into one number a turn: the target of a regression, or a weight. The learner differentiates that
over the turn's tokens (`oneiro.learning.losses.row_loss`).

All numbers are worked by hand in `tests/learning/algorithms/test_webrl.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from oneiro.episode import Floats
from oneiro.learning.algorithms.base import Algorithm, Trajectory

STEP_COST = 0.05
"""What the released code (and DigiRL's) takes from every turn's advantage."""
NEGATIVE_TARGET = -0.6
"""The released target of a turn with a negative advantage; its mask leaves such turns out of the loss."""


def turn_values(t: Trajectory) -> Floats:
    """[T] the critic's value of each turn's state."""
    assert t.values is not None, "WebRL's objectives need an outcome critic's values"
    return t.values[t.turn_starts]


def mc_returns(rewards: Floats, gamma: float) -> Floats:
    """What is earned from each turn on, discounted: gamma^(T-t) for a success with its reward on the last turn."""
    returns = np.zeros(len(rewards), np.float32)
    running = 0.0
    for t in range(len(rewards) - 1, -1, -1):
        running = float(rewards[t]) + gamma * running
        returns[t] = running
    return returns


def mixed_advantages(t: Trajectory, lam: float) -> Floats:
    """[T] eq. 9: lam (r_t + V(s_t+1) - V(s_t)) + (1 - lam) (r_T - V(s_t)); the value after the end is 0."""
    values = turn_values(t)
    rewards = np.add.reduceat(t.rewards, t.turn_starts)
    following = np.append(values[1:], np.float32(0))
    return (lam * (rewards + following - values) + (1 - lam) * (t.score - values)).astype(np.float32)


def official_advantages(t: Trajectory, gamma: float) -> Floats:
    """[T] the released rule, which is DigiRL's: clamp(V(s') - V(s) - 0.05 + reward + return, -1, 1).

    The release copies the outcome to every turn, so that both reward and return of every turn of a success are at
    least 1.
    """
    values = turn_values(t)
    following = np.append(values[1:], np.float32(t.last_value))
    copied = np.full(len(values), t.score, np.float32)
    raw = following - values - STEP_COST + copied + mc_returns(copied, gamma)
    return np.clip(raw, -1, 1).astype(np.float32)


class TurnAlgorithm(Algorithm):
    """Base: one number a turn."""

    outcome_critic: ClassVar[bool] = True
    recompute: ClassVar[bool] = True

    def numbers(self, t: Trajectory) -> Floats:
        """[T]"""
        raise NotImplementedError("numbers(trajectory) -> one number a turn")

    def estimate(self, trajectories: Sequence[Trajectory]) -> list[Floats]:
        return [t.spread(self.numbers(t)) for t in trajectories]


class Paper(TurnAlgorithm):
    """Eq. 6: (beta log(pi / pi_ref) - A)^2 of whole replies, for good and bad turns alike."""

    name: Literal["paper"] = "paper"
    beta: float = Field(0.5, gt=0)
    """How hard the policy is held to the reference; the paper does not state the value of its main run."""
    lam: float = Field(0.5, ge=0, le=1)
    """1: judged by the next state's value; 0: by the outcome."""
    log_ratio: Literal["sum", "mean"] = "sum"
    """A reply's log-ratio: the sum over its tokens (the paper's), or their mean."""

    @property
    def loss(self) -> dict[str, Any]:
        # A token of a mean has weight 1 / tokens, of a sum 1; then the mean over turns.
        shape = {"aggregate": "sequence-mean"} if self.log_ratio == "mean" else {"aggregate": "constant"}
        return {"row": "squared", "row_beta": self.beta, "max_tokens": 1, **shape}

    def numbers(self, t: Trajectory) -> Floats:
        return mixed_advantages(t, self.lam)


class Official(TurnAlgorithm):
    """The released loss: a smooth L1 regression on +1 for turns that the released rule calls good; others are masked.

    With one turn a batch it is the release's. With more, the release divides a turn's log-ratio by the tokens of the
    whole batch; here by its own.
    """

    name: Literal["official"] = "official"
    gamma: float = Field(0.9, ge=0, le=1)
    """Discount of the return."""

    @property
    def loss(self) -> dict[str, Any]:
        return {"row": "official", "aggregate": "sequence-mean"}

    def numbers(self, t: Trajectory) -> Floats:
        return np.where(official_advantages(t, self.gamma) >= 0, 1.0, NEGATIVE_TARGET).astype(np.float32)


class ValueReinforce(TurnAlgorithm):
    """REINFORCE with the critic as baseline, the paper's ablation without KL: -(r_T - V(s)) log pi."""

    name: Literal["reinforce"] = "reinforce"

    @property
    def loss(self) -> dict[str, Any]:
        return {"row": "linear", "aggregate": "constant", "max_tokens": 1}

    def numbers(self, t: Trajectory) -> Floats:
        return (t.score - turn_values(t)).astype(np.float32)


class FilteredBc(TurnAlgorithm):
    """Cross-entropy on the best episodes, offline: those at or above a percentile of the outcomes."""

    name: Literal["filtered-bc"] = "filtered-bc"
    outcome_critic: ClassVar[bool] = False
    recompute: ClassVar[bool] = False
    weighted: ClassVar[bool] = True
    percentile: float = Field(70.0, ge=0, le=100)
    """Trajectories with a return from this percentile on are imitated."""

    def estimate(self, trajectories: Sequence[Trajectory]) -> list[Floats]:
        scores = [t.score for t in trajectories]
        least = float(np.percentile(scores, self.percentile)) if scores else 0.0
        return [np.full(len(t), float(t.score >= least and t.score > 0), np.float32) for t in trajectories]


class Rft(TurnAlgorithm):
    """Rejection-sampling fine-tuning (expert iteration): cross-entropy on the successes of each phase's own play."""

    name: Literal["rft"] = "rft"
    outcome_critic: ClassVar[bool] = False
    recompute: ClassVar[bool] = False
    weighted: ClassVar[bool] = True
    known: float = Field(1.0, gt=0, le=1)
    """Replies that were more probable than this when they were sampled are not imitated: next to no gradient for most
    of the work, since a page has a hundred times the tokens of its reply. 1: all are.
    """

    def numbers(self, t: Trajectory) -> Floats:
        return np.full(len(t.turn_starts), float(t.score > 0), np.float32)


class Awr(TurnAlgorithm):
    """Advantage-weighted regression (arXiv 1910.00177), offline: cross-entropy with the weight
    exp((r_T - V) / temperature), at most `cap`.
    """

    name: Literal["awr"] = "awr"
    recompute: ClassVar[bool] = False
    weighted: ClassVar[bool] = True
    temperature: float = Field(0.5, gt=0)
    """Of the exponent: smaller prefers better steps more."""
    cap: float = Field(20.0, gt=0)
    """Largest weight of a step."""

    def numbers(self, t: Trajectory) -> Floats:
        scaled = (t.score - turn_values(t)) / self.temperature
        return np.exp(np.minimum(scaled, np.log(self.cap))).astype(np.float32)


class Digirl(TurnAlgorithm):
    """DigiRL's actor (arXiv 2406.11896): cross-entropy on turns whose advantage, cut to [0, 1], is above 0; online, on
    the tasks of the first phase.
    """

    name: Literal["digirl"] = "digirl"
    recompute: ClassVar[bool] = False
    weighted: ClassVar[bool] = True
    gamma: float = Field(0.9, ge=0, le=1)
    """Discount of the return."""

    def numbers(self, t: Trajectory) -> Floats:
        return (official_advantages(t, self.gamma) > 0).astype(np.float32)
