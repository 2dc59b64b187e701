"""An invented region: towns, streets, places, and the database with them."""

from __future__ import annotations

import math
import sqlite3
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

from oneiro_web.sites.base import Store, insert
from oneiro_web.sites.dice import NAMES, Dice, distinct, load_words
from oneiro_web.sites.map.roads import Point, Road, Roads

PLACES = 150
TOWN_SIZES = (7, 6, 5, 5, 4, 4)
"""Junctions along each side of a town's streets."""

WORDS = load_words("map")

SCHEMA = """
CREATE TABLE region (seed INTEGER NOT NULL, name TEXT NOT NULL);
CREATE TABLE town (name TEXT PRIMARY KEY, postcode TEXT NOT NULL, population INTEGER NOT NULL,
  junction INTEGER NOT NULL, lat REAL NOT NULL, lon REAL NOT NULL);
CREATE TABLE place (
  id INTEGER PRIMARY KEY, name TEXT NOT NULL, category TEXT NOT NULL, address TEXT NOT NULL, town TEXT NOT NULL,
  postcode TEXT NOT NULL, phone TEXT NOT NULL, hours TEXT NOT NULL, rating REAL NOT NULL, wheelchair TEXT NOT NULL,
  lat REAL NOT NULL, lon REAL NOT NULL, junction INTEGER NOT NULL);
CREATE INDEX place_category ON place (category);
CREATE INDEX place_town ON place (town);
CREATE INDEX place_name ON place (name COLLATE NOCASE);
"""


@dataclass(frozen=True)
class Town:
    """A town: its streets are a crooked grid around the centre."""

    name: str
    postcode: str
    population: int
    centre: int
    junctions: tuple[int, ...]
    east: tuple[str, ...]
    """Names of the streets from west to east, by row."""
    north: tuple[str, ...]


@dataclass(frozen=True)
class Region:
    """Everything the map knows."""

    name: str
    corner: Point
    """Latitude and longitude of the south-west corner."""
    towns: tuple[Town, ...]
    roads: Roads
    places: tuple[dict[str, Any], ...]

    def position(self, x: float, y: float) -> Point:
        """Latitude and longitude of a point."""
        return position(self.corner, x, y)


def position(corner: Point, x: float, y: float) -> Point:
    """Latitude and longitude of a point in kilometres from the corner."""
    lat, lon = corner
    return round(lat + y / 111.32, 6), round(lon + x / (111.32 * math.cos(math.radians(lat))), 6)


@lru_cache(maxsize=16)
def region(seed: int) -> Region:
    """The region of a seed."""
    dice = Dice("web", "map", seed)
    corner = (round(44 + dice.uniform() * 2, 4), round(-62 - dice.uniform() * 2, 4))
    points: dict[int, Point] = {}
    roads: list[Road] = []
    towns = build_towns(dice, points, roads)
    connect_towns(dice, towns, points, roads)
    places = build_places(dice, towns, points, corner)
    return Region(dice.pick(WORDS["regions"]), corner, tuple(towns), Roads(points, roads), tuple(places))


def metres_between(points: dict[int, Point], start: int, end: int, winding: float) -> int:
    """The length of a road that winds a little."""
    return max(20, round(math.dist(points[start], points[end]) * 1000 * winding))


def build_towns(dice: Dice, points: dict[int, Point], roads: list[Road]) -> list[Town]:
    """The towns in a ring of cells, each with its streets and footpaths."""
    cells = dice.sample(
        [(9.0, 9.0), (27.0, 7.0), (45.0, 11.0), (11.0, 27.0), (29.0, 25.0), (47.0, 28.0)], len(TOWN_SIZES)
    )
    taken: set[str] = set()
    towns: list[Town] = []
    for size, (cell_x, cell_y) in zip(TOWN_SIZES, cells, strict=True):
        name = distinct(lambda: dice.pick(WORDS["heads"]) + dice.pick(WORDS["tails"]), taken)
        west, south = cell_x + dice.uniform() * 4 - 2, cell_y + dice.uniform() * 4 - 2
        block = 0.17 + 0.1 * dice.uniform()
        grid: dict[tuple[int, int], int] = {}
        for row in range(size):
            for column in range(size):
                number = grid[row, column] = len(points) + 1
                shift_x, shift_y = (dice.uniform() - 0.5) * block * 0.4, (dice.uniform() - 0.5) * block * 0.4
                points[number] = (round(west + column * block + shift_x, 4), round(south + row * block + shift_y, 4))
        names = [f"{street} {dice.pick(WORDS['kinds'])}" for street in dice.sample(WORDS["streets"], 2 * size)]
        east, north = tuple(names[:size]), tuple(names[size:])
        for (row, column), number in grid.items():
            for end, street in (((row, column + 1), east[row]), ((row + 1, column), north[column])):
                if end in grid:
                    metres = metres_between(points, number, grid[end], 1 + 0.08 * dice.uniform())
                    roads.append(Road(number, grid[end], metres, street, "street"))
            if (row + 1, column + 1) in grid and dice.chance(0.15):
                other = grid[row + 1, column + 1]
                roads.append(
                    Road(number, other, metres_between(points, number, other, 1.03), f"{name} Footpath", "path")
                )
        postcode = f"{dice.number(10, 98)}{len(towns) + 1}"
        people = size * size * dice.number(600, 1500)
        towns.append(Town(name, postcode, people, grid[size // 2, size // 2], tuple(grid.values()), east, north))
    return towns


def connect_towns(dice: Dice, towns: list[Town], points: dict[int, Point], roads: list[Road]) -> None:
    """Country roads between neighbours, a motorway along the large towns, a cycle path between two of them."""

    def gap(pair: tuple[Town, Town]) -> float:
        return math.dist(points[pair[0].centre], points[pair[1].centre])

    pairs = sorted(((one, other) for place, one in enumerate(towns) for other in towns[place + 1 :]), key=gap)
    joined = {town.name: {town.name} for town in towns}
    number = dice.number(2, 40)
    for one, other in pairs:
        apart = joined[one.name] is not joined[other.name]
        if apart or gap((one, other)) < 21:
            number += dice.number(1, 5)
            stretch(dice, points, roads, one, other, f"Route {number}", "road")
        if apart:
            joined[one.name] |= joined[other.name]
            for name in joined[other.name]:
                joined[name] = joined[one.name]
    for place, (one, other) in enumerate(((towns[0], towns[1]), (towns[1], towns[2]), (towns[0], towns[3]))):
        stretch(dice, points, roads, one, other, f"Motorway {place + 1}", "motorway")
    stretch(dice, points, roads, *pairs[0], f"{dice.pick(('River', 'Coast', 'Old Railway'))} Cycleway", "cycleway")


def stretch(
    dice: Dice, points: dict[int, Point], roads: list[Road], one: Town, other: Town, name: str, kind: str
) -> None:
    """A road between two towns in four pieces, leaving from the junctions that face each other."""
    start = min(one.junctions, key=lambda number: (math.dist(points[number], points[other.centre]), number))
    end = min(other.junctions, key=lambda number: (math.dist(points[number], points[one.centre]), number))
    (x, y), (to_x, to_y) = points[start], points[end]
    before = start
    for share in (0.25, 0.5, 0.75):
        number = len(points) + 1
        points[number] = (
            round(x + (to_x - x) * share + dice.uniform() - 0.5, 4),
            round(y + (to_y - y) * share + dice.uniform() - 0.5, 4),
        )
        roads.append(Road(before, number, metres_between(points, before, number, 1.06), name, kind))
        before = number
    roads.append(Road(before, end, metres_between(points, before, end, 1.06), name, kind))


def build_places(dice: Dice, towns: list[Town], points: dict[int, Point], corner: Point) -> list[dict[str, Any]]:
    """Places, each at a junction of its own."""
    spots = {town.name: dice.sample(town.junctions, len(town.junctions)) for town in towns}
    wanted = [(town, category) for town in towns for category in WORDS["every_town"]] + [
        (towns[0], category) for category in WORDS["once"]
    ]
    room = {town.name: len(town.junctions) for town in towns}
    for town, _ in wanted:
        room[town.name] -= 1
    while len(wanted) < PLACES:
        town = dice.pick([town for town in towns if room[town.name]])
        room[town.name] -= 1
        wanted.append((town, dice.pick(WORDS["others"])))
    taken: set[str] = {town.name for town in towns}
    rows: list[dict[str, Any]] = []
    for town, category in wanted:
        junction = spots[town.name].pop()
        size = len(town.east)
        row, column = divmod(town.junctions.index(junction), size)
        street = dice.pick((town.east[row], town.north[column]))
        x, y = points[junction]
        lat, lon = position(corner, x + 0.012, y + 0.009)
        rows.append({
            "name": distinct(partial(place_name, dice, category, town), taken), "category": category,
            "address": f"{dice.number(1, 180)} {street}", "town": town.name,
            "postcode": f"{town.postcode}{dice.number(10, 29)}",
            "phone": f"(555) {dice.number(200, 989)}-{dice.number(1000, 9999)}",
            "hours": dice.pick(WORDS["hours"].get(category, ("Mo-Su 00:00-24:00",))),
            "rating": round(2.5 + 2.5 * dice.uniform(), 1),
            "wheelchair": dice.pick(("yes", "yes", "limited", "no")), "lat": lat, "lon": lon, "junction": junction,
        })  # fmt: skip
    rows.sort(key=lambda row: row["name"])
    return [{"id": number, **row} for number, row in enumerate(rows, 1)]


def place_name(dice: Dice, category: str, town: Town) -> str:
    """A name for a place of this category."""
    if category in WORDS["nouns"]:
        return f"{dice.pick(WORDS['adjectives'])} {dice.pick(WORDS['nouns'][category])} {WORDS['endings'][category]}"
    if category in WORDS["chains"]:
        return f"{dice.pick(WORDS['chains'][category])} {town.name}"
    if category == "park":
        return f"{dice.pick(NAMES['last'])} Park"
    if category in ("school", "museum", "hospital", "swimming pool"):
        return f"{dice.pick(NAMES['last'])} {category.title()}"
    if category in ("airport", "university"):
        return f"{category.title()} of {town.name}" if category == "university" else f"{town.name} Airport"
    return f"{town.name} {category.title()}"


def fill(db: sqlite3.Connection, seed: int) -> None:
    """Write the content of a seed. Junctions and roads are never changed: pages ask the region for them."""
    land = region(seed)
    insert(db, "region", [{"seed": seed, "name": land.name}])
    for town in land.towns:
        lat, lon = land.position(*land.roads.points[town.centre])
        insert(db, "town", [{"name": town.name, "postcode": town.postcode, "population": town.population,
        "junction": town.centre,
                             "lat": lat, "lon": lon}])  # fmt: skip
    insert(db, "place", land.places)


STORE = Store("map", SCHEMA, fill)
