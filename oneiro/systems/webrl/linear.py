"""The linear agent inside WebRL's loop: SFT, replies' probabilities, a critic and the objectives, in numpy.

A reply counts as one token: its log-probability is that of its action among the page's candidates
(`oneiro.agents.linear`). The settings are those of language models; learning rates are larger.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from oneiro.agents.linear import SIZE, Choice, Index, LinearPolicy, choice, past_actions
from oneiro.agents.policies import Policy
from oneiro.episode import Floats
from oneiro.learning.algorithms import Trajectory as GroupTrajectory
from oneiro.learning.algorithms.webrl import GroupObjective, StepObjective
from oneiro.learning.losses import official_row_loss
from oneiro.models.chat import ChatFormat
from oneiro.models.language import write_folder
from oneiro.models.locate import METADATA
from oneiro.runtime import files, seeds
from oneiro.systems.webrl.actor import ALGORITHMS
from oneiro.systems.webrl.outcome import action_of
from oneiro.systems.webrl.recipe import TrainSettings
from oneiro.systems.webrl.samples import Sample, Valued, numbers_of
from oneiro.systems.webrl.trajectories import Step

Log = Callable[[int, dict[str, float]], None]
SHARPNESS = 10.0
"""What a mean of the critic's weights is multiplied by before the logistic function."""


@dataclass(frozen=True)
class Decision:
    """A step as the policy sees it."""

    offered: Choice
    taken: int | None
    """None where the reply is none of the candidates: it is left out of learning."""

    @classmethod
    def of(cls, step: Step) -> Decision:
        offered, action = choice(step.state, past_actions(step.message)), action_of(step)
        return cls(offered, offered.actions.index(action) if action in offered.actions else None)

    @cached_property
    def state(self) -> Index:
        """Features of the state alone."""
        return np.unique(np.concatenate(self.offered.features))


@dataclass
class LinearCritic:
    """A logistic regression on the features of all candidates of a page."""

    weights: NDArray[np.float64] = field(default_factory=lambda: np.zeros(SIZE))

    def value(self, state: Index) -> float:
        return 1 / (1 + math.exp(-float(np.clip(SHARPNESS * self.weights[state].mean(), -30, 30))))

    def values(self, steps: Sequence[Step]) -> Floats:
        return np.array([self.value(Decision.of(step).state) for step in steps], np.float32)

    def train(
        self, steps: Sequence[Step], outcomes: Sequence[float], settings: TrainSettings, seed: int, log: Log
    ) -> dict[str, float]:
        rate = settings.learner.optimiser.lr
        states = [Decision.of(step).state for step in steps]
        loss = 0.0
        for epoch in range(settings.epochs):
            loss = 0.0
            for i in seeds.generator(seed, "critic", epoch).permutation(len(states)):
                value = self.value(states[i])
                loss -= math.log(value if outcomes[i] > 0 else 1 - value) / max(1, len(states))
                self.weights[states[i]] -= rate * (value - outcomes[i]) * SHARPNESS / len(states[i])
            log(epoch + 1, {"loss": loss})
        return {"loss": loss}

    def save(self, folder: Path) -> None:
        LinearPolicy(0.0, self.weights).save(folder)

    def load(self, folder: Path) -> None:
        self.weights = LinearPolicy.load(folder).weights


@dataclass
class LinearAgent:
    """The actor."""

    weights: NDArray[np.float64] = field(default_factory=lambda: np.zeros(SIZE))

    def policy(self, temperature: float) -> tuple[Policy, ChatFormat | None]:
        return LinearPolicy(temperature, self.weights), None

    def confidences(self, steps: Sequence[Step]) -> list[float]:
        found = [Decision.of(step) for step in steps]
        return [0.0 if d.taken is None else float(d.offered.chances(self.weights)[d.taken]) for d in found]

    def imitate(self, steps: Sequence[Step], epochs: float, rate: float, seed: int, log: Log) -> int:
        """SFT: returns the number of updates."""
        decisions = [d for step in steps if (d := Decision.of(step)).taken is not None]
        policy = LinearPolicy(1.0, self.weights)
        for epoch in range(max(1, round(epochs))):
            loss = 0.0
            for i in seeds.generator(seed, "sft", epoch).permutation(len(decisions)):
                taken = decisions[i].taken
                assert taken is not None
                loss -= math.log(max(1e-12, decisions[i].offered.chances(self.weights)[taken])) / len(decisions)
                policy.nudge(decisions[i].offered, taken, -1.0, rate)
            log(epoch + 1, {"loss": loss, "ce": loss})
        return max(1, round(epochs)) * len(decisions)

    def regress(
        self,
        objective: StepObjective,
        samples: Sequence[Sample],
        critic: Valued | None,
        settings: TrainSettings,
        seed: int,
        log: Log,
    ) -> tuple[dict[str, Any], list[list[float]]]:
        """One step at a time; the reference is the policy before."""
        if isinstance(objective, GroupObjective):
            numbers = group_advantages(objective, samples)
        else:
            numbers = numbers_of(objective, samples, critic)
        flat = [
            (Decision.of(s.steps[t]), float(own[t])) for s, own in zip(samples, numbers, strict=True) for t in s.places
        ]
        known = [(d, target) for d, target in flat if d.taken is not None]
        policy = LinearPolicy(1.0, self.weights)
        before = [float(d.offered.chances(self.weights)[d.taken]) for d, _ in known]
        for epoch in range(settings.epochs):
            for i in seeds.generator(seed, "steps", epoch).permutation(len(known)):
                decision, target = known[i]
                assert decision.taken is not None
                chance = max(1e-12, float(decision.offered.chances(self.weights)[decision.taken]))
                slope = _slope(objective, math.log(chance / max(1e-12, before[i])), target, before[i])
                policy.nudge(decision.offered, decision.taken, slope, settings.learner.optimiser.lr)
        after = [float(d.offered.chances(self.weights)[d.taken]) for d, _ in known]
        moved = np.log(np.maximum(after, 1e-12)) - np.log(np.maximum(before, 1e-12))
        found = {
            "steps": len(flat),
            "updates": settings.epochs * len(known),
            "positive": float(np.mean([target > 0 for _, target in flat])) if flat else 0.0,
            "log_ratio": float(moved.mean()) if len(moved) else 0.0,
        }
        log(1, {name: float(value) for name, value in found.items()})
        return found, [[float(own[t]) for t in s.places] for s, own in zip(samples, numbers, strict=True)]

    def save(self, folder: Path, metadata: dict[str, Any]) -> None:
        def write(part: Path) -> None:
            LinearPolicy(0.0, self.weights).save(part)
            files.write_json(part / METADATA, metadata)

        write_folder(folder, write, {})

    @classmethod
    def load(cls, folder: Path) -> LinearAgent:
        return cls(LinearPolicy.load(folder).weights)


def group_advantages(objective: GroupObjective, samples: Sequence[Sample]) -> list[Floats]:
    """Advantages of the shared algorithms, a reply being one token."""
    made = []
    for s in samples:
        rewards = np.zeros(len(s.steps), np.float32)
        rewards[-1] = s.outcome
        told = tuple(step.message.encode() for step in s.steps)
        made.append(GroupTrajectory(rewards, np.ones(len(rewards), bool), s.trajectory.group, s.outcome, None, told))
    return ALGORITHMS[objective.name].estimate(made).advantages


def _slope(objective: StepObjective, rho: float, target: float, confidence: float) -> float:
    """The objective's derivative by the log-probability of a reply of one token."""
    kind = objective.loss.get("row")
    if objective.weighted:
        return -target
    if kind == "squared":
        beta = float(objective.loss["row_beta"])
        return 2 * beta * (beta * rho - target)
    if kind == "official":
        _, slope = official_row_loss(torch.tensor([rho]), torch.tensor([target]), torch.tensor([confidence]))
        return float(slope)
    return -target
