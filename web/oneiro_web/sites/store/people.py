"""Names and places of made-up people, and draws from a seeded generator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from oneiro_web.seeds import generator
from oneiro_web.sites.dice import load_words

T = TypeVar("T")
WORDS = load_words("store")


class Draw:
    """Draws of plain Python values from one seeded generator."""

    def __init__(self, *path: int | str) -> None:
        self.rng = generator(*path)

    def number(self, least: int, most: int) -> int:
        """A whole number, both ends included."""
        return int(self.rng.integers(least, most + 1))

    def chance(self, share: float) -> bool:
        return bool(self.rng.random() < share)

    def pick(self, items: Sequence[T]) -> T:
        return items[int(self.rng.integers(len(items)))]

    def some(self, items: Sequence[T], count: int) -> list[T]:
        """Different items, in random order."""
        return [items[int(i)] for i in self.rng.permutation(len(items))[:count]]

    def person(self) -> tuple[str, str]:
        return self.pick(WORDS["first_names"]), self.pick(WORDS["last_names"])

    def phone(self) -> str:
        return f"{self.number(201, 989)}-555-{self.number(0, 9999):04d}"

    def address(self) -> dict[str, str]:
        """Street, city, region, postcode, country."""
        city, region, code = self.pick(WORDS["cities"])
        street = f"{self.number(3, 2400)} {self.pick(WORDS['streets'])}"
        if self.chance(0.2):
            street += f", Apt {self.number(1, 40)}"
        post = f"{code}{self.number(1, 99):02d}"
        return {"street": street, "city": city, "region": region, "postcode": post, "country": "United States"}
