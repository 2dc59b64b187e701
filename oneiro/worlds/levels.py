"""Which seeds give different levels: two seeds may well draw the same one, or one turned round."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any

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
    `REPEATS` seeds without a new one.
    """
    world = make_world()
    try:
        return [seed for seed, _ in islice(new_levels(world, split, first_seed), count)]
    finally:
        world.close()
