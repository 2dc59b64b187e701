"""What things are called: invented verbs and objects, and ordinary words for properties.

`new` names are made of syllables, and no game of one split has a word of the other: verbs, objects and properties of
evaluation games never occur in training. `shared` names come from a short list that both splits use, for a model that
learns from nothing and can only know words it has seen; there only the combinations of rules are new.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import Literal, TypeVar

import numpy as np

from oneiro.runtime import seeds
from oneiro.worlds.rules.rulebook.language import Property

Names = Literal["new", "shared"]
Item = TypeVar("Item")

NUMBERS = ("heat", "size", "charge", "count", "weight", "age", "depth", "speed", "level", "power", "price", "noise")
FLAGS = ("open", "lit", "wet", "locked", "awake", "clean", "broken", "full", "hidden", "frozen", "tied", "ripe")
WORDS = {
    "tint": ("red", "blue", "green"),
    "metal": ("iron", "gold", "tin"),
    "mood": ("calm", "sad", "glad"),
    "shape": ("round", "flat", "long"),
    "taste": ("sweet", "sour", "salty"),
    "place": ("north", "south", "west"),
    "cloth": ("silk", "wool", "linen"),
    "sound": ("loud", "soft", "mute"),
}
HELD_OUT = 4
"""One name in so many is for evaluation games alone."""
SHARED_VERBS, SHARED_OBJECTS, SHARED_PROPERTIES = 6, 9, 3
"""How many names the short lists have; of properties, of each kind."""


@dataclass(frozen=True)
class Vocabulary:
    """The names that games of one split may draw."""

    verbs: Sequence[str]
    objects: Sequence[str]
    numbers: Sequence[str]
    flags: Sequence[str]
    words: Sequence[str]

    def properties(self, rng: np.random.Generator) -> tuple[Property, ...]:
        """3 or 4 properties: a number and a flag at least, in any order."""
        kinds = ["number", "flag", *pick(rng, ["number", "flag", "word", "word"], int(rng.integers(1, 3)))]
        names = {
            "number": pick(rng, self.numbers, kinds.count("number")),
            "flag": pick(rng, self.flags, kinds.count("flag")),
            "word": pick(rng, self.words, kinds.count("word")),
        }
        drawn = [_property(kind, name) for kind, chosen in names.items() for name in chosen]
        return tuple(pick(rng, drawn, len(drawn)))


def _property(kind: str, name: str) -> Property:
    if kind == "word":
        return Property(name, "word", WORDS[name])
    return Property(name, "number" if kind == "number" else "flag")


@lru_cache(maxsize=4)
def vocabulary(names: Names, held_out: bool) -> Vocabulary:
    """The names of training games, or those of evaluation games."""
    spoken = syllables()
    if names == "shared":
        verbs, objects = spoken[:SHARED_VERBS], spoken[SHARED_VERBS : SHARED_VERBS + SHARED_OBJECTS]
        return Vocabulary(verbs, objects, *(list(pool)[:SHARED_PROPERTIES] for pool in (NUMBERS, FLAGS, WORDS)))
    verbs, objects = ([word for place, word in enumerate(spoken) if place % 2 == half] for half in (0, 1))
    return Vocabulary(*(_side(pool, held_out) for pool in (verbs, objects, NUMBERS, FLAGS, list(WORDS))))


def _side(pool: Sequence[str], held_out: bool) -> list[str]:
    return [word for place, word in enumerate(pool) if (place % HELD_OUT == HELD_OUT - 1) is held_out]


@lru_cache(maxsize=1)
def syllables() -> list[str]:
    """Invented words of three letters, in an order that means nothing."""
    words = ["".join(letters) for letters in product("bdfgklmnprstvz", "aeiou", "bdfgklmnprstvz")]
    return [words[i] for i in seeds.generator("rulebook", "syllables").permutation(len(words))]


def pick(rng: np.random.Generator, pool: Sequence[Item], count: int) -> list[Item]:
    return [pool[int(i)] for i in rng.permutation(len(pool))[:count]]
