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

    def in_view_of(self, other: WorldChoice) -> WorldChoice:
        """This world shown as `other` is: unless its settings or its variant say how, or it has no such view."""
        kind = world_class(self.name)
        said = {**kind.variants.get(self.name.partition(":")[2], {}), **self.settings}
        view = config_for(other.name, other.settings).view
        if "view" in said or view not in kind.views or view == config_for(self.name, self.settings).view:
            return self
        return WorldChoice(name=self.name, **{**self.settings, "view": view})

    def maker(self) -> Callable[[], World]:
        """A factory of equal worlds; the settings are checked once."""
        kind, config = world_class(self.name), config_for(self.name, self.settings)
        return lambda: kind(config)
