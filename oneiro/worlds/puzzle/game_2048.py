"""2048: slide all tiles one way, equal tiles merge, a new tile appears; make a large one before the board is stuck.

A merging move pays a tenth of log2(1 + points); reaching `target` by the end is success. Where new tiles appear is
noise: members of a group start from the same board and meet different tiles.
"""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import combinations, pairwise
from math import exp, log2
from typing import Any, ClassVar, NamedTuple

import numpy as np
from pydantic import Field, field_validator

from oneiro.runtime.seeds import generator
from oneiro.worlds.base import Step, World, WorldConfig, draw_level, level_key
from oneiro.worlds.levels import least_image

LOOKAHEAD_MOVES = 2
"""Moves the player looks ahead; each more costs a branch for every move and every new tile."""
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


REWARD_SCALE = 0.1
HELD_OUT = 3
"""One start in this many is kept for evaluation, of those that no game passes."""
NEGLIGIBLE_CHANCE = 1e-12
"""A chance below this is stated as none."""


class Game2048Config(WorldConfig):
    """Settings of the game."""

    max_actions: int = Field(default=700, ge=1)
    size: int = Field(default=4, ge=2, le=8)
    """Rows and columns."""
    target: int = Field(default=2048, ge=8)
    """The tile that counts as success."""
    two_probability: float = Field(default=0.9, ge=0, le=1)
    """Chance that a new tile is a 2 rather than a 4."""

    @field_validator("target")
    @classmethod
    def _power_of_two(cls, target: int) -> int:
        if target & (target - 1):
            raise ValueError(f"target must be a power of two, not {target}")
        return target


class Game2048(World):
    """One game."""

    name = "2048"
    Config = Game2048Config
    views = ("text", "spaced")
    actions = WORDS
    deterministic = False
    oracle_is = f"a player that looks {LOOKAHEAD_MOVES} moves ahead; no proven ceiling"
    variants: ClassVar = {
        "128": {"target": 128, "max_actions": 120},
        "3x3": {"size": 3, "target": 64, "max_actions": 60},
    }
    config: Game2048Config

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        self.begin(seed, options)
        self.tiles, key = draw_level(self.name, self.seed, self.split, self._draw, self._key)
        self.score = 0
        self._noise = generator(self.name, self.seed, "luck", self.member)
        return self.render(), {"key": key, "canonical": level_key(canonical_start(self.tiles).hex())[:-1] + key[-1]}

    def step(self, action: str) -> Step:
        if self.over:
            return self.ended(success=self._success)
        word = action.strip().lower()
        way = next((index for index, known in enumerate(WORDS) if known.lower() == word), None)
        if way is None:
            return self.outcome(0.0, valid=False, effective=False)
        after, points = slide(self.tiles, way)
        effective = after != self.tiles
        if effective:
            self.tiles = with_new_tile(after, self._noise, self.config.two_probability)
            self.score += points
        stuck = not possible(self.tiles)
        return self.outcome(REWARD_SCALE * log2(points + 1), done=stuck, success=self._success, effective=effective)

    def render(self, view: str | None = None) -> str:
        if self.view_named(view) == "spaced":
            return render_spaced(self.tiles)
        moves = ", ".join(WORDS[way] for way in possible(self.tiles)) or "none"
        return f"{render_aligned(self.tiles)}\nMoves: {moves}. Score: {self.score}."

    def parse(self, text: str, view: str | None = None) -> Tiles | None:
        board = text if self.view_named(view) == "spaced" else text.rpartition("\nMoves: ")[0]
        return read(board, self.config.size)

    @property
    def state(self) -> Tiles:
        return self.tiles

    @property
    def instruction(self) -> str:
        return (
            "Slide all tiles in one direction; two equal tiles that meet merge into their sum, and after every move "
            f"that changes the board a new tile appears. Make a tile of {self.config.target} before no move is left.\n"
            "Symbols: . empty cell, a number a tile.\n"
            f"Actions: {', '.join(WORDS)}. You have {self.config.max_actions} actions."
        )

    def oracle(self) -> str | None:
        """The move of a good player, not of an optimal one: nobody knows that (see `player`)."""
        way = None if self.over else best_way(self.tiles, self.config.two_probability)
        return None if way is None else WORDS[way]

    def ceiling(self) -> float | None:
        """1 with the target made, 0 where the tiles still to come cannot add up to it; in between nobody knows.

        A tile is the sum of the tiles that went into it, and every move brings one. So many of the remaining ones would
        have to be fours; Hoeffding's inequality bounds the chance of that, whatever the player does.
        """
        if self._success:
            return 1.0
        missing, moves = self.config.target - sum(self.tiles.cells), 0 if self.over else self.remaining
        share = (missing - 2 * moves) / (2 * moves) if moves else 2.0
        beyond = share - (1 - self.config.two_probability)
        if share > 1 or (beyond > 0 and exp(-2 * moves * beyond**2) < NEGLIGIBLE_CHANCE):
            return 0.0
        return None

    @property
    def _success(self) -> bool:
        return max(self.tiles.cells) >= self.config.target

    def _draw(self, rng: np.random.Generator) -> Tiles:
        twos = self.config.two_probability
        if self.split == "eval":
            twos = float(self._smallest == 2)  # what is held out has no other tiles
        tiles = Tiles(self.config.size, (0,) * self.config.size**2)
        for _ in range(2):
            tiles = with_new_tile(tiles, rng, twos)
        return tiles

    def _key(self, tiles: Tiles) -> str:
        """The name of a start. Its last digit, which decides the split, is the same for all its rotations and mirrors.

        Tiles only grow, so no game passes a start with two tiles of the smallest kind. Of these every third is held
        out, counted and not hashed, for a small board has few. Other starts can be met in play and are for training.
        """
        held_out = canonical_start(tiles) in held_out_starts(tiles.size, self._smallest)
        return level_key(f"2048 {tiles}")[:-1] + ("0" if held_out else "1")

    @property
    def _smallest(self) -> int:
        """The smallest tile that appears."""
        return 2 if self.config.two_probability > 0 else 4


@lru_cache(maxsize=4096)
def canonical_start(tiles: Tiles) -> bytes:
    """A start up to rotation and mirror."""
    return least_image(np.array(tiles.cells, np.uint8).reshape(tiles.size, tiles.size))[0]


@lru_cache
def held_out_starts(size: int, tile: int) -> frozenset[bytes]:
    """The canonical forms of the starts that are kept for evaluation, where `tile` is the smallest."""
    cells = range(size * size)
    pairs = ([tile * (cell in pair) for cell in cells] for pair in combinations(cells, 2))
    forms = sorted({canonical_start(Tiles(size, tuple(pair))) for pair in pairs})
    order = generator("2048", "split", size).permutation(len(forms))
    return frozenset(forms[place] for place in order[::HELD_OUT].tolist())


def render_spaced(tiles: Tiles) -> str:
    """One line a row, a space between cells."""
    shown = [str(tile) if tile else "." for tile in tiles.cells]
    return "\n".join(" ".join(shown[first : first + tiles.size]) for first in range(0, len(shown), tiles.size))


def render_aligned(tiles: Tiles) -> str:
    """One line a row, columns right-aligned."""
    shown = [str(tile) if tile else "." for tile in tiles.cells]
    width = max(len(cell) for cell in shown)
    rows = (shown[first : first + tiles.size] for first in range(0, len(shown), tiles.size))
    return "\n".join(" ".join(cell.rjust(width) for cell in row) for row in rows)


def read(text: str, size: int) -> Tiles | None:
    """The board of either layout, or None."""
    if len(text) > 20 * size * size:
        return None
    rows = [line.split() for line in text.split("\n")]
    cells = [cell for row in rows for cell in row]
    if len(rows) != size or any(len(row) != size for row in rows):
        return None
    if not all(re.fullmatch(r"\.|[1-9][0-9]{0,6}", cell) for cell in cells):
        return None
    tiles = Tiles(size, tuple(0 if cell == "." else int(cell) for cell in cells))
    return tiles if text in (render_spaced(tiles), render_aligned(tiles)) else None


# A player: looks ahead and likes boards that are empty, ordered and full of pairs -------------------------------------

# Not an optimal one. Between its two moves it expects the likelier new tile, on a few of the empty cells; so a move
# costs at most 4 x `CELLS` x 4 boards, whatever the size, and depends on the board alone.

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
