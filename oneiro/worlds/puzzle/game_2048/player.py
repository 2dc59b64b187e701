"""A player of 2048: looks two moves ahead and likes boards that are empty, ordered and full of pairs.

Not an optimal one. Between its two moves it expects the likelier new tile, on a few of the empty cells; so a move costs
at most 4 x `CELLS` x 4 boards, whatever the size, and depends on the board alone.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise

from oneiro.worlds.puzzle.game_2048.board import Tiles, possible, slide

LOOKAHEAD_MOVES = 2
"""Moves the player looks ahead; each more costs a branch for every move and every new tile."""
CELLS = 6
"""Empty cells on which it imagines the new tile."""

# What a line is worth: found by playing.
EMPTY, PAIR, DISORDER, SPREAD = 3.0, 2.0, 1.0, 0.4
LOST = -1000.0
"""The worth of a board without moves: below any other."""


def best_way(tiles: Tiles, two_probability: float) -> int | None:
    """The direction to slide to, or None where nothing moves."""
    new = 2 if two_probability >= 0.5 else 4
    ways = possible(tiles)
    return max(ways, key=lambda way: _mean_worth(slide(tiles, way)[0], new)) if ways else None


def _mean_worth(tiles: Tiles, new: int) -> float:
    """The mean worth after a new tile and the best next move."""
    empty = [cell for cell, tile in enumerate(tiles.cells) if not tile]
    some = empty[:: -(-len(empty) // CELLS)]
    return sum(_after_best(tiles, cell, new) for cell in some) / len(some)


def _after_best(tiles: Tiles, cell: int, new: int) -> float:
    board = Tiles(tiles.size, (*tiles.cells[:cell], new, *tiles.cells[cell + 1 :]))
    return max((worth(slide(board, way)[0]) for way in possible(board)), default=LOST)


def worth(tiles: Tiles) -> float:
    """How promising a board is: the sum over its rows and columns."""
    size, cells = tiles.size, tiles.cells
    rows = sum(_line_worth(cells[first : first + size]) for first in range(0, size * size, size))
    return rows + sum(_line_worth(cells[column::size]) for column in range(size))


@lru_cache(maxsize=65536)
def _line_worth(line: tuple[int, ...]) -> float:
    """Empty cells and equal neighbours count for a line; against it, how far it is from rising or falling throughout,
    and many middling tiles where one large one could be.
    """
    ranks = [tile.bit_length() - 1 if tile else 0 for tile in line]
    steps = [after**2 - before**2 for before, after in pairwise(ranks)]
    disorder = min(sum(step for step in steps if step > 0), -sum(step for step in steps if step < 0))
    filled = [rank for rank in ranks if rank]
    pairs = sum(a == b for a, b in pairwise(filled))
    return EMPTY * ranks.count(0) + PAIR * pairs - DISORDER * disorder - SPREAD * sum(rank**2 for rank in ranks)
