"""The board of 2048: sliding, merging, new tiles."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np

WORDS = ("Up", "Right", "Down", "Left")


class Tiles(NamedTuple):
    """A state: tiles row by row, 0 for empty."""

    size: int
    cells: tuple[int, ...]


def slide(tiles: Tiles, way: int) -> tuple[Tiles, int]:
    """The board after sliding up, right, down or left, before the new tile; and the points of its merges."""
    cells, points = list(tiles.cells), 0
    for line in _lines(tiles.size, way):
        moved, gained = merge_line(tuple(cells[cell] for cell in line))
        points += gained
        for cell, tile in zip(line, moved, strict=True):
            cells[cell] = tile
    return Tiles(tiles.size, tuple(cells)), points


@lru_cache(maxsize=65536)
def merge_line(line: tuple[int, ...]) -> tuple[tuple[int, ...], int]:
    """A line slid towards its first cell, each tile merging at most once; and the points."""
    tiles: list[int] = []
    points, fresh = 0, False
    for tile in line:
        if not tile:
            continue
        if tiles and tiles[-1] == tile and not fresh:
            tiles[-1], fresh = 2 * tile, True
            points += 2 * tile
        else:
            tiles.append(tile)
            fresh = False
    return (*tiles, *(0,) * (len(line) - len(tiles))), points


def possible(tiles: Tiles) -> list[int]:
    """The directions in which something moves."""
    return [way for way in range(4) if slide(tiles, way)[0] != tiles]


def with_new_tile(tiles: Tiles, rng: np.random.Generator, two_probability: float) -> Tiles:
    """A 2 or a 4 on a random empty cell."""
    empty = [cell for cell, tile in enumerate(tiles.cells) if not tile]
    cell = empty[int(rng.integers(len(empty)))]
    tile = 2 if rng.random() < two_probability else 4
    return Tiles(tiles.size, (*tiles.cells[:cell], tile, *tiles.cells[cell + 1 :]))


@lru_cache
def _lines(size: int, way: int) -> tuple[tuple[int, ...], ...]:
    """The lines of cells that slide, each starting at the edge it slides to."""
    rows = [tuple(size * row + column for column in range(size)) for row in range(size)]
    columns = list(zip(*rows, strict=True))
    lines = columns if WORDS[way] in ("Up", "Down") else rows
    return tuple(line[::-1] if WORDS[way] in ("Right", "Down") else line for line in lines)
