"""What a predicted room under drawn physics is worth."""

from __future__ import annotations

from oneiro.agents.planning.base import Judged
from oneiro.tasks.rules.physics import PhysicsSituation
from oneiro.tasks.rules.physics_dynamics import read_tiles
from oneiro.worlds.rules.physics import TARGET


def goal_rule(state: PhysicsSituation, target: int | None) -> Judged:
    """The goal is worth 1; with a target, that tile is worth 1 and the goal ends the episode in vain."""
    tiles = read_tiles(state.text)
    if target is not None and tiles.walker == target:
        return Judged(1.0, True)
    if tiles.glyphs[tiles.walker] == TARGET:
        return Judged(1.0 if target is None else -1.0, True)
    return Judged(0.0)
