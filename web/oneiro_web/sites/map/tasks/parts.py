"""What tasks on the map share: places and ways to ask about, and the ways to their pages."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from oneiro_web.actions import Action, Kind
from oneiro_web.grading.values import read_one
from oneiro_web.sites.map.content import region
from oneiro_web.sites.map.roads import MODES, distance_text, duration_text
from oneiro_web.templates.base import Content, Slots, one_of
from oneiro_web.templates.script import Script, View

TRAVEL = {"car": "by car", "bicycle": "by bicycle", "foot": "on foot"}


@dataclass(frozen=True)
class Way:
    """A way, and how the map shows it."""

    metres: int
    distance: str
    duration: str

    @property
    def seconds(self) -> int:
        """The shown duration."""
        return int(read_one("duration", self.duration))


def way(content: Content, mode: str, start: sqlite3.Row, end: sqlite3.Row) -> Way:
    """The fastest way between two places."""
    route = region(content.seed).roads.route(mode, start["junction"], end["junction"])
    assert route is not None
    return Way(route.metres, distance_text(route.metres), duration_text(route.seconds))


@lru_cache(maxsize=64)
def clear_names(seed: int) -> frozenset[int]:
    """The places whose name stands in no other's, so that it means one place only."""
    names = {place["id"]: place["name"].lower() for place in region(seed).places}
    every = "\n".join(names.values())
    return frozenset(number for number, name in names.items() if every.count(name) == 1)


def some_place(content: Content, rng: np.random.Generator, where: str = "1", *values: str | int) -> sqlite3.Row | None:
    """A place with a clear name."""
    rows = content.rows(f"SELECT * FROM place WHERE {where} ORDER BY id", *values)
    clear = [row for row in rows if row["id"] in clear_names(content.seed)]
    return one_of(rng, clear) if clear else None


def two_places(content: Content, rng: np.random.Generator, where: str = "1") -> tuple[sqlite3.Row, sqlite3.Row] | None:
    """Two places; `where` may compare the second with `?`, the first one's town."""
    start = some_place(content, rng)
    end = start and some_place(content, rng, f"id != ? AND ({where})", start["id"], *[start["town"]] * where.count("?"))
    return (start, end) if start and end else None


def some_category(content: Content, rng: np.random.Generator, least: int) -> str:
    """A category with at least so many places."""
    rows = content.rows("SELECT category FROM place GROUP BY category HAVING count(*) >= ? ORDER BY category", least)
    return str(one_of(rng, rows)["category"])


def some_part(content: Content, rng: np.random.Generator, least: int, most: int) -> sqlite3.Row | None:
    """A category and a town with so many places of it."""
    return content.pick(
        rng,
        "SELECT category, town, count(*) AS places FROM place GROUP BY category, town HAVING places BETWEEN ? AND ? "
        "ORDER BY category, town",
        least,
        most,
    )


@dataclass(frozen=True)
class Trip:
    """A way from one place to another by one means."""

    start: sqlite3.Row
    end: sqlite3.Row
    mode: str
    way: Way

    @property
    def slots(self) -> Slots:
        """What an intent and a script need of it."""
        names = {"start": self.start["name"], "end": self.end["name"]}
        return {**names, "mode": self.mode, "travel": TRAVEL[self.mode]}


def some_trip(content: Content, rng: np.random.Generator) -> Trip | None:
    """A trip between any two places."""
    ends, mode = two_places(content, rng), one_of(rng, list(MODES))
    return Trip(*ends, mode, way(content, mode, *ends)) if ends else None


def by_time(content: Content, mode: str, start: sqlite3.Row, category: str) -> list[sqlite3.Row]:
    """The places of a category, the one that is reached first in front."""
    tree = region(content.seed).roads.tree(mode, start["junction"])
    rows = content.rows("SELECT * FROM place WHERE category = ? AND id != ?", category, start["id"])
    return sorted(rows, key=lambda row: (tree[row["junction"]][0], row["id"]))


def open_place(see: View, place: str) -> Script:
    """From any page without a search to a place's."""
    yield see.type("Search", place, enter=True)
    yield see.click("link", place)


def ask_way(see: View, start: str, end: str, mode: str) -> Script:
    """From any page to the directions between two places."""
    yield see.click("link", "Directions")
    yield see.type("From", start)
    yield see.type("To", end)
    if mode != "car":
        yield see.select("Travel by", MODES[mode])
    yield see.click("button", "Get directions")


def list_places(see: View, category: str, town: str) -> Script:
    """From any page to the places of a category in a town."""
    yield see.click("link", "All places")
    yield see.select("Category", category.capitalize())
    yield see.select("Town", town)
    yield see.click("button", "Search")


def find_nearest(see: View, place: str, category: str) -> Script:
    """From any page to the places of a category around a place, by walking time."""
    yield from open_place(see, place)
    yield see.select("Category", category.capitalize())
    yield see.click("button", "Find nearest")


def look_at(see: View, names: list[str]) -> Script:
    """Open one place of a list after the other."""
    for number, name in enumerate(names):
        if number:
            yield Action(Kind.BACK)
        yield see.click("link", name)
