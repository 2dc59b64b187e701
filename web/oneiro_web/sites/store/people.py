"""Names and places of made-up people, and draws from a seeded generator."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, count
from typing import TypeVar

from oneiro_web.seeds import generator
from oneiro_web.sites.dice import load_words

T = TypeVar("T")
WORDS = load_words("store")


class Draw:
    """Draws of plain Python values from one seeded generator.

    The values are those that numpy's `integers`, `random` and `permutation` give, computed here from the generator's
    bits: numpy takes five microseconds for a single value, and a store needs fifteen thousand.
    """

    BLOCK = 4096

    def __init__(self, *path: int | str) -> None:
        bits = generator(*path).bit_generator
        self.bits = chain.from_iterable(bits.random_raw(self.BLOCK).tolist() for _ in count()).__next__
        self.half: int | None = None
        """The upper half of 64 bits whose lower half was used last."""

    def word(self) -> int:
        """32 bits."""
        word = self.half
        if word is None:
            bits = self.bits()
            self.half = bits >> 32
            return bits & 0xFFFF_FFFF
        self.half = None
        return word

    def below(self, end: int) -> int:
        """A whole number from 0 to `end` - 1, by Lemire's way: the upper bits of a product, where the lower bits of
        those products that would make some numbers likelier are drawn again.
        """
        if end == 1:
            return 0
        if end > 1 << 32:
            size, draw = 64, self.bits
        else:
            size, draw = 32, self.word
        product = draw() * end
        lower = (1 << size) - 1
        if product & lower < end:
            uneven = (1 << size) % end
            while product & lower < uneven:
                product = draw() * end
        return product >> size

    def uniform(self) -> float:
        """A number in [0, 1)."""
        return float((self.bits() >> 11) * 2.0**-53)

    def number(self, least: int, most: int) -> int:
        """A whole number, both ends included."""
        return least + self.below(most - least + 1)

    def chance(self, share: float) -> bool:
        """True in this share of calls."""
        return self.uniform() < share

    def pick(self, items: Sequence[T]) -> T:
        """One of the items."""
        return items[self.below(len(items))]

    def some(self, items: Sequence[T], count: int) -> list[T]:
        """Different items, in random order: the first of a shuffled list."""
        pool, word = list(items), self.word
        for place in range(len(pool) - 1, 0, -1):
            mask = (1 << place.bit_length()) - 1
            while (other := word() & mask) > place:
                pass
            pool[place], pool[other] = pool[other], pool[place]
        return pool[:count]

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
