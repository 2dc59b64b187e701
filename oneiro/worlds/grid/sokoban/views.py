"""Sokoban as text: each view a pure function of the room, with its inverse where the text says everything."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

from pydantic import Field

from oneiro.worlds.grid.glyphs import Glyphs, cells_drawn, draw_cells, grid_within, place, views_of

WALL, FLOOR, TARGET, STORED, BOX, PLAYER, PLAYER_ON_TARGET = range(7)


class SokobanGlyphs(Glyphs):
    """The characters of a room, in the order of the cell codes."""

    wall: str = Field(default="#", description="wall")
    floor: str = Field(default="_", description="empty floor")
    target: str = Field(default="O", description="target")
    stored: str = Field(default="√", description="box on a target")
    box: str = Field(default="X", description="box")
    player: str = Field(default="P", description="you")
    player_on_target: str = Field(default="S", description="you on a target")


class SokobanRoom(NamedTuple):
    """A state. Cells are numbered row by row, walls included; sets of cells are integers with one bit for each cell."""

    height: int
    width: int
    floor: int
    targets: int
    boxes: int
    player: int

    @property
    def stored(self) -> int:
        """How many boxes stand on targets."""
        return (self.boxes & self.targets).bit_count()

    @property
    def solved(self) -> bool:
        return self.boxes == self.targets


def grid(between: str, room: SokobanRoom, glyphs: SokobanGlyphs) -> str:
    """The raw grid, one character a cell. With a space between cells small tokenizers have one token a cell."""
    return draw_cells(codes(room), room.width, glyphs, between)


def coordinates(room: SokobanRoom, glyphs: SokobanGlyphs) -> str:
    """One clause for each thing: `Player (P) is at (1,2); box (X) is at (2,2); target (O) is at (3,2).`

    A box on a target is named as both, and so is a target under the player.
    """
    clauses = [f"Player ({glyphs.player}) is at {place(room.player, room.width)}"]
    clauses += [f"box ({glyphs.box}) is at {place(cell, room.width)}" for cell in cells_of(room.boxes)]
    clauses += [f"target ({glyphs.target}) is at {place(cell, room.width)}" for cell in cells_of(room.targets)]
    return "; ".join(clauses) + "."


def coord(room: SokobanRoom, glyphs: SokobanGlyphs) -> str:
    """RAGEN's list of coordinates: only the kinds that occur, walls never."""
    stored = room.boxes & room.targets
    player = 1 << room.player
    kinds = {
        "Targets": room.targets & ~stored & ~player,
        "Boxes": room.boxes & ~stored,
        "Boxes on target": stored,
        "Player": player & ~room.targets,
        "Player on target": player & room.targets,
    }
    lines = [
        f"{kind}: {', '.join(place(cell, room.width, ', ') for cell in cells_of(mask))}"
        for kind, mask in kinds.items()
        if mask
    ]
    return "\n".join([f"Board size: {room.height} rows x {room.width} cols (zero-indexed).", *lines])


def grid_coord(room: SokobanRoom, glyphs: SokobanGlyphs) -> str:
    """RAGEN's layout of the same name: the list of coordinates, then the grid."""
    return f"Coordinates: \n{coord(room, glyphs)}\nGrid Map: \n{grid('', room, glyphs)}"


View = Callable[[SokobanRoom, SokobanGlyphs], str]

VIEWS: dict[str, View] = {
    **views_of(grid, coordinates, lambda room, glyphs: (room.height, room.width)),
    "coord": coord,
    "grid_coord": grid_coord,
}


def read(view: str, shown: str, glyphs: SokobanGlyphs) -> SokobanRoom | None:
    """The room a text shows, or None. What stands beside a grid must agree; views without walls show no room."""
    room = None if view in ("coordinates", "coord") else _read_grid(*grid_within(view, shown), glyphs)
    # Shown again and compared: coordinates beside a grid that say something else make the text no view at all.
    return room if room is not None and VIEWS[view](room, glyphs) == shown else None


def codes(room: SokobanRoom) -> list[int]:
    """The cell codes, row by row."""
    cells = list(_bare(room.height * room.width, room.floor, room.targets))
    for cell in cells_of(room.boxes):
        cells[cell] = STORED if cells[cell] == TARGET else BOX
    cells[room.player] = PLAYER_ON_TARGET if cells[room.player] == TARGET else PLAYER
    return cells


@lru_cache(maxsize=1024)
def _bare(cells: int, floor: int, targets: int) -> tuple[int, ...]:
    """The codes of what never moves; asked for at every step of an episode."""
    return tuple(TARGET if targets >> cell & 1 else FLOOR if floor >> cell & 1 else WALL for cell in range(cells))


def cells_of(mask: int) -> list[int]:
    """The cells of a set, in order."""
    cells = []
    while mask:
        lowest = mask & -mask
        cells.append(lowest.bit_length() - 1)
        mask ^= lowest
    return cells


def _read_grid(grid: str, between: str, glyphs: SokobanGlyphs) -> SokobanRoom | None:
    cells, width = cells_drawn(grid, glyphs, between) or ([], 1)

    def mask(*kinds: int) -> int:
        return sum(1 << cell for cell, code in enumerate(cells) if code in kinds)

    player = mask(PLAYER, PLAYER_ON_TARGET)
    if player.bit_count() != 1:  # a predicted grid may have none, or several
        return None
    floor = mask(FLOOR, TARGET, STORED, BOX, PLAYER, PLAYER_ON_TARGET)
    targets = mask(TARGET, STORED, PLAYER_ON_TARGET)
    return SokobanRoom(len(cells) // width, width, floor, targets, mask(BOX, STORED), player.bit_length() - 1)
