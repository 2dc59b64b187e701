"""A world small enough to work out by hand: a corridor, and a model of it that counts what it is asked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from oneiro.agents.planning.base import EveryAction, Judged, Root
from oneiro.agents.planning.values import RuleValue
from oneiro.tasks.base import Dynamics, Flaw, Imagined, Malformed

TOKENS = 3
"""What a prediction costs."""

#   S . . #      a dead end to the left, the goal five moves to the right and down
#   # # . .
#   # # # G
MAZE = ("S..#", "##..", "###G")
MOVES = {"left": (0, -1), "down": (1, 0), "right": (0, 1), "up": (-1, 0)}
START = (0, 0)
WAY = ("right", "right", "down", "right", "down")


class Maze(Dynamics[tuple[int, int]]):
    """The true maze; `broken` pairs are answered with something unreadable."""

    def __init__(self, broken: Sequence[tuple[tuple[int, int], str]] = ()) -> None:
        self.broken, self.asked, self.calls = set(broken), list[tuple[tuple[int, int], str]](), 0

    def predict(
        self, pairs: Sequence[tuple[tuple[int, int], str]], outcomes: int = 1, seed: int = 0
    ) -> list[list[Imagined[tuple[int, int]]]]:
        self.calls += 1
        self.asked += pairs
        return [[Imagined(self._step(*pair), TOKENS)] * outcomes for pair in pairs]

    def _step(self, state: tuple[int, int], action: str) -> tuple[int, int] | Malformed:
        if (state, action) in self.broken:
            return Malformed(Flaw.SHAPE)
        down, right = MOVES[action]
        row, column = state[0] + down, state[1] + right
        inside = 0 <= row < len(MAZE) and 0 <= column < len(MAZE[0])
        return (row, column) if inside and MAZE[row][column] != "#" else state


def rule(state: tuple[int, int], task: Any) -> Judged:
    """The goal of the picture, or the cell that a task names."""
    reached = state == task if task is not None else MAZE[state[0]][state[1]] == "G"
    return Judged(1.0, True) if reached else Judged(0.0)


PROPOSE = EveryAction[tuple[int, int]](lambda state: tuple(MOVES))
VALUE = RuleValue(rule)
ROOT = Root(START)
