"""GSPO (arXiv 2507.18071): GRPO's advantages; the ratio is that of a whole row, with a narrow clip of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Literal

from pydantic import Field

from oneiro.episode import Floats
from oneiro.learning.algorithms.base import Algorithm, Trajectory
from oneiro.learning.algorithms.grpo import Grpo
from oneiro.learning.settings import Aggregate


class Gspo(Algorithm):
    name: Literal["gspo"] = "gspo"
    aggregate: ClassVar[Aggregate | None] = "sequence-mean"
    epsilon: float = 1e-6
    """Added to the standard deviation of a group."""
    clip_low: float = Field(3e-4, ge=0)
    """The clip of the row's ratio, in place of the loss's own; as published."""
    clip_high: float = Field(4e-4, ge=0)
    """How far a sequence ratio may rise above 1."""

    @property
    def loss(self) -> dict[str, Any]:
        clip = {"clip_low": self.clip_low, "clip_high": self.clip_high, "dual_clip": None}
        return {"importance_sampling": "sequence", **clip}

    def estimate(self, trajectories: Sequence[Trajectory]) -> list[Floats]:
        return Grpo(epsilon=self.epsilon).estimate(trajectories)
