"""Furnishing a scene: the things a game needs in a random order, and some it does not need."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np

from oneiro.worlds.textgame.scene import Scene, Thing

T = TypeVar("T")

Spec = tuple[str, str, dict[str, Any]]
"""Noun, type and properties of a thing to be added."""

CLUTTER: tuple[Spec, ...] = (
    *(
        (noun, "Object", {"isMoveable": True})
        for noun in ("book", "spoon", "ball", "scarf", "pencil", "clock", "hat", "rope")
    ),
    ("basket", "Container", {"isContainer": True, "isMoveable": True}),
    ("crate", "Container", {"isContainer": True}),
    ("radio", "Device", {"isMoveable": True, "isActivatable": True, "isOn": False}),
    ("lamp", "Device", {"isActivatable": True, "isOn": False}),
    ("suitcase", "Container", {"isContainer": True, "isMoveable": True, "isOpenable": True, "isOpen": False}),
)
"""Things that play no part in any game, though commands work on them."""


def place(scene: Scene, rng: np.random.Generator, inside: Thing, specs: Sequence[Spec]) -> None:
    """Add things in a random order, so that the same thing has another uuid in another level."""
    for index in rng.permutation(len(specs)):
        noun, type_, properties = specs[index]
        scene.add(noun, type_, inside, **properties)


def clutter(rng: np.random.Generator, most: int = 2) -> list[Spec]:
    """Up to `most` things that are of no use, each at most once."""
    chosen = rng.permutation(len(CLUTTER))[: int(rng.integers(most + 1))]
    return [CLUTTER[index] for index in chosen]


def one_of(rng: np.random.Generator, options: Sequence[T]) -> T:
    return options[int(rng.integers(len(options)))]


def some_of(rng: np.random.Generator, options: Sequence[T], count: int) -> list[T]:
    """`count` different options, in random order."""
    return [options[index] for index in rng.permutation(len(options))[:count]]
