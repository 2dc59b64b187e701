"""Sudoku as text: each view a pure function of the board, with its inverse where the text says everything."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from oneiro.worlds.grid.glyphs import misplace, views_of


class SudokuBoard(NamedTuple):
    """A state: cells row by row, 0 for empty."""

    size: int
    cells: tuple[int, ...]

    @property
    def rows(self) -> list[tuple[int, ...]]:
        return [self.cells[first : first + self.size] for first in range(0, len(self.cells), self.size)]


def text(board: SudokuBoard) -> str:
    """All rows on one line, each after a bar: `| 3 2 4 1 | . 4 . . | ...`."""
    return "".join(f"| {_row(row)} " for row in board.rows)


def write_spaced(board: SudokuBoard) -> str:
    """One line a row, a space between cells."""
    return "\n".join(_row(row) for row in board.rows)


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


def wrong_coordinates(board: SudokuBoard) -> str:
    """The sentence with every cell somewhere else: what an ablation shows."""
    return misplace(coordinates(board), board.size, board.size, first=1)


View = Callable[[SudokuBoard], str]

VIEWS: dict[str, View] = views_of(text, write_spaced, coordinates, wrong_coordinates)


def read(view: str, shown: str, size: int) -> SudokuBoard | None:
    """The board a text shows, or None; the list of empty cells alone shows no board."""
    if view == "coordinates" or len(shown) > 100 * size * size:
        return None
    grid = shown.rpartition("\n")[0] if "+" in view else shown
    cells = tuple(0 if mark == "." else int(mark) for mark in re.findall(r"[0-9.]", grid))
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


def _row(row: tuple[int, ...]) -> str:
    return " ".join(str(digit) if digit else "." for digit in row)
