"""What planners need of each world: its own reward rule on predicted states, the true state, and the actions to try."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from oneiro.agents.planning.base import EveryAction, Judged
from oneiro.runtime.errors import OneiroError
from oneiro.tasks.rules.physics import PhysicsSituation
from oneiro.tasks.rules.physics_dynamics import read_tiles
from oneiro.tasks.textgame.rollout import possible
from oneiro.worlds.base import World
from oneiro.worlds.grid.frozen_lake.views import Lake
from oneiro.worlds.grid.sokoban.views import SokobanRoom
from oneiro.worlds.rules.physics import TARGET
from oneiro.worlds.textgame.games import game_named
from oneiro.worlds.textgame.scene import is_points
from oneiro.worlds.textgame.state import Situation
from oneiro.worlds.textgame.world import TextGame

HALFWAY = 0.5
"""What a room is worth at most that is not solved."""


def every_action(world: World) -> EveryAction[str]:
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


def room_rule(state: PhysicsSituation, target: int | None) -> Judged:
    """The goal is worth 1; with a target, that tile is worth 1 and the goal ends the episode in vain."""
    tiles = read_tiles(state.text)
    if target is not None and tiles.walker == target:
        return Judged(1.0, True)
    if tiles.glyphs[tiles.walker] == TARGET:
        return Judged(1.0 if target is None else -1.0, True)
    return Judged(0.0)


def observe_game(world: World) -> Situation:
    """The true state of a text game, without a command."""
    assert isinstance(world, TextGame)
    return world.situation("")


def score_rule(state: Situation, task: Any = None) -> Judged:
    """The share of the highest score that is predicted; a won game is worth 1 and a lost one -1."""
    score = state.score
    if score.get("gameWon") is True:
        return Judged(1.0, True)
    if score.get("gameOver") is True:
        return Judged(-1.0, True)
    points: Any = score.get("score")
    share = float(points) / game_named(state.game).max_score if is_points(points) else 0.0
    return Judged(min(0.99, max(-0.99, share)))


def possible_commands() -> EveryAction[Situation]:
    """All commands that can be done in a predicted state, by the game's own checks of what a command needs."""
    return EveryAction(lambda state: list(possible(game_named(state.game))(state)))
