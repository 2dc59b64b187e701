"""Seeded choices and sentences, from which the sites' content is made."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import cache, lru_cache
from importlib import resources
from itertools import chain, count
from typing import Any, TypeVar

from oneiro_web.seeds import generator
from oneiro_web.sites.base import TODAY

Item = TypeVar("Item")
Vocabulary = Mapping[str, Sequence[str]]

SLOT = re.compile(r"\{(\w+)\}")


@cache
def load_words(place: str) -> dict[str, Any]:
    """The words of a folder of `sites`; "." has those that all sites share."""
    file = resources.files("oneiro_web.sites") / place / "words.json"
    loaded: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return loaded


NAMES = load_words(".")


@lru_cache(maxsize=4096)
def split_slots(pattern: str) -> list[str]:
    """A pattern's texts and, at the odd places between them, its slots."""
    return SLOT.split(pattern)


class Dice:
    """Choices drawn from one seeded stream. Much faster than asking the generator for each."""

    BLOCK = 4096

    def __init__(self, *path: int | str) -> None:
        draws = generator(*path)
        # Each block is used from its end.
        blocks = (reversed(draws.random(self.BLOCK).tolist()) for _ in count())
        self.uniform: Callable[[], float] = chain.from_iterable(blocks).__next__
        """A number in [0, 1)."""

    def number(self, least: int, most: int) -> int:
        """A whole number, both ends included."""
        return least + int(self.uniform() * (most - least + 1))

    def chance(self, share: float) -> bool:
        """True in this share of calls."""
        return self.uniform() < share

    def pick(self, items: Sequence[Item]) -> Item:
        """One of the items."""
        return items[int(self.uniform() * len(items))]

    def sample(self, items: Sequence[Item], size: int) -> list[Item]:
        """`size` different items in random order."""
        pool = list(items)
        for place in range(min(size, len(pool))):
            other = self.number(place, len(pool) - 1)
            pool[place], pool[other] = pool[other], pool[place]
        return pool[:size]

    def skewed(self, least: int, most: int) -> int:
        """A whole number that is mostly near `least`."""
        return least + int(self.uniform() ** 3 * (most - least + 1))

    def write(self, pattern: str, vocabulary: Vocabulary) -> str:
        """A pattern with each `{slot}` replaced by one of its words, slots inside words too."""
        parts = split_slots(pattern)
        while len(parts) > 1:
            texts = [self.pick(vocabulary[part]) if place % 2 else part for place, part in enumerate(parts)]
            pattern = "".join(texts)
            parts = SLOT.split(pattern) if "{" in pattern else [pattern]
        return pattern

    def moment(self, days: int, newest: int = 0) -> str:
        """A time between `days` and `newest` days before today."""
        minutes = self.number(newest * 1440 + 5, days * 1440)
        return stamp(TODAY - timedelta(minutes=minutes))

    def person(self) -> tuple[str, str]:
        """A first and a last name."""
        return self.pick(NAMES["first"]), self.pick(NAMES["last"])


def stamp(moment: datetime) -> str:
    """A time as the databases keep it."""
    return moment.isoformat(" ", "minutes")


def distinct(make: Callable[[], str], taken: set[str]) -> str:
    """What `make` gives, made again until it is new; numbered where the words run out."""
    for _ in range(40):
        made = made_first = make()
        if made not in taken:
            break
    else:
        number = 2
        while made in taken:
            made, number = f"{made_first} ({number})", number + 1
    taken.add(made)
    return made


def slug(title: str) -> str:
    """A title as a part of an address."""
    return "-".join(re.findall(r"[a-z0-9]+", title.lower()))[:60].strip("-") or "post"
