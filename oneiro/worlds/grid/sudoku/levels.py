"""Sudoku puzzles with exactly one solution: shuffle a full grid, take digits away while the solution stays unique."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import isqrt

import numpy as np

from oneiro.worlds.base import in_split, level_key


@dataclass(frozen=True)
class Puzzle:
    """Cells row by row, 0 for empty."""

    size: int
    givens: tuple[int, ...]
    solution: tuple[int, ...]

    @property
    def key(self) -> str:
        """Puzzles with the same solution share a split."""
        return level_key(f"sudoku {self.givens}", family(self.solution))


def family(solution: tuple[int, ...]) -> str:
    """Names a finished grid: known before the costly part of making a puzzle, and enough to tell its split."""
    return f"sudoku {solution}"


def draw(rng: np.random.Generator, size: int, clues: int, split: str | None) -> Puzzle | None:
    """A puzzle with that many clues; None if the grid is of the other split or cannot be thinned out that far."""
    solution = full_grid(rng, size)
    if not in_split(level_key(family(solution)), split):
        return None
    cells = list(solution)
    left = size * size
    for cell in rng.permutation(size * size).tolist():
        if left == clues:
            break
        digit, cells[cell] = cells[cell], 0
        if any(solvable(cells, size, cell, other) for other in range(1, size + 1) if other != digit):
            cells[cell] = digit
        else:
            left -= 1
    return Puzzle(size, tuple(cells), solution) if left == clues else None


def full_grid(rng: np.random.Generator, size: int) -> tuple[int, ...]:
    """A finished grid: the cyclic pattern with bands, stacks, rows, columns and digits shuffled."""
    box = isqrt(size)

    def lines() -> list[int]:
        return [box * band + line for band in rng.permutation(box).tolist() for line in rng.permutation(box).tolist()]

    digits = (rng.permutation(size) + 1).tolist()
    rows, columns = lines(), lines()
    return tuple(digits[(box * (row % box) + row // box + column) % size] for row in rows for column in columns)


def solvable(cells: Sequence[int], size: int, cell: int, digit: int) -> bool:
    """Whether the puzzle has a solution with `digit` in the empty `cell`."""
    if any(cells[peer] == digit for peer in peers(size)[cell]):
        return False
    tried = list(cells)
    tried[cell] = digit
    return bool(solutions(tried, size, 1))


def solutions(cells: Sequence[int], size: int, limit: int = 2) -> list[tuple[int, ...]]:
    """Up to `limit` solutions of a grid without conflicts: depth first, on the cell with the fewest choices."""
    grid, found = list(cells), []
    near = peers(size)
    empty = [cell for cell, digit in enumerate(grid) if not digit]
    every = (1 << size + 1) - 2

    def search() -> None:
        best, choices = -1, 0
        for cell in empty:
            if grid[cell]:
                continue
            used = 0
            for peer in near[cell]:
                used |= 1 << grid[peer]
            open_ = every & ~used
            if best < 0 or open_.bit_count() < choices.bit_count():
                best, choices = cell, open_
                if open_.bit_count() <= 1:
                    break
        if best < 0:
            found.append(tuple(grid))
            return
        while choices and len(found) < limit:
            lowest = choices & -choices
            choices ^= lowest
            grid[best] = lowest.bit_length() - 1
            search()
        grid[best] = 0

    search()
    return found


@lru_cache
def peers(size: int) -> tuple[tuple[int, ...], ...]:
    """For each cell, the other cells of its row, column and box."""
    box = isqrt(size)

    def group(cell: int) -> tuple[int, int, tuple[int, int]]:
        row, column = divmod(cell, size)
        return row, column, (row // box, column // box)

    cells = range(size * size)
    return tuple(
        tuple(
            other
            for other in cells
            if other != cell and any(a == b for a, b in zip(group(cell), group(other), strict=True))
        )
        for cell in cells
    )
