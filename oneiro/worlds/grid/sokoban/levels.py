"""Sokoban levels: a random walk carves the room, exact backward search picks a start as far from the goal as asked.

Rooms come from the walk of gym-sokoban's generator (Schrader 2018). Where that one plays backwards by depth-first
search and hopes for a hard start, this one knows every distance: the difficulty of a level is drawn, then met exactly.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache, reduce
from itertools import combinations, permutations
from math import comb
from operator import or_

import numpy as np
from numpy.typing import NDArray

from oneiro.worlds.base import in_split, level_key
from oneiro.worlds.levels import least_image

# Exact distances: breadth-first search backwards from the goal over sets of states ------------------------------------

# A state is where the boxes are and where the player is. The inside of a room has at most 64 cells, so for one
# placement of the boxes a whole set of player positions is one 64-bit word, and a layer of the search is one word for
# each placement. A step of the search is then a handful of numpy operations for thousands of states: no queue, no hash
# table, no compiler.

Words = NDArray[np.uint64]

ONE = np.uint64(1)
SHIFTS = ((-1, 0), (1, 0), (0, -1), (0, 1))
"""Row and column steps of up, down, left, right; a direction and its opposite differ in the last bit of the index."""

MAX_INSIDE = 64  # cells: a room is one 64-bit mask


class Distances:
    """Moves to the goal, for every state of one room.

    `layers[t]` [placements] holds the player cells from which exactly `t` moves are needed, one bit for each cell of
    the inside of the room (the border of walls left out). Layers are grown on demand.
    """

    def __init__(self, height: int, width: int, floor: int, targets: int, boxes: int) -> None:
        """`floor` and `targets` are masks over the inside, row by row; `height` and `width` are those of the inside."""
        self.width = width
        cells = [cell for cell in range(height * width) if floor >> cell & 1]
        self._order = {cell: index for index, cell in enumerate(cells)}
        self._binomial = _binomials(len(cells), boxes)
        placements = _placements(len(cells), boxes)
        bits = ONE << np.array(cells, np.uint64)
        occupied = np.bitwise_or.reduce(bits[placements], axis=1)
        self.boxes_at: NDArray[np.int64] = np.array(cells)[placements]
        """[placements, boxes]: the cells of the boxes."""
        self.occupied: Words = occupied
        """[placements]: the same as a mask."""
        self.free: Words = np.uint64(floor) & ~occupied
        """[placements]: where the player can stand."""
        self._not_first, self._not_last = _column_masks(height, width)
        self._source, self._stands, self._lands = self._pulls(placements, cells, bits, height)
        start = np.zeros(len(placements), np.uint64)
        goal = self.placement(targets)
        start[goal] = self.free[goal]
        self.layers: list[Words] = [start]
        self._seen = start.copy()

    def placement(self, boxes: int) -> int:
        """The index of the placement whose boxes are this mask of cells."""
        indices = sorted(index for cell, index in self._order.items() if boxes >> cell & 1)
        return sum(comb(index, rank + 1) for rank, index in enumerate(indices))

    def grow(self) -> bool:
        """Add the next layer; False when every state that can reach the goal is in one."""
        frontier = self.layers[-1]
        width = np.uint64(self.width)
        reached = frontier << width
        reached |= frontier >> width
        # Bits of the last column would wrap into the next row.
        reached |= (frontier & self._not_last) << ONE
        reached |= (frontier & self._not_first) >> ONE
        pulled = np.where(frontier[self._source] & self._stands, self._lands, np.uint64(0))
        reached |= np.bitwise_or.reduce(pulled, axis=0)
        reached &= self.free
        reached &= ~self._seen
        if not reached.any():
            return False
        self._seen |= reached
        self.layers.append(reached)
        return True

    def distance(self, boxes: int, player: int, limit: int) -> int | None:
        """Moves from this state to the goal; None if there is no way within `limit` moves."""
        index, bit = self.placement(boxes), 1 << player
        for moves in range(limit + 1):
            if moves == len(self.layers) and not self.grow():
                return None
            if int(self.layers[moves][index]) & bit:
                return moves
        return None

    def _pulls(
        self, placements: NDArray[np.int64], cells: list[int], bits: Words, height: int
    ) -> tuple[NDArray[np.int64], Words, Words]:
        """[4 x boxes, placements] each: how a placement arises by pulling one of its boxes to where the player stood.

        Backwards, a player beside a box steps away from it and the box follows. Row (box, direction) of the tables says
        for each placement which placement it came from, at which cell the player stood (as a bit), and where it lands.
        """
        near = _neighbours(cells, height, self.width)
        now = placements.T[:, None, :]
        directions = np.arange(4)[None, :, None]
        came, lands = near[now, directions], near[now, directions ^ 1]
        blocked = (came < 0) | (lands < 0)
        blocked |= (bits[came] | bits[lands]) & self.occupied != 0
        boxes = placements.shape[1]
        before = np.broadcast_to(placements, (boxes, 4, *placements.shape)).copy()
        for box in range(boxes):
            before[box, :, :, box] = came[box]
        before.sort(axis=-1)  # boxes are interchangeable, and ranks are of sorted choices
        source = self._binomial[np.arange(boxes), before].sum(axis=-1)
        source[blocked] = 0  # any valid index: what lands there is masked below
        stands = np.broadcast_to(bits[now], source.shape)
        landing = np.where(blocked, np.uint64(0), bits[lands])
        shape = (boxes * 4, len(placements))
        return source.reshape(shape), stands.reshape(shape), landing.reshape(shape)


@lru_cache(maxsize=256)
def _placements(cells: int, boxes: int) -> NDArray[np.int64]:
    """[placements, boxes]: every choice of cells, each sorted, ordered so that `_binomials` ranks them."""
    chosen = np.array(list(combinations(range(cells), boxes)), np.int64).reshape(-1, boxes)
    return chosen[np.lexsort(chosen.T)]


@lru_cache(maxsize=256)
def _binomials(cells: int, boxes: int) -> NDArray[np.int64]:
    """[boxes, cells]: a sorted choice c_0 < c_1 < ... has rank sum of C(c_i, i + 1) (combinatorial number system)."""
    return np.array([[comb(cell, rank + 1) for cell in range(cells)] for rank in range(boxes)], np.int64)


@lru_cache(maxsize=64)
def _column_masks(height: int, width: int) -> tuple[np.uint64, np.uint64]:
    """All cells but the first column, and all but the last: what may move left, and right, without wrapping."""
    first = sum(1 << row * width for row in range(height))
    last = first << (width - 1)
    whole = (1 << height * width) - 1
    return np.uint64(whole & ~first), np.uint64(whole & ~last)


def _neighbours(cells: list[int], height: int, width: int) -> NDArray[np.int64]:
    """[floor cells, 4]: index of the floor cell up, down, left and right of each; -1 where there is a wall."""
    index = np.full((height + 2, width + 2), -1, np.int64)
    rows, columns = np.divmod(np.array(cells), width)
    index[rows + 1, columns + 1] = np.arange(len(cells))
    return np.stack([index[rows + 1 + down, columns + 1 + right] for down, right in SHIFTS], axis=1)


# Levels ---------------------------------------------------------------------------------------------------------------

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
    top = next(at for at, line in enumerate(lines) if line)
    left, right = (across & -across).bit_length() - 1, across.bit_length()
    masks = (floor, targets, boxes, 0 if player is None else 1 << player)
    bits = np.frombuffer(b"".join(mask.to_bytes(MAX_INSIDE // 8, "little") for mask in masks), np.uint8)
    layers = np.unpackbits(bits, bitorder="little").reshape(len(masks), -1)[:, : height * width]
    layers = layers.reshape(len(masks), height, width)[:, top:, left:right]
    if height - top > right - left:
        layers = layers.swapaxes(1, 2)
    ground, things = least_image(layers[0] + layers[1], layers[2] + 2 * layers[3])
    return f"{layers.shape[2]} {ground.hex()} {things.hex()}"


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
