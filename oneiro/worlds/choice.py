"""A world named in a recipe: its name and its own settings, checked together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pydantic import ConfigDict, Field, model_validator

from oneiro.recipe import Settings, Workers
from oneiro.worlds.base import World
from oneiro.worlds.registry import config_for, world_class
from oneiro.worlds.workers import WorldMaker


class WorldChoice(Settings):
    """`world: frozen-lake`, or `world: {name: frozen-lake, size: 6}`; the other keys are the world's."""

    model_config = ConfigDict(extra="allow", frozen=True)

    name: str
    workers: Workers = 0
    """Where an agent's episodes are played: 0 in this process, N in processes of this machine, `ray` or
    `ray://HOST:PORT?actors=N` in actors of a Ray cluster (`oneiro.runtime.processes`). One world each.
    """
    worker_timeout_s: float = Field(300.0, gt=0)
    """Seconds that a worker may take to answer; then it is replaced, and the episode is lost."""

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
        settings = {**kind.variants.get(self.name.partition(":")[2], {}), **self.settings}
        view = config_for(other.name, other.settings).view
        if "view" in settings or view not in kind.views or view == config_for(self.name, self.settings).view:
            return self
        return WorldChoice(name=self.name, **{**self.model_dump(exclude={"name"}), "view": view})

    def maker(self) -> Callable[[], World]:
        """A factory of equal worlds in this process; the settings are checked once."""
        return WorldMaker(world_class(self.name), config_for(self.name, self.settings))

    def episode_maker(self) -> Callable[[], World]:
        """The same for worlds that an agent plays in: in workers, where there are some."""
        kind, config = world_class(self.name), config_for(self.name, self.settings)
        return WorldMaker(kind, config, self.workers, self.worker_timeout_s)
