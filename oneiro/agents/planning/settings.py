"""How a planner searches, and how much it may spend. Read without torch."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from oneiro.recipe import Settings

PlannerName = Literal["beam", "mpc"]


class PlannerSettings(Settings):
    """Beam search, or model predictive control (MPC)."""

    name: PlannerName = "beam"
    """`beam`: keep the best states of each depth. `mpc`: improve sampled action sequences (cross-entropy method)."""
    depth: int = Field(8, ge=1)
    """Actions that the planner looks ahead."""
    proposals: int = Field(4, ge=1)
    """Actions tried in a state, at most."""
    width: int = Field(16, ge=1)
    """beam: states kept at each depth."""
    sequences: int = Field(32, ge=1)
    """mpc: sequences in an iteration."""
    iterations: int = Field(3, ge=1)
    """mpc: rounds of sampling; each round after the first starts from the best sequences of the one before."""
    elites: int = Field(4, ge=1)
    """mpc: sequences that a round hands to the next."""
    keep: float = Field(0.7, ge=0, le=1)
    """mpc: chance that an action of a new sequence is taken from an elite and not proposed anew."""
    outcomes: int = Field(1, ge=1)
    """Predictions of each action. 1: the most likely outcome, for deterministic worlds. More: samples, whose values are
    averaged, for stochastic worlds."""
    discount: float = Field(0.95, gt=0, le=1)
    """What a value is worth one action later."""
    max_tokens: int | None = Field(None, ge=1)
    """Tokens that one decision may sample, over predictions, proposals and judgements; None: no limit."""
    max_seconds: float | None = Field(None, gt=0)
    """Seconds for one decision; decisions made together share theirs. None: no limit."""
