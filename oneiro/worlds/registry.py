"""Names to worlds. A world's module is imported when it is first asked for, so a name costs nothing.

Other packages add worlds through the entry-point group `oneiro.worlds` (`name = "package.module:Class"`), or by
`register`.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from functools import cache
from importlib.metadata import entry_points
from typing import Any

from pydantic import ValidationError

from oneiro.errors import OneiroError, nearest
from oneiro.worlds.base import World, WorldConfig

WORLDS: dict[str, str] = {
    "2048": "oneiro.worlds.puzzle.game_2048.world:Game2048",
    "bandit": "oneiro.worlds.puzzle.bandit:Bandit",
    "countdown": "oneiro.worlds.puzzle.countdown:Countdown",
    "cube": "oneiro.worlds.puzzle.cube.world:Cube",
    "frozen-lake": "oneiro.worlds.grid.frozen_lake.world:FrozenLake",
    "math": "oneiro.worlds.puzzle.math_qa:MathQA",
    "robot": "oneiro.worlds.robot.drawer:Robot",
    "sokoban": "oneiro.worlds.grid.sokoban.world:Sokoban",
    "sudoku": "oneiro.worlds.grid.sudoku.world:Sudoku",
    "textgame": "oneiro.worlds.textgame.world:TextGame",
    "webshop": "oneiro.worlds.shop.webshop:WebShop",
}
"""Name -> `module:Class` of the worlds that come with the package, and of those registered by hand."""


def register(name: str, target: str) -> None:
    """Make `name` stand for the world class at `target`, written `package.module:Class`."""
    if ":" in name:
        raise OneiroError(f"a world cannot be called '{name}': the colon separates a world from its variant")
    WORLDS[name] = target


def names(variants: bool = False) -> list[str]:
    """Every known world, sorted; with its variants (`sokoban:harder`) if asked, which imports them all."""
    known = sorted(_targets())
    if not variants:
        return known
    return [full for name in known for full in (name, *(f"{name}:{v}" for v in sorted(world_class(name).variants)))]


def world_class(name: str) -> type[World]:
    """The class behind a name, with or without a variant."""
    base = name.partition(":")[0]
    targets = _targets()
    if base not in targets:
        raise OneiroError(f"no world is called '{base}'{nearest(base, targets)}")
    module, _, attribute = targets[base].partition(":")
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise OneiroError(f"world '{base}' cannot be loaded from {targets[base]}: {error}") from error
    if not (isinstance(found, type) and issubclass(found, World)):
        raise OneiroError(f"world '{base}': {targets[base]} is not a World class")
    return found


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


def _targets() -> dict[str, str]:
    return _plugins() | WORLDS


@cache
def _plugins() -> dict[str, str]:
    """Worlds other packages offer; read once, scanning installed packages takes milliseconds."""
    return {point.name: point.value for point in entry_points(group="oneiro.worlds")}


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
