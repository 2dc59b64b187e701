"""What an actor learns from in a phase, and the objective's number for each step; the same for every kind of agent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from oneiro.episode import Floats
from oneiro.learning.algorithms.webrl import StepObjective, StepTrajectory
from oneiro.systems.webrl.trajectories import Step, Trajectory


@dataclass(frozen=True)
class Sample:
    """Steps of one trajectory that are learned from."""

    trajectory: Trajectory
    places: Sequence[int]
    """Which of its steps."""
    outcome: float
    """What the outcome model said: 1 or 0."""

    @property
    def steps(self) -> list[Step]:
        """All steps of the trajectory."""
        return self.trajectory.steps


class Valued(Protocol):
    """A critic: the probability of success on the page that a step shows."""

    def values(self, steps: Sequence[Step]) -> Floats: ...


def numbers_of(objective: StepObjective, samples: Sequence[Sample], critic: Valued | None) -> list[Floats]:
    """The objective's number for every step of every trajectory; those of steps that are not learned mean nothing."""
    values = [np.zeros(len(sample.steps), np.float32) for sample in samples]
    after = [0.0] * len(samples)
    if critic is not None:
        # A step's number needs the value of its state and of the next one.
        wanted = [
            (i, t)
            for i, sample in enumerate(samples)
            for t in sorted({place for p in sample.places for place in (p, p + 1)})
        ]
        states = [page_of(samples[i].trajectory, t) for i, t in wanted]
        for (i, t), value in zip(wanted, critic.values(states), strict=True):
            if t < len(values[i]):
                values[i][t] = value
            else:
                after[i] = float(value)
    return objective.numbers(
        [
            StepTrajectory(sample.outcome, value, last)
            for sample, value, last in zip(samples, values, after, strict=True)
        ]
    )


def page_of(trajectory: Trajectory, place: int) -> Step:
    """A step's page; behind the last step, the page that the last action left."""
    if place < len(trajectory):
        return trajectory.steps[place]
    return replace(trajectory.steps[-1], message=trajectory.after, state=trajectory.final, reply="", tokens=[])
