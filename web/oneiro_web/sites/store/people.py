"""Names and places of made-up people, and draws from a seeded generator."""

# ruff: noqa: E501 (tables read better with one row a line)

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from oneiro_web.seeds import generator

T = TypeVar("T")

FIRST_NAMES = (
    "Ada", "Amara", "Anton", "Beatriz", "Caleb", "Camila", "Dana", "Dmitri", "Elena", "Elias", "Farah", "Felix", "Grace",
    "Hana", "Hugo", "Imani", "Ines", "Jonas", "Joy", "Kaito", "Katya", "Leila", "Liam", "Lucia", "Mara", "Mateo", "Mei",
    "Nadia", "Nolan", "Noor", "Olga", "Omar", "Paula", "Pedro", "Priya", "Quinn", "Rafael", "Rosa", "Samir", "Sofia",
    "Talia", "Tomas", "Uma", "Victor", "Wanda", "Xavier", "Yara", "Yusuf", "Zara", "Zeno",
)  # fmt: skip
LAST_NAMES = (
    "Abbott", "Acosta", "Baptiste", "Bergman", "Castellan", "Chaudry", "Dalton", "Delacroix", "Eriksen", "Estrada",
    "Fairley", "Farrow", "Galindo", "Greaves", "Haddad", "Holloway", "Ibarra", "Ito", "Jensen", "Juarez", "Kaplan",
    "Kowal", "Lindqvist", "Lowry", "Marchetti", "Mbeki", "Nakata", "Novak", "Okafor", "Ostrander", "Pacheco", "Quigley",
    "Rahman", "Rourke", "Santoro", "Szabo", "Tanaka", "Thackeray", "Ueda", "Valdez", "Vance", "Whitlock", "Yilmaz",
    "Zamora",
)  # fmt: skip
STREETS = (
    "Maple Street",
    "Harbor Road",
    "Cedar Avenue",
    "Willow Lane",
    "Mill Road",
    "Orchard Drive",
    "Station Street",
    "Prospect Avenue",
    "Lakeview Terrace",
    "Chapel Hill Road",
    "Juniper Court",
    "Union Square",
)
CITIES = (
    ("Portland", "Oregon", "972"), ("Madison", "Wisconsin", "537"), ("Austin", "Texas", "787"), ("Savannah", "Georgia", "314"),
    ("Boulder", "Colorado", "803"), ("Ithaca", "New York", "148"), ("Tucson", "Arizona", "857"), ("Duluth", "Minnesota", "558"),
    ("Asheville", "North Carolina", "288"), ("Burlington", "Vermont", "054"), ("Pittsburgh", "Pennsylvania", "152"),
    ("Oakland", "California", "946"), ("Spokane", "Washington", "992"), ("Lansing", "Michigan", "489"),
)  # fmt: skip
MAIL_HOSTS = ("mailbox.example", "post.example", "inbox.example", "letters.example")


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
        return self.pick(FIRST_NAMES), self.pick(LAST_NAMES)

    def phone(self) -> str:
        return f"{self.number(201, 989)}-555-{self.number(0, 9999):04d}"

    def address(self) -> dict[str, str]:
        """Street, city, region, postcode, country."""
        city, region, code = self.pick(CITIES)
        street = f"{self.number(3, 2400)} {self.pick(STREETS)}"
        if self.chance(0.2):
            street += f", Apt {self.number(1, 40)}"
        post = f"{code}{self.number(1, 99):02d}"
        return {"street": street, "city": city, "region": region, "postcode": post, "country": "United States"}
