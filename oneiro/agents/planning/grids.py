"""Planning in grid worlds: the worlds' own reward rules on predicted states, and what a planner needs besides."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from oneiro.agents.planning.base import EveryAction, Judged
from oneiro.runtime.errors import OneiroError
from oneiro.worlds.base import World
from oneiro.worlds.grid.frozen_lake.views import Lake
from oneiro.worlds.grid.sokoban.views import SokobanRoom

HALFWAY = 0.5
"""What a room is worth at most that is not solved."""


def every_action(world: World) -> EveryAction[str]:
    """All words of a world."""
    words = world.actions or ()
    return EveryAction(lambda state: words)


def grid_rule(world: World) -> Callable[[str, Any], Judged]:
    """The reward rule of a grid world on a state's text. On a lake a task may name another goal: a cell's number."""

    def rule(state: str, task: Any) -> Judged:
        grid = world.parse(state)
        if isinstance(grid, Lake):
            return lake_rule(grid, task)
        if isinstance(grid, SokobanRoom):
            share = grid.stored / max(1, grid.targets.bit_count())
            return Judged(1.0, True) if grid.solved else Judged(HALFWAY * share)
        return Judged(0.0)

    if world.name not in ("frozen-lake", "sokoban"):
        raise OneiroError(f"planning knows no reward rule of world '{world.name}'; use frozen-lake or sokoban")
    return rule


def lake_rule(lake: Lake, target: int | None = None) -> Judged:
    """The goal is worth 1 and a hole -1; with a target, that cell is worth 1 and the goal ends the episode in vain."""
    if target is not None and lake.player == target and not lake.fallen:
        return Judged(1.0, True)
    if lake.fallen:
        return Judged(-1.0, True)
    if lake.arrived:
        return Judged(1.0 if target is None else -1.0, True)
    return Judged(0.0)
