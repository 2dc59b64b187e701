"""Sokoban levels: a random walk carves the room, exact backward search picks a start as far from the goal as asked.

Rooms come from the walk of gym-sokoban's generator (Schrader 2018). Where that one plays backwards by depth-first
search and hopes for a hard start, this one knows every distance: the difficulty of a level is drawn, then met exactly.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache, reduce
from itertools import permutations
from operator import or_

import numpy as np
from numpy.typing import NDArray

from oneiro.worlds.base import in_split, level_key
from oneiro.worlds.grid.sokoban.search import MAX_INSIDE, SHIFTS, Distances
from oneiro.worlds.levels import least_image

TURN = 0.35
"""Chance that the carving walk takes a new direction at a step."""

STAMPS = (
    ((0, -1), (0, 0), (0, 1)),
    ((-1, 0), (0, 0), (1, 0)),
    ((0, -1), (0, 0), (1, 0)),
    ((0, -1), (0, 0), (1, -1), (1, 0)),
    ((0, 0), (0, 1), (1, 0)),
)
"""Floor carved around each step of the walk: a row, a column, a corner, a square, the other corner."""


@dataclass(frozen=True)
class Plan:
    """What decides a kind of level."""

    height: int
    width: int
    boxes: int
    optimum: float
    """Mean length of the shortest solution aimed at, in moves."""
    optimum_std: float
    """Its standard deviation."""


@dataclass(frozen=True)
class SokobanLevel:
    """A room with its start. Masks and cells count row by row over the inside of the room, without the border."""

    height: int
    width: int
    floor: int
    targets: int
    boxes: int
    player: int
    optimum: int
    """Moves of the shortest solution."""

    @cached_property
    def key(self) -> str:
        """Rooms that differ in nothing but where boxes and player start share a split."""
        room = f"sokoban {self.height} {self.width} {self.floor:x} {self.targets:x} {self.boxes:x} {self.player}"
        return level_key(room, self.ground.split_key(self.width))

    @cached_property
    def canonical(self) -> str:
        """The level's name up to rotation, mirror and the thickness of its walls."""
        form = canonical_form(self.width, self.floor, self.targets, self.boxes, self.player)
        return level_key(f"sokoban {form}", self.ground.split_key(self.width))

    @property
    def ground(self) -> Ground:
        return Ground(self.floor, self.targets)


@dataclass(frozen=True)
class Ground:
    """A room before anything stands in it: masks of its floor and its targets."""

    floor: int
    targets: int

    def split_key(self, width: int) -> str:
        """Names the room, up to symmetry, by which its split is decided; known before the costly part of a level."""
        return f"sokoban {canonical_form(width, self.floor, self.targets)}"


@lru_cache(maxsize=256)
def canonical_form(width: int, floor: int, targets: int, boxes: int = 0, player: int | None = None) -> str:
    """A room of that width inside its walls, up to rotation, mirror and the thickness of its walls.

    The room is cut to its floor and laid on its longer side, so that it is the same room inside larger walls.
    """
    height, row = -(-floor.bit_length() // width), (1 << width) - 1
    lines = [floor >> at & row for at in range(0, height * width, width)]
    across = reduce(or_, lines)
    top, left, right = next(at for at, line in enumerate(lines) if line), _lowest(across), across.bit_length()
    masks = (floor, targets, boxes, 0 if player is None else 1 << player)
    bits = np.frombuffer(b"".join(mask.to_bytes(MAX_INSIDE // 8, "little") for mask in masks), np.uint8)
    layers = np.unpackbits(bits, bitorder="little").reshape(len(masks), -1)[:, : height * width]
    layers = layers.reshape(len(masks), height, width)[:, top:, left:right]
    if height - top > right - left:
        layers = layers.swapaxes(1, 2)
    ground, things = least_image(layers[0] + layers[1], layers[2] + 2 * layers[3])
    return f"{layers.shape[2]} {ground.hex()} {things.hex()}"


def _lowest(mask: int) -> int:
    return (mask & -mask).bit_length() - 1


def carve(rng: np.random.Generator, plan: Plan) -> Ground | None:
    """A walled room with targets; None if it is too small for its boxes and a player."""
    height, width = plan.height - 2, plan.width - 2
    steps = int(1.7 * (plan.height + plan.width))
    turns, ways = rng.random(steps) < TURN, rng.integers(4, size=steps + 1)
    stamps = rng.integers(len(STAMPS), size=steps)
    carved = _stamp_masks(height, width)
    row, column, way, floor = int(rng.integers(height)), int(rng.integers(width)), ways[steps], 0
    for turn, new_way, stamp in zip(turns.tolist(), ways.tolist(), stamps.tolist(), strict=False):
        way = new_way if turn else way
        row = min(max(row + SHIFTS[way][0], 0), height - 1)
        column = min(max(column + SHIFTS[way][1], 0), width - 1)
        floor |= carved[stamp][row * width + column]
    cells = _cells(floor, height * width)
    if len(cells) <= plan.boxes:
        return None
    targets = sum(1 << cell for cell in rng.choice(cells, plan.boxes, replace=False).tolist())
    return Ground(floor, targets)


def draw(rng: np.random.Generator, plan: Plan, split: str | None) -> SokobanLevel | None:
    """A level, or None if the room carved is of no use or belongs to the other split."""
    ground = carve(rng, plan)
    if ground is None or not in_split(level_key(ground.split_key(plan.width - 2)), split):
        return None
    return furnish(rng, ground, plan)


def furnish(rng: np.random.Generator, ground: Ground, plan: Plan) -> SokobanLevel | None:
    """Boxes and player in a carved room, the drawn number of moves from the goal; None if no box can be moved off."""
    height, width = plan.height - 2, plan.width - 2
    shape = (plan.optimum / plan.optimum_std) ** 2
    aim = max(1, round(rng.gamma(shape, plan.optimum / shape)))
    distances = Distances(height, width, ground.floor, ground.targets, plan.boxes)
    while len(distances.layers) <= aim and distances.grow():
        pass
    targets = np.uint64(ground.targets)
    clear = np.where(distances.occupied & targets, np.uint64(0), distances.free & ~targets)
    # The room may not be deep enough, or have no start at this depth with every target uncovered: then the next best.
    for moves in range(len(distances.layers) - 1, 0, -1):
        starts = distances.layers[moves] & clear
        placements = np.flatnonzero(starts)
        if not len(placements):
            continue
        # Far boxes rather than a far player: of the starts at this depth, one that needs much pushing.
        far = displacement(distances.boxes_at[placements], _cells(ground.targets, height * width), width)
        placement = int(rng.choice(placements[far == far.max()]))
        player = int(rng.choice(_cells(int(starts[placement]), height * width)))
        boxes = int(distances.occupied[placement])
        return SokobanLevel(height, width, ground.floor, ground.targets, boxes, player, moves)
    return None


def displacement(boxes: NDArray[np.int64], targets: NDArray[np.int64], width: int) -> NDArray[np.int64]:
    """[placements]: city-block distance of boxes [placements, boxes] to targets [boxes], each to its own, at least."""
    down = abs(boxes[..., None] // width - targets // width)
    apart = down + abs(boxes[..., None] % width - targets % width)
    pairings = [list(order) for order in permutations(range(len(targets)))]
    return np.min([apart[:, range(len(targets)), order].sum(axis=1) for order in pairings], axis=0)


def _cells(mask: int, inside: int) -> NDArray[np.int64]:
    return np.array([cell for cell in range(inside) if mask >> cell & 1])


@lru_cache(maxsize=64)
def _stamp_masks(height: int, width: int) -> list[list[int]]:
    """[stamps][cells]: the cells a stamp carves around each cell."""
    return [
        [
            sum(
                1 << (row + down) * width + column + right
                for down, right in stamp
                if 0 <= row + down < height and 0 <= column + right < width
            )
            for row in range(height)
            for column in range(width)
        ]
        for stamp in STAMPS
    ]
