"""What the recipes of all systems share; read without torch."""

from __future__ import annotations

from pydantic import Field

from oneiro.recipe import Settings


class RolloutSettings(Settings):
    """How much one step of RL samples."""

    prompts_per_step: int = Field(32, ge=1)
    """Distinct prompts: levels, transitions or video segments."""
    group_size: int = Field(8, ge=1)
    """Samples for each prompt; their rewards are compared with each other."""
