"""Exact Sokoban distances, fast without a compiler: breadth-first search backwards from the goal over *sets* of states.

A state is where the boxes are and where the player is. The inside of a room has at most 64 cells, so for one placement
of the boxes a whole set of player positions is one 64-bit word, and a layer of the search is one word for each
placement. A step of the search is then a handful of numpy operations for thousands of states: no queue, no hash table.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import combinations
from math import comb

import numpy as np
from numpy.typing import NDArray

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
