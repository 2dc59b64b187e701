"""Names to worlds. A world's module is imported when it is first asked for, so a name costs nothing.

Other packages add worlds through the entry-point group `oneiro.worlds` (`name = "package.module:Class"`), or by
`register`. Each name is also known to gymnasium, as `oneiro/NAME-v0`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pydantic import ConfigDict, Field, ValidationError, model_validator

from oneiro.recipe import Settings, Workers
from oneiro.runtime import plugins
from oneiro.runtime.errors import OneiroError, nearest
from oneiro.worlds.base import World, WorldConfig
from oneiro.worlds.workers import WorldMaker

try:
    import gymnasium
except ImportError:  # without it worlds play, and nobody can ask for them by `gymnasium.make`
    gymnasium = None  # type: ignore[assignment]

WORLDS: dict[str, str | type[World]] = {
    "2048": "oneiro.worlds.puzzle.game_2048:Game2048",
    "bandit": "oneiro.worlds.puzzle.bandit:Bandit",
    "countdown": "oneiro.worlds.puzzle.countdown:Countdown",
    "cube": "oneiro.worlds.puzzle.cube:Cube",
    "frozen-lake": "oneiro.worlds.grid.frozen_lake.world:FrozenLake",
    "gymnasium": "oneiro.adapters.gymnasium:GymWorld",
    "math": "oneiro.worlds.puzzle.math_qa:MathQA",
    "physics": "oneiro.worlds.rules.physics_world:PhysicsWorld",
    "robot": "oneiro.worlds.robot.drawer:Robot",
    "rulebook": "oneiro.worlds.rules.rulebook.world:RulebookWorld",
    "sokoban": "oneiro.worlds.grid.sokoban.world:Sokoban",
    "sudoku": "oneiro.worlds.grid.sudoku.world:Sudoku",
    "textgame": "oneiro.worlds.textgame.world:TextGame",
    "webshop": "oneiro.worlds.shop.webshop:WebShop",
}
"""Name -> `module:Class` of the worlds that come with the package; those registered by hand also as classes."""

WEB_WORLDS = ("miniwob", "web", "webarena-infinity")
"""Worlds of `oneiro_web`, which registers them itself; named here for the message where it is not installed."""


def register(name: str, target: str | type[World]) -> None:
    """Make `name` stand for a world class, given itself or as `package.module:Class`, which is imported when needed."""
    if ":" in name:
        raise OneiroError(f"a world cannot be called '{name}': the colon separates a world from its variant")
    if not isinstance(target, str):
        _require_class(name, target, repr(target))
    WORLDS[name] = target
    announce(name)


def adopt(name: str) -> str:
    """A name as `make` takes it. `mine.courier:Courier` is a class by its import path, registered under its own name;
    `mine.courier:Courier:small` is a variant of it. Modules of the working directory are found too.
    """
    module, _, rest = name.partition(":")
    path, _, variant = rest.partition(":")
    if module in _targets() or not ("." in module or path[:1].isupper()):
        return name
    target = f"{module}:{path}"
    if "/" in module or module.endswith(".py"):
        dotted = module.removesuffix(".py").strip("./").replace("/", ".")
        raise OneiroError(f"world '{target}' is not an import path; write {dotted}:{path or 'Class'}")
    if not path.isidentifier() or not all(map(str.isidentifier, module.split("."))):
        raise OneiroError(f"world '{target}' is not an import path; write package.module:Class")
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.append(here)  # behind everything that is installed
    world = _require_class(target, plugins.resolve(target, f"world '{target}'"), target)
    own = getattr(world, "name", world.__name__.lower())
    register(own, world)
    return f"{own}:{variant}" if variant else own


def names(variants: bool = False) -> list[str]:
    """Every known world, sorted; with its variants (`sokoban:harder`) if asked, which imports them all.

    A world of another package that cannot be imported is then left out with a warning.
    """
    if not variants:
        return sorted(_targets())
    return [
        full for name, world in classes().items() for full in (name, *(f"{name}:{v}" for v in sorted(world.variants)))
    ]


def classes() -> dict[str, type[World]]:
    """Every world that can be imported, by name; a warning for each that cannot."""
    worlds = {}
    for name in names():
        try:
            worlds[name] = world_class(name)
        except OneiroError as error:
            plugins.skip(error)
    return worlds


def world_class(name: str) -> type[World]:
    """The class behind a name, with or without a variant."""
    base = name.partition(":")[0]
    targets = _targets()
    if base not in targets:
        if base in WEB_WORLDS:
            raise OneiroError(f"world '{base}' needs {plugins.WEB}; {plugins.GET_WEB}")
        own = "; a class of your own gets its name by an entry point (docs/extending.md)" if "." in base else ""
        raise OneiroError(f"no world is called '{base}'{own or nearest(base, targets)} (`oneiro worlds` lists them)")
    target = targets[base]
    candidate = plugins.resolve(target, f"world '{base}'") if isinstance(target, str) else target
    return _require_class(base, candidate, str(target))


def config_for(name: str, settings: Mapping[str, Any] | None = None) -> WorldConfig:
    """The world's defaults, then the variant's settings, then `settings`. A wrong key or value is one clear line."""
    world = world_class(name)
    variant = name.partition(":")[2]
    if variant and variant not in world.variants:
        raise OneiroError(f"world '{world.name}' has no variant '{variant}'{nearest(variant, world.variants)}")
    try:
        return world.Config(**{**(world.variants[variant] if variant else {}), **(settings or {})})
    except ValidationError as error:
        raise OneiroError(_explain(world, error)) from error


def make(name: str, /, **settings: Any) -> World:
    """A world by name, with settings over its defaults: `make("frozen-lake", size=6)`, `make("sokoban:harder")`."""
    return world_class(name)(config_for(name, settings))


def _targets() -> dict[str, str | type[World]]:
    return plugins.with_offered("worlds", WORLDS)


def _require_class(name: str, candidate: Any, target: str) -> type[World]:
    if not (isinstance(candidate, type) and issubclass(candidate, World)):
        raise OneiroError(f"world '{name}': {target} is not a World class")
    return candidate


def _explain(world: type[World], error: ValidationError) -> str:
    """The first mistake of a validation error as one line."""
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"])
    if first["type"] == "extra_forbidden":
        fields = world.Config.model_fields
        if len(first["loc"]) == 1:
            return f"world '{world.name}' has no setting '{where}'{nearest(where, fields)}"
        inner = getattr(fields[str(first["loc"][0])].annotation, "model_fields", {})
        return f"world '{world.name}' has no setting '{where}'{nearest(str(first['loc'][-1]), inner)}"
    reason = first["msg"].removeprefix("Value error, ")
    return f"world '{world.name}': {where + ': ' if where else ''}{reason}"


GYMNASIUM_NAME = re.compile(r"[\w.-]+")  # what gymnasium takes for the name of an environment


BATCHED = ("frozen-lake", "sokoban", "sudoku")
"""Worlds that `gymnasium.make_vec` steps as arrays; of the others it steps one after the other."""


def announce(name: str) -> None:
    """Let gymnasium know the world `name` as `oneiro/NAME-v0`. The world's module is imported when it is made."""
    identity = f"oneiro/{name}-v0"
    if gymnasium is not None and GYMNASIUM_NAME.fullmatch(name) and identity not in gymnasium.registry:
        together = "oneiro.adapters.gymnasium:open_vector" if name in BATCHED else None
        gymnasium.register(
            identity, "oneiro.worlds.registry:open_world", vector_entry_point=together, kwargs={"world": name}
        )


def open_world(world: str, variant: str | None = None, render_mode: str | None = None, **settings: Any) -> World:
    """What `gymnasium.make` calls: a world with settings over those of its variant."""
    modes = World.metadata["render_modes"]
    if render_mode is not None and render_mode not in modes:
        raise OneiroError(f"world '{world}' has no render mode '{render_mode}'{nearest(render_mode, modes)}")
    made = make(f"{world}:{variant}" if variant else world, **settings)
    made.render_mode = render_mode
    return made


class WorldChoice(Settings):
    """`world: frozen-lake`, or `world: {name: frozen-lake, size: 6}`; the other keys are the world's."""

    model_config = ConfigDict(extra="allow", frozen=True)

    name: str
    workers: Workers = 0
    """Where an agent's episodes are played: 0 in this process, N in processes of this machine, `ray` or
    `ray://HOST:PORT?actors=N` in actors of a Ray cluster (`oneiro.runtime.processes`).
    """
    worlds_per_worker: int = Field(1, ge=1)
    """Worlds in each worker. Quick worlds with a large model want many: a GPU answers hundreds of turns at once."""
    worker_timeout_s: float = Field(300.0, gt=0)
    """Seconds that a worker may take to answer; then it is replaced, and the episodes of its worlds are lost."""

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
        return WorldMaker(kind, config, self.workers, self.worker_timeout_s, self.worlds_per_worker)


for _name in names():
    announce(_name)
