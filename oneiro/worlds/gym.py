"""Worlds under their names in gymnasium: `gymnasium.make("oneiro/frozen-lake-v0")`, after `import oneiro.worlds`."""

from __future__ import annotations

import re
from typing import Any

try:
    import gymnasium
except ImportError:  # without it worlds play, and nobody can ask for them by `gymnasium.make`
    gymnasium = None  # type: ignore[assignment]

from oneiro.runtime.errors import OneiroError, nearest
from oneiro.worlds.base import World

NAME = re.compile(r"[\w.-]+")
"""What gymnasium takes for the name of an environment."""


BATCHED = ("frozen-lake", "sokoban", "sudoku")
"""Worlds that `gymnasium.make_vec` steps as arrays; of the others it steps one after the other."""


def announce(name: str) -> None:
    """Let gymnasium know the world `name` as `oneiro/NAME-v0`. The world's module is imported when it is made."""
    identity = f"oneiro/{name}-v0"
    if gymnasium is not None and NAME.fullmatch(name) and identity not in gymnasium.registry:
        together = "oneiro.adapters.gymnasium:open_vector" if name in BATCHED else None
        gymnasium.register(
            identity, "oneiro.worlds.gym:open_world", vector_entry_point=together, kwargs={"world": name}
        )


def open_world(world: str, variant: str | None = None, render_mode: str | None = None, **settings: Any) -> World:
    """What `gymnasium.make` calls: a world with settings over those of its variant."""
    from oneiro.worlds.registry import make  # which announces its names here

    modes = World.metadata["render_modes"]
    if render_mode is not None and render_mode not in modes:
        raise OneiroError(f"world '{world}' has no render mode '{render_mode}'{nearest(render_mode, modes)}")
    made = make(f"{world}:{variant}" if variant else world, **settings)
    made.render_mode = render_mode
    return made
