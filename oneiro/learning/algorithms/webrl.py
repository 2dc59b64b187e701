"""WebRL's objective (arXiv 2411.02337), its released variant, and the baselines of its paper, step by step.

A step is one whole reply in one state. A trajectory has T steps, an outcome (1: the task was done) and a critic's value
of every state. An objective turns them into one number a step: the target of a regression, or a weight. The learner
differentiates that over the step's tokens (`oneiro.learning.losses.row_loss`).

All numbers are worked by hand in `tests/learning/test_webrl.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from oneiro.episode import Floats
from oneiro.recipe import Settings

STEP_COST = 0.05
"""What the released code (and DigiRL's) takes from every step's advantage."""
NEGATIVE_TARGET = -0.6
"""The released target of a step with a negative advantage; its mask leaves such steps out of the loss."""


@dataclass(slots=True)
class StepTrajectory:
    """What an objective sees of one trajectory of T steps."""

    outcome: float
    """1 if the outcome model says that the task was done, else 0."""
    values: Floats
    """[T] the critic's probability of success in each state; zeros where the objective needs no critic."""
    after: float = 0.0
    """The critic's value of the page that the last action left, for the released rule; the paper's value there is 0."""

    def __len__(self) -> int:
        return len(self.values)

    @property
    def rewards(self) -> Floats:
        """[T] the outcome on the last step, 0 before it."""
        rewards = np.zeros(len(self), np.float32)
        rewards[-1:] = self.outcome
        return rewards


def mc_returns(rewards: Floats, gamma: float) -> Floats:
    """What is earned from each step on, discounted: gamma^(T-t) for a success with its reward on the last step."""
    returns = np.zeros(len(rewards), np.float32)
    running = 0.0
    for t in range(len(rewards) - 1, -1, -1):
        running = float(rewards[t]) + gamma * running
        returns[t] = running
    return returns


def mixed_advantages(t: StepTrajectory, lam: float) -> Floats:
    """Eq. 9: lam (r_t + V(s_t+1) - V(s_t)) + (1 - lam) (r_T - V(s_t)); the value after the end is 0."""
    following = np.append(t.values[1:], np.float32(0))
    return (lam * (t.rewards + following - t.values) + (1 - lam) * (t.outcome - t.values)).astype(np.float32)


def official_advantages(t: StepTrajectory, gamma: float) -> Floats:
    """The released rule, which is DigiRL's: clamp(V(s') - V(s) - 0.05 + reward + return, -1, 1).

    The release copies the outcome to every step, so that both reward and return of every step of a success are at
    least 1.
    """
    following = np.append(t.values[1:], np.float32(t.after))
    copied = np.full(len(t), t.outcome, np.float32)
    raw = following - t.values - STEP_COST + copied + mc_returns(copied, gamma)
    return np.clip(raw, -1, 1).astype(np.float32)


# What a recipe names --------------------------------------------------------------------------------------------------


class StepObjective(Settings):
    """Base: its settings, and `numbers`."""

    name: str
    critic: ClassVar[bool] = True
    """Whether values are needed."""
    replay: ClassVar[bool] = False
    """Whether past successes are learned from again."""
    fresh_tasks: ClassVar[bool] = False
    """Whether each phase has tasks of its own; else those of the first phase."""
    offline: ClassVar[bool] = False
    """Whether all phases learn from the play of the first."""
    weighted: ClassVar[bool] = False
    """Whether `numbers` are weights of the steps' cross-entropy; else what `row_loss` calls the target."""

    @property
    def loss(self) -> dict[str, Any]:
        """Settings of the loss that the objective insists on."""
        return {}

    def numbers(self, trajectories: Sequence[StepTrajectory]) -> list[Floats]:
        """One number for each step of each trajectory."""
        raise NotImplementedError


class Paper(StepObjective):
    """Eq. 6: (beta log(pi / pi_ref) - A)^2 of whole replies, for good and bad steps alike."""

    name: Literal["paper"] = "paper"
    replay: ClassVar[bool] = True
    fresh_tasks: ClassVar[bool] = True
    beta: float = Field(0.5, gt=0)
    """How hard the policy is held to the reference; the paper does not state the value of its main run."""
    lam: float = Field(0.5, ge=0, le=1)
    """1: judged by the next state's value; 0: by the outcome."""
    log_ratio: Literal["sum", "mean"] = "sum"
    """A reply's log-ratio: the sum over its tokens (the paper's), or their mean."""

    @property
    def loss(self) -> dict[str, Any]:
        # A token of a mean has weight 1 / tokens, of a sum 1; then the mean over steps.
        shape = {"aggregate": "sequence-mean"} if self.log_ratio == "mean" else {"aggregate": "constant"}
        return {"row": "squared", "row_beta": self.beta, "max_tokens": 1, **shape}

    def numbers(self, trajectories: Sequence[StepTrajectory]) -> list[Floats]:
        return [mixed_advantages(t, self.lam) for t in trajectories]


class Official(StepObjective):
    """The released loss: a smooth L1 regression on +1 for steps that the released rule calls good; others are masked.

    With one step a batch it is the release's. With more, the release divides a step's log-ratio by the tokens of the
    whole batch; here by its own.
    """

    name: Literal["official"] = "official"
    replay: ClassVar[bool] = True
    fresh_tasks: ClassVar[bool] = True
    gamma: float = Field(0.9, ge=0, le=1)

    @property
    def loss(self) -> dict[str, Any]:
        return {"row": "official", "aggregate": "sequence-mean"}

    def numbers(self, trajectories: Sequence[StepTrajectory]) -> list[Floats]:
        found = [official_advantages(t, self.gamma) for t in trajectories]
        return [np.where(advantages >= 0, 1.0, NEGATIVE_TARGET).astype(np.float32) for advantages in found]


class ValueReinforce(StepObjective):
    """REINFORCE with the critic as baseline, the paper's ablation without KL: -(r_T - V(s)) log pi."""

    name: Literal["reinforce"] = "reinforce"
    fresh_tasks: ClassVar[bool] = True

    @property
    def loss(self) -> dict[str, Any]:
        return {"row": "linear", "aggregate": "constant", "max_tokens": 1}

    def numbers(self, trajectories: Sequence[StepTrajectory]) -> list[Floats]:
        return [(t.outcome - t.values).astype(np.float32) for t in trajectories]


class FilteredBc(StepObjective):
    """Cross-entropy on the steps of the best trajectories, offline: those at or above a percentile of the outcomes."""

    name: Literal["filtered-bc"] = "filtered-bc"
    critic: ClassVar[bool] = False
    offline: ClassVar[bool] = True
    weighted: ClassVar[bool] = True
    percentile: float = Field(70.0, ge=0, le=100)

    def numbers(self, trajectories: Sequence[StepTrajectory]) -> list[Floats]:
        outcomes = [t.outcome for t in trajectories]
        least = float(np.percentile(outcomes, self.percentile)) if outcomes else 0.0
        kept = [t.outcome >= least and t.outcome > 0 for t in trajectories]
        return [np.full(len(t), float(keep), np.float32) for t, keep in zip(trajectories, kept, strict=True)]


class Awr(StepObjective):
    """Advantage-weighted regression (arXiv 1910.00177), offline: cross-entropy with the weight
    exp((r_T - V) / temperature), at most `cap`.
    """

    name: Literal["awr"] = "awr"
    offline: ClassVar[bool] = True
    weighted: ClassVar[bool] = True
    temperature: float = Field(0.5, gt=0)
    cap: float = Field(20.0, gt=0)

    def numbers(self, trajectories: Sequence[StepTrajectory]) -> list[Floats]:
        scaled = [(t.outcome - t.values) / self.temperature for t in trajectories]
        return [np.exp(np.minimum(a, np.log(self.cap))).astype(np.float32) for a in scaled]


class Digirl(StepObjective):
    """DigiRL's actor (arXiv 2406.11896): cross-entropy on steps whose advantage, cut to [0, 1], is above 0; online, on
    the tasks of the first phase.
    """

    name: Literal["digirl"] = "digirl"
    weighted: ClassVar[bool] = True
    gamma: float = Field(0.9, ge=0, le=1)

    def numbers(self, trajectories: Sequence[StepTrajectory]) -> list[Floats]:
        return [(official_advantages(t, self.gamma) > 0).astype(np.float32) for t in trajectories]


class SftOnly(StepObjective):
    """No phase: the model after SFT on demonstrations, as the paper's SFT row."""

    name: Literal["sft"] = "sft"
    critic: ClassVar[bool] = False

    def numbers(self, trajectories: Sequence[StepTrajectory]) -> list[Floats]:
        return [np.zeros(len(t), np.float32) for t in trajectories]


class GroupObjective(StepObjective):
    """Multi-turn RL on groups of attempts at a task, by the shared learner (`oneiro.learning.algorithms`)."""

    critic: ClassVar[bool] = False
    fresh_tasks: ClassVar[bool] = True

    def numbers(self, trajectories: Sequence[StepTrajectory]) -> list[Floats]:
        raise NotImplementedError("groups are estimated by the shared algorithms")


class GroupGrpo(GroupObjective):
    """GRPO over whole episodes, with a constant length normaliser (WebAgent-R1, Dr.GRPO)."""

    name: Literal["grpo"] = "grpo"


class GroupGigpo(GroupObjective):
    """GiGPO (arXiv 2505.10978): credit by comparison of turns that began in the same state; `state-grpo` here."""

    name: Literal["gigpo"] = "gigpo"


class GroupPpo(GroupObjective):
    """PPO with a token-level critic."""

    name: Literal["ppo"] = "ppo"


AnyObjective = Annotated[
    Paper | Official | SftOnly | FilteredBc | Awr | Digirl | ValueReinforce | GroupGrpo | GroupGigpo | GroupPpo,
    Field(discriminator="name"),
]
"""How a recipe names its objective."""
