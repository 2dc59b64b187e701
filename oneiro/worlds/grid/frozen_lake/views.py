"""The lake as text: each view a pure function of the state, with its inverse where the text says everything."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from pydantic import Field

from oneiro.worlds.grid.glyphs import Glyphs, cells_drawn, draw_cells, grid_within, place, views_of

ICE, HOLE, GOAL, PLAYER, FALLEN, ARRIVED = range(6)


class LakeGlyphs(Glyphs):
    """The characters of the lake, in the order of the cell codes."""

    ice: str = Field(default="_", description="ice")
    hole: str = Field(default="O", description="hole")
    goal: str = Field(default="G", description="goal")
    player: str = Field(default="P", description="you")
    fallen: str = Field(default="X", description="you in a hole")
    arrived: str = Field(default="√", description="you on the goal")


class Lake(NamedTuple):
    """A state. Cells are numbered row by row."""

    size: int
    holes: frozenset[int]
    goal: int
    player: int

    @property
    def arrived(self) -> bool:
        return self.player == self.goal

    @property
    def fallen(self) -> bool:
        return self.player in self.holes


def grid(between: str, lake: Lake, start: int, glyphs: LakeGlyphs) -> str:
    """The raw grid, one character a cell. With a space between cells small tokenizers have one token a cell."""
    return draw_cells(codes(lake), lake.size, glyphs, between)


def coordinates(lake: Lake, start: int, glyphs: LakeGlyphs) -> str:
    """One sentence: `Player (3,2); holes at (0,1) and (1,0); goal at (2,0).`"""
    holes = [place(cell, lake.size) for cell in sorted(lake.holes)]
    if not holes:
        listed = "no holes"
    elif len(holes) == 1:
        listed = f"hole at {holes[0]}"
    else:
        listed = f"holes at {', '.join(holes[:-1])} and {holes[-1]}"
    return f"Player {place(lake.player, lake.size)}; {listed}; goal at {place(lake.goal, lake.size)}."


def grid_coord(lake: Lake, start: int, glyphs: LakeGlyphs) -> str:
    """RAGEN's layout of the same name: a list of coordinates, then the grid."""
    player = "Player on goal" if lake.arrived else "Player in hole" if lake.fallen else "Player"
    lines = [
        "Coordinates: ",
        f"Board size: {lake.size} rows x {lake.size} cols (zero-indexed).",
        f"Start: {place(start, lake.size, ', ')}",
        f"Goal: {place(lake.goal, lake.size, ', ')}",
        f"{player}: {place(lake.player, lake.size, ', ')}",
    ]
    if lake.holes:
        lines.append(f"Holes: {', '.join(place(cell, lake.size, ', ') for cell in sorted(lake.holes))}")
    return "\n".join([*lines, "Grid Map: ", grid("", lake, start, glyphs)])


View = Callable[[Lake, int, LakeGlyphs], str]

VIEWS: dict[str, View] = {
    **views_of(grid, coordinates, lambda lake, start, glyphs: (lake.size, lake.size)),
    "grid_coord": grid_coord,
}


def read(view: str, shown: str, size: int, glyphs: LakeGlyphs) -> Lake | None:
    """The state a text shows, or None. A view with more than the grid says things twice, and they must agree."""
    lake = _read_sentence(shown, size) if view == "coordinates" else _read_grid(*grid_within(view, shown), size, glyphs)
    if lake is None or view in ("text", "spaced"):
        return lake
    begun = _START.search(shown)  # named by `grid_coord` alone
    start = int(begun[1]) * size + int(begun[2]) if begun else lake.player
    return lake if VIEWS[view](lake, start, glyphs) == shown else None


def codes(lake: Lake) -> list[int]:
    """The cell codes, row by row."""
    cells = [ICE] * lake.size**2
    for hole in lake.holes:
        cells[hole] = HOLE
    cells[lake.goal] = GOAL
    cells[lake.player] = ARRIVED if lake.arrived else FALLEN if lake.fallen else PLAYER
    return cells


def _read_grid(grid: str, between: str, size: int, glyphs: LakeGlyphs) -> Lake | None:
    cells, width = cells_drawn(grid, glyphs, between) or ([], 0)
    if width != size or len(cells) != size * size:
        return None
    players = [cell for cell, code in enumerate(cells) if code in (PLAYER, FALLEN, ARRIVED)]
    goals = [cell for cell, code in enumerate(cells) if code in (GOAL, ARRIVED)]
    if len(players) != 1 or len(goals) != 1:
        return None
    holes = frozenset(cell for cell, code in enumerate(cells) if code in (HOLE, FALLEN))
    return Lake(size, holes, goals[0], players[0])


_PLACE = r"\(([0-9]{1,2}),([0-9]{1,2})\)"
_START = re.compile(r"^Start: \(([0-9]{1,2}), ([0-9]{1,2})\)$", re.MULTILINE)
_SENTENCE = re.compile(rf"Player {_PLACE}; (no holes|holes? at [(),0-9 and]*); goal at {_PLACE}\.")


def _read_sentence(sentence: str, size: int) -> Lake | None:
    match = _SENTENCE.fullmatch(sentence)
    if match is None:
        return None

    def cell(row: str, column: str) -> int:
        return int(row) * size + int(column) if int(row) < size and int(column) < size else -1

    player, goal = cell(match[1], match[2]), cell(match[4], match[5])
    holes = frozenset(cell(row, column) for row, column in re.findall(_PLACE, match[3]))
    if min(player, goal, *holes, 0) < 0:
        return None
    return Lake(size, holes, goal, player)
