"""What things are called: invented verbs, objects and properties.

`new` names are made of syllables, and no game of one split has a word of the other: verbs, objects and properties of
evaluation games never occur in training. There are hundreds of each: a model that meets the same few property names in
all training games learns to write those, and gets none right where the names are others. `shared` names come from a
short list that both splits use, for a model that learns from nothing and can only know words it has seen; there only
the combinations of rules are new.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import Literal, TypeVar

import numpy as np

from oneiro.runtime import seeds
from oneiro.worlds.rules.rulebook.language import Property

Names = Literal["new", "shared"]
Item = TypeVar("Item")

SHARED_NUMBERS = ("heat", "size", "charge")
SHARED_FLAGS = ("open", "lit", "wet")
SHARED_WORDS = {"tint": ("red", "blue", "green"), "metal": ("iron", "gold", "tin"), "mood": ("calm", "sad", "glad")}
HELD_OUT = 4
"""One name in so many is for evaluation games alone."""
SHARED_VERBS, SHARED_OBJECTS = 6, 9
"""How many names the short lists have."""
VALUES = 3
"""Values that a property of words may have."""
CONSONANTS, VOWELS = "bdfgklmnprstvz", "aeiou"


@dataclass(frozen=True)
class Vocabulary:
    """The names that games of one split may draw."""

    verbs: Sequence[str]
    objects: Sequence[str]
    numbers: Sequence[str]
    flags: Sequence[str]
    words: Mapping[str, tuple[str, ...]]
    """Property -> its values."""

    def properties(self, rng: np.random.Generator) -> tuple[Property, ...]:
        """3 or 4 properties: a number and a flag at least, in any order."""
        kinds = ["number", "flag", *pick(rng, ["number", "flag", "word", "word"], int(rng.integers(1, 3)))]
        names = {
            "number": pick(rng, self.numbers, kinds.count("number")),
            "flag": pick(rng, self.flags, kinds.count("flag")),
        }
        drawn = [Property(name, "number") for name in names["number"]]
        drawn += [Property(name, "flag") for name in names["flag"]]
        drawn += [Property(name, "word", self.words[name]) for name in pick(rng, [*self.words], kinds.count("word"))]
        return tuple(pick(rng, drawn, len(drawn)))


@lru_cache(maxsize=4)
def vocabulary(names: Names, held_out: bool) -> Vocabulary:
    """The names of training games, or those of evaluation games."""
    spoken = invent(CONSONANTS, VOWELS, CONSONANTS)
    if names == "shared":
        verbs, objects = spoken[:SHARED_VERBS], spoken[SHARED_VERBS : SHARED_VERBS + SHARED_OBJECTS]
        return Vocabulary(verbs, objects, SHARED_NUMBERS, SHARED_FLAGS, SHARED_WORDS)
    verbs, objects = (_side(spoken[half::2], held_out) for half in (0, 1))
    longer = _side(invent(CONSONANTS, VOWELS, CONSONANTS, VOWELS), held_out)
    numbers, flags, words, values = (longer[part::4] for part in range(4))
    valued = {word: tuple(values[place * VALUES : (place + 1) * VALUES]) for place, word in enumerate(words)}
    return Vocabulary(verbs, objects, numbers, flags, {k: v for k, v in valued.items() if len(v) == VALUES})


def _side(pool: Sequence[str], held_out: bool) -> list[str]:
    return [word for place, word in enumerate(pool) if (place % HELD_OUT == HELD_OUT - 1) is held_out]


@lru_cache(maxsize=2)
def invent(*letters: str) -> list[str]:
    """Every word with one of these letters at each place, in an order that means nothing."""
    words = ["".join(chosen) for chosen in product(*letters)]
    return [words[i] for i in seeds.generator("rulebook", "syllables").permutation(len(words))]


def pick(rng: np.random.Generator, pool: Sequence[Item], count: int) -> list[Item]:
    return [pool[int(i)] for i in rng.permutation(len(pool))[:count]]
