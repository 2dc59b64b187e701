"""What the recipes of all systems share; read without torch."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from oneiro.recipe import Settings
from oneiro.runtime.errors import OneiroError


class RolloutSettings(Settings):
    """How much one step of RL samples."""

    prompts_per_step: int = Field(32, ge=1)
    """Distinct prompts: levels, transitions or video segments."""
    group_size: int = Field(8, ge=1)
    """Samples for each prompt; their rewards are compared with each other."""


def require_path(key: str, name: str | None) -> None:
    """One line for a setting that names a folder or file that is not there."""
    if name is not None and not Path(name).expanduser().exists():
        raise OneiroError(f"{key}: nothing is at '{name}'; give a folder that is there")
