"""How cells look in text: one distinct character for each kind of cell, and the legend that tells what they mean."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Concatenate, ParamSpec

from pydantic import BaseModel, ConfigDict, model_validator

from oneiro.runtime.seeds import generator

State = ParamSpec("State")

MAX_GRID_CHARS = 5000
"""A longer text is no grid: models write anything, and parsing stays bounded."""


class Glyphs(BaseModel):
    """Maps kinds of cell to characters. Subclasses add one field a kind, with what it means as its description."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @model_validator(mode="after")
    def _readable(self) -> Glyphs:
        for kind, mark in zip(type(self).model_fields, self.marks, strict=True):
            if len(mark) != 1 or mark.isspace():
                raise ValueError(f"glyph for '{kind}' must be one visible character, not {mark!r}")
        if len(set(self.marks)) != len(self.marks):
            raise ValueError(f"two kinds of cell share a glyph in {' '.join(self.marks)}")
        return self

    @cached_property
    def marks(self) -> tuple[str, ...]:
        """The characters, in the order of the cell codes."""
        return tuple(getattr(self, kind) for kind in type(self).model_fields)

    @cached_property
    def codes(self) -> dict[str, int]:
        """The code of each character."""
        return {mark: code for code, mark in enumerate(self.marks)}

    def legend(self) -> str:
        """`P you, _ ice, ...`: every glyph with its meaning."""
        kinds = type(self).model_fields.values()
        return ", ".join(f"{mark} {kind.description}" for mark, kind in zip(self.marks, kinds, strict=True))


def draw_cells(cells: Sequence[int], width: int, glyphs: Glyphs, between: str = "") -> str:
    """Cell codes, row by row, as text: one line a row."""
    marks = glyphs.marks
    shown = [marks[code] for code in cells]
    return "\n".join([between.join(shown[first : first + width]) for first in range(0, len(shown), width)])


def cells_drawn(text: str, glyphs: Glyphs, between: str = "") -> tuple[list[int], int] | None:
    """The inverse of `draw_cells`: cell codes and width; None if the text is no rectangle of known glyphs."""
    if len(text) > MAX_GRID_CHARS or not glyphs.codes.keys() | {between, "\n"} >= set(text):
        return None
    lines = [line.split(between) if between else list(line) for line in text.split("\n")]
    width = len(lines[0])
    if not width or any(len(line) != width or not glyphs.codes.keys() >= set(line) for line in lines):
        return None
    return [glyphs.codes[mark] for line in lines for mark in line], width


def place(cell: int, width: int, between: str = ",") -> str:
    """`(row,column)` of a cell numbered row by row, from (0,0)."""
    row, column = divmod(cell, width)
    return f"({row}{between}{column})"


def grid_within(view: str, shown: str) -> tuple[str, str]:
    """The part of a shown text that is the grid, and what stands between its cells."""
    if view == "grid_coord":
        return shown.partition("Grid Map: \n")[2], ""
    return shown.rpartition("\n")[0] if "+" in view else shown, " " if view.startswith("spaced") else ""


def misplace(sentence: str, rows: int, columns: int, first: int) -> str:
    """A sentence in which every `(row,column)` has become another cell of the board, always the same for the same
    sentence; `first` is where counting starts.
    """
    rng, cells = generator("misplaced", rows, columns, sentence), rows * columns

    def elsewhere(match: re.Match[str]) -> str:
        cell = (int(match[1]) - first) * columns + int(match[2]) - first
        row, column = divmod((cell + int(rng.integers(1, max(2, cells)))) % cells, columns)
        return f"({row + first},{column + first})"

    return re.sub(r"\(([0-9]{1,2}),([0-9]{1,2})\)", elsewhere, sentence)


def views_of(
    grid: Callable[Concatenate[str, State], str],
    coordinates: Callable[State, str],
    shape: Callable[State, tuple[int, int]],
    first: int = 0,
) -> dict[str, Callable[State, str]]:
    """The views that every grid has: the grid with nothing or a space between its cells, a sentence of coordinates, and
    one on the line below the other, also with every coordinate wrong, which an ablation shows.

    `shape` gives rows and columns; coordinates count from `first`.
    """

    def text(*state: State.args, **named: State.kwargs) -> str:
        return grid("", *state, **named)

    def spaced(*state: State.args, **named: State.kwargs) -> str:
        return grid(" ", *state, **named)

    def wrong_coordinates(*state: State.args, **named: State.kwargs) -> str:
        return misplace(coordinates(*state, **named), *shape(*state, **named), first)

    def stack(above: Callable[State, str], sentence: Callable[State, str]) -> Callable[State, str]:
        def show(*state: State.args, **named: State.kwargs) -> str:
            return f"{above(*state, **named)}\n{sentence(*state, **named)}"

        return show

    return {
        "text": text,
        "spaced": spaced,
        "coordinates": coordinates,
        "grid+coordinates": stack(text, coordinates),
        "spaced+coordinates": stack(spaced, coordinates),
        "grid+wrong-coordinates": stack(text, wrong_coordinates),
        "spaced+wrong-coordinates": stack(spaced, wrong_coordinates),
    }
