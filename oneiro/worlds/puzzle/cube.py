"""The 2x2 cube: turn sides until every face shows one colour. Solved pays 1, everything else nothing.

Every state's distance is known exactly: levels have a stated optimum, and the oracle solves any state in fewest turns.
A sticker is a corner of the cube and the direction it faces. A move turns the stickers of one side by a quarter about
the side's axis, so the permutations cannot disagree with a real cube.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import permutations
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, field_validator

from oneiro.runtime.seeds import generator
from oneiro.worlds.base import EVAL_SHARE, Step, World, WorldConfig, draw_level, level_key

FACES = "ULFRBD"
STICKERS = 24
MOVES = tuple(f"{face}{turn}" for face in "UDLRFB" for turn in ("", "'"))
GODS_NUMBER = 14
"""Quarter turns that always suffice."""

State = tuple[int, ...]
"""[24] the face each sticker belongs to, face by face in the order of `FACES`, row by row seen from outside."""

SOLVED: State = tuple(sticker // 4 for sticker in range(STICKERS))

# Outward direction of each face, and the direction of its rows and columns as it is drawn in an unfolded net.
_NORMAL = {"U": (0, 1, 0), "L": (-1, 0, 0), "F": (0, 0, 1), "R": (1, 0, 0), "B": (0, 0, -1), "D": (0, -1, 0)}
_DOWN = {"U": (0, 0, 1), "L": (0, -1, 0), "F": (0, -1, 0), "R": (0, -1, 0), "B": (0, -1, 0), "D": (0, 0, -1)}
_ALONG = {"U": (1, 0, 0), "L": (0, 0, 1), "F": (1, 0, 0), "R": (0, 0, -1), "B": (-1, 0, 0), "D": (1, 0, 0)}


def turn_side(state: State, move: str) -> State:
    """The state after a move such as `R` (clockwise seen from that side) or `R'`."""
    return tuple(state[source] for source in sources()[move])


def is_solved(state: State) -> bool:
    """Whether every face shows one colour; the cube as a whole may be held in any way."""
    return all(len(set(state[first : first + 4])) == 1 for first in range(0, STICKERS, 4))


@lru_cache(maxsize=1)
def sources() -> dict[str, tuple[int, ...]]:
    """For each move, the sticker that ends up at each place."""
    moves = {}
    for face in FACES:
        normal = np.array(_NORMAL[face])
        clockwise = _permutation(normal, side=True)
        moves[face] = clockwise
        moves[f"{face}'"] = tuple(clockwise.index(place) for place in range(STICKERS))
    return moves


@lru_cache(maxsize=1)
def holds() -> tuple[tuple[int, ...], ...]:
    """The 24 ways to hold the cube, as permutations like those of `sources`."""
    turns = [_permutation(np.array(_NORMAL[face]), side=False) for face in "UR"]
    seen = {tuple(range(STICKERS))}
    frontier = list(seen)
    while frontier:
        reached = {tuple(hold[source] for source in turn) for hold in frontier for turn in turns} - seen
        seen |= reached
        frontier = list(reached)
    return tuple(sorted(seen))


def distance(state: State) -> int:
    """Quarter turns to the nearest solved state, exactly."""
    return int(distances()[state_number(state)])


def state_number(state: State) -> int:
    """One number (below 5040 x 729) for a state, the same in all 24 ways to hold the cube."""
    corners, twists = coordinates(state)
    return corners * 729 + twists


def coordinates(state: State) -> tuple[int, int]:
    """Where the seven corners other than the reference corner are (0..5039) and how they are twisted (0..728).

    The cube is first held so that the reference corner is at home: turns that differ only in how the cube is then held,
    such as R and L', lead to the same state.
    """
    corners = _corners()
    a, b, c = corners[-1]
    home = (a // 4, b // 4, c // 4)
    hold = next(hold for hold in holds() if (state[hold[a]], state[hold[b]], state[hold[c]]) == home)
    pieces = [_pieces()[state[hold[x]], state[hold[y]], state[hold[z]]] for x, y, z in corners[:-1]]
    places = tuple(piece for piece, _ in pieces)
    return _rank()[places], sum(twist * 3**index for index, (_, twist) in enumerate(pieces[:6]))


@lru_cache(maxsize=1)
def distances() -> NDArray[np.int8]:
    """[5040 x 729]: the distance of every state, by breadth-first search over all 3.7 million; under a second, once."""
    corner_steps, twist_steps = _steps()
    depths = np.full(5040 * 729, -1, np.int8)
    frontier = np.array([state_number(SOLVED)])
    depths[frontier] = 0
    for depth in range(1, GODS_NUMBER + 1):
        corners, twists = np.divmod(frontier, 729)
        reached = np.concatenate(
            [corner_steps[corners, move] * 729 + twist_steps[twists, move] for move in range(corner_steps.shape[1])]
        )
        depths[reached[depths[reached] < 0]] = depth
        frontier = np.flatnonzero(depths == depth)
    return depths


@lru_cache(maxsize=GODS_NUMBER + 1)
def at_distance(turns: int) -> NDArray[np.int64]:
    """The numbers of all states so many quarter turns from solved, ascending."""
    return np.flatnonzero(distances() == turns)


@lru_cache(maxsize=1)
def _steps() -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """[5040, 6] and [729, 6]: what the turns that leave the reference corner alone do to places and to twists.

    Places move among places and twists among twists, whatever the other does, so each table needs its own states only.
    """
    moves = [move for move in MOVES if all(sources()[move][sticker] == sticker for sticker in _corners()[-1])]
    order = list(_rank())
    corner_steps = np.zeros((5040, len(moves)), np.int64)
    twist_steps = np.zeros((729, len(moves)), np.int64)
    for column, move in enumerate(moves):
        came, added = _action(move)
        for number, places in enumerate(order):
            corner_steps[number, column] = _rank()[tuple(places[source] for source in came)]
        for number in range(729):
            twists = [number // 3**index % 3 for index in range(6)]
            twists.append(-sum(twists) % 3)
            after = [(twists[source] + add) % 3 for source, add in zip(came, added, strict=True)]
            twist_steps[number, column] = sum(twist * 3**index for index, twist in enumerate(after[:6]))
    return corner_steps, twist_steps


def _action(move: str) -> tuple[list[int], list[int]]:
    """For each of the seven places: the place its corner came from, and the twist the move adds to it."""
    corners = _corners()
    came, added = [], []
    for corner in corners[:-1]:
        from_stickers = [sources()[move][sticker] for sticker in corner]
        source = next(index for index, other in enumerate(corners) if from_stickers[0] in other)
        # The sticker that was on the up or down place of the source is now at this position of the corner.
        came.append(source)
        added.append(from_stickers.index(corners[source][0]))
    return came, added


@lru_cache(maxsize=1)
def _pieces() -> dict[tuple[int, ...], tuple[int, int]]:
    """Which corner shows these three colours, clockwise from the up or down place, and how it is twisted.

    The up or down colour tells the twist: 0 if it shows on the up or down place, 1 or 2 if one or two places on.
    """
    pieces = {}
    for number, corner in enumerate(_corners()):
        colours = [sticker // 4 for sticker in corner]
        for twist in range(3):
            pieces[tuple(colours[(place - twist) % 3] for place in range(3))] = (number, twist)
    return pieces


@lru_cache(maxsize=1)
def _rank() -> dict[tuple[int, ...], int]:
    return {places: number for number, places in enumerate(permutations(range(7)))}


@lru_cache(maxsize=1)
def _corners() -> tuple[tuple[int, ...], ...]:
    """The three stickers of each corner, clockwise seen from outside, the up or down one first; down-back-left last."""
    stickers = _stickers()
    corners = []
    for position in sorted({position for position, _ in stickers}, key=lambda p: (p == (-1, -1, -1), p)):
        own = [index for index, (where, _) in enumerate(stickers) if where == position]
        first = next(index for index in own if index // 4 in (0, 5))
        second, third = (index for index in own if index != first)
        normals = np.array([stickers[index][1] for index in (first, second, third)])
        # Clockwise seen from outside: the three directions turn against the corner's own direction.
        if np.linalg.det(normals) > 0:
            second, third = third, second
        corners.append((first, second, third))
    return tuple(corners)


@lru_cache(maxsize=1)
def _stickers() -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """[24] position of the corner and outward direction of each sticker."""
    stickers = []
    for face in FACES:
        normal, down, along = (np.array(table[face]) for table in (_NORMAL, _DOWN, _ALONG))
        for row in (-1, 1):
            for column in (-1, 1):
                stickers.append((tuple((normal + row * down + column * along).tolist()), tuple(normal.tolist())))
    return stickers


def _permutation(normal: NDArray[np.int64], side: bool) -> tuple[int, ...]:
    """A clockwise quarter turn about `normal`, of the side it points to or of the whole cube, as sources."""
    stickers = _stickers()
    index = {sticker: number for number, sticker in enumerate(stickers)}
    turn = np.outer(normal, normal) - np.array(
        [[0, -normal[2], normal[1]], [normal[2], 0, -normal[0]], [-normal[1], normal[0], 0]]
    )
    source = list(range(STICKERS))
    for number, (position, direction) in enumerate(stickers):
        if not side or np.dot(position, normal) == 1:
            after = (tuple((turn @ position).tolist()), tuple((turn @ direction).tolist()))
            source[index[after]] = number
    return tuple(source)


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
