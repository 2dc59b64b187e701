"""Which seeds give different levels: two seeds may well draw the same one, or one turned round."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oneiro.worlds.base import World, canonical_key

MAX_REPEATS = 1000
"""Levels in a row that were drawn before; then there are no more."""


def new_levels(
    world: World,
    split: str | None,
    first_seed: int = 0,
    name: Callable[[Mapping[str, Any]], str] = canonical_key,
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Seed and `info` of each level that has not been drawn before, from `first_seed` on, as long as new ones come.

    The world has just been reset to the level when it is handed out. `name` says when two levels are one; by default
    they are if a symmetry of the world takes one to the other.
    """
    seen, repeats, seed = set[str](), 0, first_seed
    while repeats < MAX_REPEATS:
        _, info = world.reset(seed=seed, options={"split": split})
        known = name(info) in seen
        repeats = repeats + 1 if known else 0
        if not known:
            seen.add(name(info))
            yield seed, info
        seed += 1


def distinct_seeds(make_world: Callable[[], World], split: str | None, count: int, first_seed: int = 0) -> list[int]:
    """The first `count` seeds from `first_seed` on whose levels differ, also up to symmetry.

    Fewer where the world has fewer: the length of the list is then the number of distinct levels that were found in
    `MAX_REPEATS` seeds without a new one.
    """
    world = make_world()
    try:
        return [seed for seed, _ in islice(new_levels(world, split, first_seed), count)]
    finally:
        world.close()


@lru_cache(maxsize=256)
def symmetries(height: int, width: int) -> NDArray[np.int64]:
    """[8 or 4, cells]: for each rotation and mirror of a board onto itself, the cell that comes to each place.

    A square has eight of them and any other rectangle four. Cells count row by row.
    """
    board = np.arange(height * width).reshape(height, width)
    flat = [board, board[::-1], board[:, ::-1], board[::-1, ::-1]]
    images = flat + [image.T for image in flat] if height == width else flat
    return np.stack([image.ravel() for image in images])


def least_image(*layers: NDArray[np.uint8]) -> tuple[bytes, ...]:
    """The canonical form of a board, given as layers [height, width] that turn together.

    The first layer decides, the next one among equals, and so on. So the first part of the form is the canonical form
    of the first layer alone, whatever stands in the others.
    """
    sources = symmetries(*layers[0].shape)
    images = [layer.ravel()[sources].tobytes() for layer in layers]
    cells = layers[0].size
    return min(tuple(image[at : at + cells] for image in images) for at in range(0, sources.size, cells))
