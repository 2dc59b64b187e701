"""The 2x2 cube: turn sides until every face shows one colour. Solved pays 1, everything else nothing.

Every state's distance is known exactly: levels have a stated optimum, and the oracle solves any state in fewest turns.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, field_validator

from oneiro.runtime.seeds import generator
from oneiro.worlds.base import EVAL_SHARE, Step, World, WorldConfig, draw_level, level_key
from oneiro.worlds.puzzle.cube.moves import (
    FACES,
    GODS_NUMBER,
    MOVES,
    SOLVED,
    STICKERS,
    State,
    at_distance,
    distance,
    is_solved,
    state_number,
    turn_side,
)

NAMES = {"U": "Up", "L": "Left", "F": "Front", "R": "Right", "B": "Back", "D": "Down"}


class CubeConfig(WorldConfig):
    """Settings of the cube."""

    max_actions: int = Field(default=20, ge=1)
    scramble: int = Field(default=3, ge=1, le=11)
    """Quarter turns the start is away from solved, exactly."""
    colours: str = "WOGRBY"
    """One letter for each face: up, left, front, right, back, down."""

    @field_validator("colours")
    @classmethod
    def _six(cls, colours: str) -> str:
        if len(set(colours)) != 6 or len(colours) != 6 or not colours.isalnum():
            raise ValueError(f"colours must be six different letters, not '{colours}'")
        return colours


class Cube(World):
    """One scrambled cube."""

    name = "cube"
    Config = CubeConfig
    views = ("text", "net")
    actions = MOVES
    variants: ClassVar = {"two": {"scramble": 2}, "five": {"scramble": 5}}
    config: CubeConfig

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        self.begin(seed, options)
        self.cube, key = draw_level(self.name, self.seed, self.split, self._draw, key_of)
        return self.render(), {"key": key, "optimum": self.config.scramble}

    def step(self, action: str) -> Step:
        if self.over:
            return self.ended(success=is_solved(self.cube))
        move = action.strip().upper().replace("’", "'")
        if move not in MOVES:
            return self.outcome(0.0, valid=False, effective=False)
        self.cube = turn_side(self.cube, move)
        done = is_solved(self.cube)
        return self.outcome(float(done), done=done, success=done, effective=True)

    def render(self, view: str | None = None) -> str:
        return (text if self.view_named(view) == "text" else net)(self.cube, self.config.colours)

    def parse(self, text: str, view: str | None = None) -> State | None:
        return read(self.view_named(view), text, self.config.colours)

    @property
    def state(self) -> State:
        return self.cube

    @property
    def instruction(self) -> str:
        colours = ", ".join(
            f"{letter} {NAMES[face].lower()}" for letter, face in zip(self.config.colours, FACES, strict=True)
        )
        return (
            "Solve the 2x2 cube: turn its sides until every face shows one colour. U, D, L, R, F and B turn the up, "
            "down, left, right, front and back side clockwise by a quarter, seen from that side; with ' "
            "counter-clockwise.\n"
            f"Symbols: one letter a sticker; the solved cube has {colours}.\n"
            f"Actions: {', '.join(MOVES)}. You have {self.config.max_actions} actions."
        )

    def ceiling(self) -> float:
        return float(self.remaining >= GODS_NUMBER or distance(self.cube) <= self.remaining)

    def oracle(self) -> str | None:
        """A turn that brings the cube one step nearer."""
        left = distance(self.cube)
        if self.over or not 0 < left <= self.remaining:
            return None
        return next(move for move in MOVES if distance(turn_side(self.cube, move)) < left)

    def _draw(self, rng: np.random.Generator) -> State | None:
        cube = SOLVED
        for move in rng.integers(len(MOVES), size=self.config.scramble):
            cube = turn_side(cube, MOVES[int(move)])
        return cube if distance(cube) == self.config.scramble else None


def key_of(cube: State) -> str:
    """The name of a level, the same however the cube is held.

    Its last digit, which decides the split, is counted out among the cubes at this distance and not hashed: one and two
    turns away there are only 6 and 27 of them, of which a hash may well hold none out.
    """
    turns, state = distance(cube), state_number(cube)
    place = _order(turns)[np.searchsorted(at_distance(turns), state)]
    return level_key(f"cube {state}")[:-1] + f"{place % EVAL_SHARE:x}"


@lru_cache(maxsize=GODS_NUMBER + 1)
def _order(turns: int) -> NDArray[np.int64]:
    """A fixed shuffle of the cubes at a distance."""
    return generator("cube", "split", turns).permutation(len(at_distance(turns)))


def text(cube: State, colours: str) -> str:
    """One line a face, its two rows side by side: `U WW WW`."""
    return "\n".join(f"{face} {row[:2]} {row[2:]}" for face, row in _faces(cube, colours).items())


def net(cube: State, colours: str) -> str:
    """The six faces unfolded: up above, left, front, right and back in a row, down below."""
    faces = _faces(cube, colours)
    band = ["".join(faces[face][at : at + 2] for face in "LFRB") for at in (0, 2)]
    rows = [f"..{faces['U'][:2]}....", f"..{faces['U'][2:]}....", *band]
    return "\n".join([*rows, f"..{faces['D'][:2]}....", f"..{faces['D'][2:]}...."])


def read(view: str, shown: str, colours: str) -> State | None:
    """The cube a text shows, or None."""
    lines = shown.split("\n") if len(shown) < 100 else []
    if len(lines) != 6:
        return None
    if view == "text":
        letters = "".join(line[2:4] + line[5:7] for line in lines)
    else:
        letters = lines[0][2:4] + lines[1][2:4]
        letters += "".join(lines[row][at : at + 2] for at in (0, 2, 4, 6) for row in (2, 3))
        letters += lines[4][2:4] + lines[5][2:4]
    if len(letters) != STICKERS or not set(letters) <= set(colours):
        return None
    cube = tuple(colours.index(letter) for letter in letters)
    return cube if (text if view == "text" else net)(cube, colours) == shown else None


def _faces(cube: State, colours: str) -> dict[str, str]:
    return {
        face: "".join(colours[sticker] for sticker in cube[4 * index : 4 * index + 4])
        for index, face in enumerate(FACES)
    }
