"""A world named in a recipe: its name and its own settings, checked together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pydantic import ConfigDict, model_validator

from oneiro.recipe import Settings
from oneiro.worlds.base import World
from oneiro.worlds.registry import config_for, world_class


class WorldChoice(Settings):
    """`world: frozen-lake`, or `world: {name: frozen-lake, size: 6}`; the other keys are the world's."""

    model_config = ConfigDict(extra="allow", frozen=True)

    name: str

    @model_validator(mode="after")
    def _known(self) -> WorldChoice:
        config_for(self.name, self.settings)
        return self

    @property
    def settings(self) -> dict[str, Any]:
        return dict(self.model_extra or {})

    def maker(self) -> Callable[[], World]:
        """A factory of equal worlds; the settings are checked once."""
        kind, config = world_class(self.name), config_for(self.name, self.settings)
        return lambda: kind(config)
