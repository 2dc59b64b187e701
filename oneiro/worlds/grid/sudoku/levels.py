"""Sudoku puzzles with exactly one solution: shuffle a full grid, take digits away while the solution stays unique."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import isqrt

import numpy as np
from numpy.typing import NDArray

from oneiro.worlds.base import NEITHER, in_split, level_key
from oneiro.worlds.levels import symmetries


@dataclass(frozen=True)
class Puzzle:
    """Cells row by row, 0 for empty."""

    size: int
    givens: tuple[int, ...]
    solution: tuple[int, ...]

    @cached_property
    def key(self) -> str:
        """Puzzles share a split if their solutions are equal up to digits, rotation and mirror, and also if they are
        themselves equal up to all symmetries. A 4x4 puzzle that would belong to both splits so is in neither.
        """
        name, held_out = level_key(f"sudoku {self.givens}"), solution_held_out(self.solution)
        if held_out != self.held_out:
            return name[:-1] + NEITHER
        return name[:-1] + ("0" if held_out else "1")

    @cached_property
    def canonical(self) -> str:
        """The puzzle's name up to symmetry."""
        return level_key(f"sudoku {self.form}")[:-1] + ("0" if self.held_out else "1")

    @cached_property
    def form(self) -> tuple[bytes, bytes]:
        """The puzzle's canonical form: that of its solution, and which cells of it are given."""
        least, ways = solution_form(self.solution)
        images = np.array(self.givens, bool)[ways].tobytes()
        return least, min(images[at : at + len(least)] for at in range(0, len(images), len(least)))

    @cached_property
    def held_out(self) -> bool:
        """Whether the puzzle, up to all symmetries, is kept for evaluation.

        The 4x4 solutions held out are equal to others when rows are exchanged, for example. So of the puzzles on these
        and on the others one half is kept from training, and the other half from evaluation.
        """
        if self.size > 4:
            return solution_held_out(self.solution)
        return self.form[0] == solution_form(HELD_OUT)[0] and int(level_key(f"sudoku {self.form}")[-1], 16) % 2 == 0


HELD_OUT = (1, 2, 3, 4, 3, 4, 1, 2, 2, 3, 4, 1, 4, 1, 2, 3)
"""A 4x4 solution kept for evaluation, with all that follow from it by digits, rotation and mirror: 96 of 288.

There are five such sets of solutions (24, 24, 48, 96 and 96), too few to leave it to a hash which of them is held out.
"""


def split_key(solution: tuple[int, ...]) -> str:
    """Names a finished grid up to digits, rotation and mirror: known before the costly part of making a puzzle."""
    square = symmetries(isqrt(len(solution)), isqrt(len(solution)))
    return f"sudoku {min(image.tobytes() for image in relabel(solution, square)).hex()}"


@lru_cache(maxsize=512)
def solution_held_out(solution: tuple[int, ...]) -> bool:
    """Whether puzzles with this solution are kept from training."""
    if len(solution) == len(HELD_OUT):
        return split_key(solution) == split_key(HELD_OUT)
    return in_split(level_key(split_key(solution)), "eval")


@lru_cache(maxsize=512)
def solution_form(solution: tuple[int, ...]) -> tuple[bytes, NDArray[np.int64]]:
    """A solution's canonical form under `rearrangements`, and those of them that lead to it [ways, cells]."""
    ways = rearrangements(isqrt(len(solution)))
    images = [image.tobytes() for image in relabel(solution, ways)]
    least = min(images)
    return least, ways[[image == least for image in images]]


def relabel(solution: tuple[int, ...], ways: NDArray[np.int64]) -> NDArray[np.uint8]:
    """[ways, cells]: the solution with its cells rearranged, and its digits renamed so that row one counts from 0."""
    images = np.array(solution)[ways]
    names = images[:, : isqrt(len(solution))].argsort(axis=1)
    return np.take_along_axis(names, images - 1, axis=1).astype(np.uint8)


@lru_cache
def rearrangements(size: int) -> NDArray[np.int64]:
    """[ways, cells]: for each symmetry of the board, the cell that comes to each place.

    On a 4x4 board these are all 128: exchanges of bands, stacks, rows and columns that keep the boxes, and the mirror
    at the diagonal. Of the 3,359,232 of a 9x9 board these are the eight of the square; nobody draws so many puzzles
    that two are equal by one of the others.
    """
    board = np.arange(size * size).reshape(size, size)
    if size > 4:
        return symmetries(size, size)
    lines = [[0, 1, 2, 3], [1, 0, 2, 3], [0, 1, 3, 2], [1, 0, 3, 2]]
    lines += [line[2:] + line[:2] for line in lines]
    images = [board[np.ix_(rows, columns)] for rows in lines for columns in lines]
    return np.stack([image.ravel() for image in (*images, *(image.T for image in images))])


def draw(rng: np.random.Generator, size: int, clues: int, split: str | None) -> Puzzle | None:
    """A puzzle with that many clues; None if the grid is of the other split or cannot be thinned out that far."""
    solution = full_grid(rng, size)
    # Before clues are taken away, which is the slow part.
    if split is not None and solution_held_out(solution) != (split == "eval"):
        return None
    cells = list(solution)
    left = size * size
    for cell in rng.permutation(size * size).tolist():
        if left == clues:
            break
        digit, cells[cell] = cells[cell], 0
        # Another digit that also works here is a second solution, so this clue has to stay.
        if any(solvable(cells, size, cell, other) for other in range(1, size + 1) if other != digit):
            cells[cell] = digit
        else:
            left -= 1
    return Puzzle(size, tuple(cells), solution) if left == clues else None


def full_grid(rng: np.random.Generator, size: int) -> tuple[int, ...]:
    """A finished grid: any of the 288 of a 4x4 board, else the cyclic pattern with its parts and digits shuffled."""
    if size == 4:
        return small_grids()[int(rng.integers(len(small_grids())))]
    box = isqrt(size)

    def lines() -> list[int]:
        return [box * band + line for band in rng.permutation(box).tolist() for line in rng.permutation(box).tolist()]

    digits = (rng.permutation(size) + 1).tolist()
    rows, columns = lines(), lines()
    return tuple(digits[(box * (row % box) + row // box + column) % size] for row in rows for column in columns)


@lru_cache(maxsize=1)
def small_grids() -> list[tuple[int, ...]]:
    """Every finished 4x4 grid, in order."""
    return sorted(solutions((0,) * 16, 4, limit=289))


def solvable(cells: Sequence[int], size: int, cell: int, digit: int) -> bool:
    """Whether the puzzle has a solution with `digit` in the empty `cell`."""
    if any(cells[peer] == digit for peer in peers(size)[cell]):
        return False
    tried = list(cells)
    tried[cell] = digit
    return bool(solutions(tried, size, 1))


def solutions(cells: Sequence[int], size: int, limit: int = 2) -> list[tuple[int, ...]]:
    """Up to `limit` solutions of a grid without conflicts: depth first, on the cell with the fewest choices."""
    grid, solved = list(cells), []
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
                # A cell without a choice, or with one, cannot be beaten.
                if open_.bit_count() <= 1:
                    break
        if best < 0:
            solved.append(tuple(grid))
            return
        while choices and len(solved) < limit:
            lowest = choices & -choices
            choices ^= lowest
            grid[best] = lowest.bit_length() - 1
            search()
        grid[best] = 0

    search()
    return solved


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
