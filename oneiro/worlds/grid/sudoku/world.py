"""Sudoku: write digits into the empty cells until every row, column and box has each digit once.

SPA's rules: a digit that conflicts is refused, any other is written and may be overwritten later; the only reward is 1
for the finished board. Puzzles have one solution, and the default budget leaves room for mistakes.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from pydantic import Field, model_validator

from oneiro.worlds.base import Step, World, draw_level
from oneiro.worlds.grid.glyphs import grid_within, views_of
from oneiro.worlds.grid.sudoku.levels import Puzzle, draw, peers, solutions
from oneiro.worlds.levels import PackConfig, pick_level

# A board as text: each view a pure function, with its inverse where the text says everything --------------------------


class SudokuBoard(NamedTuple):
    """A state: cells row by row, 0 for empty."""

    size: int
    cells: tuple[int, ...]

    @property
    def rows(self) -> list[tuple[int, ...]]:
        return [self.cells[first : first + self.size] for first in range(0, len(self.cells), self.size)]


def grid(between: str, board: SudokuBoard) -> str:
    """One line a row, with a space between cells; else all rows on one line: `| 3 2 4 1 | . 4 . . | ...`."""
    rows = [" ".join(str(digit) if digit else "." for digit in row) for row in board.rows]
    return "\n".join(rows) if between else "".join(f"| {row} " for row in rows)


def coordinates(board: SudokuBoard) -> str:
    """The empty cells as one sentence; rows and columns count from 1."""
    places = [
        f"({cell // board.size + 1},{cell % board.size + 1})" for cell, digit in enumerate(board.cells) if not digit
    ]
    if not places:
        return "There are no empty positions left."
    if len(places) == 1:
        return f"Empty position to be filled is at {places[0]}."
    return f"Empty positions to be filled are at {', '.join(places)}."


View = Callable[[SudokuBoard], str]

VIEWS: dict[str, View] = views_of(grid, coordinates, lambda board: (board.size, board.size), first=1)


def read(view: str, shown: str, size: int) -> SudokuBoard | None:
    """The board a text shows, or None; the list of empty cells alone shows no board."""
    if view == "coordinates" or len(shown) > 100 * size * size:
        return None
    marks = re.findall(r"[0-9.]", grid_within(view, shown)[0])
    cells = tuple(0 if mark == "." else int(mark) for mark in marks)
    if len(cells) != size * size or max(cells) > size:
        return None
    board = SudokuBoard(size, cells)
    return board if VIEWS[view](board) == shown else None


_R, _C, _V = (f"(?P<{name}>[0-9]{{1,2}})" for name in "rcv")
_ACTIONS = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        rf"\(?{_R}(?:,| ) ?{_C}(?:,| ) ?{_V}\)?",
        rf"\({_R}, ?{_C}\) ?(?:=|:|->|to) ?{_V}",
        rf"(?:place|put|write) {_V} (?:at|in|into) row {_R},? (?:and )?col(?:umn)? {_C}",
        rf"(?:place|put|write) {_V} (?:at|in|into) \({_R}, ?{_C}\)",
        rf"row {_R},? col(?:umn)? {_C},? (?:value|digit) {_V}",
    )
)


def read_action(action: str, size: int) -> tuple[int, int] | None:
    """Cell and digit of `r,c,v` (from 1) or of one of its wordings; None if it is no move on this board."""
    words = " ".join(action[:200].split()).rstrip(".")
    for pattern in _ACTIONS:
        if match := pattern.fullmatch(words):
            row, column, digit = (int(match[name]) for name in "rcv")
            inside = all(1 <= number <= size for number in (row, column, digit))
            return ((row - 1) * size + column - 1, digit) if inside else None
    return None


# The world ------------------------------------------------------------------------------------------------------------

CLUES = {4: 10, 9: 36}
FEWEST_CLUES = {4: 4, 9: 22}
DETOURS = 500
"""Boards looked at when wrong digits block each other; beyond, the board counts as lost."""

Move = tuple[int, int]
"""A cell and the digit written into it."""


class SudokuConfig(PackConfig):
    """Settings of the puzzle."""

    max_actions: int = Field(default=25, ge=1)
    size: Literal[4, 9] = 4
    """Rows, columns and digits."""
    clues: int | None = None
    """Cells filled at the start; 10 of 16, or 36 of 81, if not given."""

    @model_validator(mode="after")
    def _possible(self) -> SudokuConfig:
        fewest, cells = FEWEST_CLUES[self.size], self.size**2
        if self.clues is not None and not fewest <= self.clues < cells:
            raise ValueError(f"clues must be from {fewest} to {cells - 1} on a {self.size}x{self.size} board")
        return self

    @property
    def given(self) -> int:
        """Clues in effect."""
        return CLUES[self.size] if self.clues is None else self.clues


class Sudoku(World):
    """One puzzle."""

    name = "sudoku"
    Config = SudokuConfig
    views = tuple(VIEWS)
    variants: ClassVar = {
        "medium": {"clues": 9},
        "hard": {"clues": 6},
        "9x9": {"size": 9, "max_actions": 90},
        "coordinates": {"view": "grid+coordinates"},
    }
    config: SudokuConfig

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        self.begin(seed, options)
        self.puzzle = puzzle_for(self.config.size, self.config.given, self.seed, self.split, self.config.pack)
        self.board = SudokuBoard(self.puzzle.size, self.puzzle.givens)
        level = self.puzzle
        return self.render(), {"key": level.key, "canonical": level.canonical, "optimum": level.givens.count(0)}

    def step(self, action: str) -> Step:
        if self.over:
            return self.ended(success=self.board.cells == self.puzzle.solution)
        move = read_action(action, self.board.size)
        if move is None:
            return self.outcome(0.0, valid=False, effective=False)
        before = self.board.cells
        if self._is_allowed(before, move):
            self.board = SudokuBoard(self.board.size, write_digit(before, move))
        solved = self.board.cells == self.puzzle.solution
        return self.outcome(float(solved), done=solved, success=solved, effective=self.board.cells != before)

    def render(self, view: str | None = None) -> str:
        return VIEWS[self.view_named(view)](self.board)

    def parse(self, text: str, view: str | None = None) -> SudokuBoard | None:
        return read(self.view_named(view), text, self.config.size)

    @property
    def state(self) -> SudokuBoard:
        return self.board

    @property
    def instruction(self) -> str:
        size = self.config.size
        box = "2x2" if size == 4 else "3x3"
        return (
            f"Fill the empty cells of this {size}x{size} Sudoku: every row, every column and every {box} box holds "
            f"each digit from 1 to {size} once. A digit that conflicts with another is refused, and so is any change "
            "of a cell that was filled at the start; your own digits may be overwritten.\n"
            "Symbols: . empty cell. Rows and columns are counted from 1 at the top left.\n"
            f"Actions: row,column,digit, for example 2,1,3. You have {self.config.max_actions} actions."
        )

    def random_action(self, rng: np.random.Generator) -> str:
        """A random digit in a random empty cell."""
        # A full, wrong board still needs an action.
        empty = [cell for cell, digit in enumerate(self.board.cells) if not digit] or [0]
        return self._words((int(rng.choice(empty)), int(rng.integers(1, self.board.size + 1))))

    def ceiling(self) -> float:
        moves = self._solution()
        return float(moves is not None and len(moves) <= self.remaining)

    def oracle(self) -> str | None:
        """The next move of a shortest way to the finished board."""
        moves = self._solution()
        return self._words(moves[0]) if moves and len(moves) <= self.remaining and not self.over else None

    def _words(self, move: Move) -> str:
        row, column = divmod(move[0], self.board.size)
        return f"{row + 1},{column + 1},{move[1]}"

    def _is_allowed(self, cells: tuple[int, ...], move: Move) -> bool:
        cell, digit = move
        return not self.puzzle.givens[cell] and all(cells[peer] != digit for peer in peers(self.board.size)[cell])

    def _solution(self) -> list[Move] | None:
        """A shortest list of moves to the finished board, or None.

        A right digit never stands in the way of another right one, so all that fit are written first. Where wrong
        digits block each other in a ring, one of them must make room by becoming another wrong digit.
        """
        queue = deque([(self.board.cells, list[Move]())])
        seen = {self.board.cells}
        best: list[Move] | None = None
        # Breadth first, so that the first finished board needs the fewest detours; settling may still make a later one
        # shorter.
        while queue and len(seen) < DETOURS:
            cells, moves = queue.popleft()
            cells, moves = self._settle(cells, moves)
            if cells == self.puzzle.solution:
                if best is None or len(moves) < len(best):
                    best = moves
                continue
            for move in self._detours(cells):
                after = write_digit(cells, move)
                if after not in seen and (best is None or len(moves) + 1 < len(best)):
                    seen.add(after)
                    queue.append((after, [*moves, move]))
        return best

    def _settle(self, cells: tuple[int, ...], moves: list[Move]) -> tuple[tuple[int, ...], list[Move]]:
        """The board after every right digit that can be written has been."""
        moves = list(moves)
        wrong = [cell for cell, digit in enumerate(cells) if digit != self.puzzle.solution[cell]]
        settled = True
        while settled:
            settled = False
            for cell in wrong:
                move = (cell, self.puzzle.solution[cell])
                if cells[cell] != move[1] and self._is_allowed(cells, move):
                    cells, settled = write_digit(cells, move), True
                    moves.append(move)
        return cells, moves

    def _detours(self, cells: tuple[int, ...]) -> Iterator[Move]:
        """Wrong digits that could become other wrong digits."""
        for cell, digit in enumerate(cells):
            if digit and digit != self.puzzle.solution[cell]:
                for other in range(1, self.board.size + 1):
                    if other != digit and self._is_allowed(cells, (cell, other)):
                        yield cell, other


@lru_cache(maxsize=4096)
def puzzle_for(size: int, clues: int, seed: int, split: str | None, pack: Path | None = None) -> Puzzle:
    """The puzzle of a seed; remembered, because all members of a group ask for the same one."""
    if pack is not None:
        return pick_level(pack, seed, split, puzzle_in, size)
    return draw_level("sudoku", seed, split, lambda rng: draw(rng, size, clues, split), lambda puzzle: puzzle.key)[0]


def puzzle_in(text: str, optimum: int, size: int) -> Puzzle:
    """The puzzle that a pack shows."""
    board = read("text", text, size)
    if board is None or board.cells.count(0) != optimum or not optimum:
        raise ValueError(f"shows no {size}x{size} board with {optimum} empty cells")
    clash = any(
        digit and digit in (board.cells[peer] for peer in peers(size)[cell]) for cell, digit in enumerate(board.cells)
    )
    solved = [] if clash else solutions(board.cells, size)
    if len(solved) != 1:
        raise ValueError(f"has {'more than one solution' if solved else 'no solution'}")
    return Puzzle(size, board.cells, solved[0])


def write_digit(cells: tuple[int, ...], move: Move) -> tuple[int, ...]:
    """The cells after a digit is written."""
    cell, digit = move
    return (*cells[:cell], digit, *cells[cell + 1 :])
