"""Planning in text games: the predicted score as value, and who proposes commands."""

from __future__ import annotations

from typing import Any

from oneiro.agents.planning.base import Judged
from oneiro.agents.planning.proposals import EveryAction
from oneiro.tasks.textgame.rollout import possible
from oneiro.worlds.base import World
from oneiro.worlds.textgame.games import game_named
from oneiro.worlds.textgame.scene import is_points
from oneiro.worlds.textgame.state import Situation
from oneiro.worlds.textgame.world import TextGame


def observe(world: World) -> Situation:
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
