"""The map: places to search, ways between them, what is near. Nothing here changes anything."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from starlette.responses import Response

from oneiro_web.sites.base import Visit
from oneiro_web.sites.lists import chosen, paged
from oneiro_web.sites.map.content import Region, region
from oneiro_web.sites.map.roads import MODES, distance_text, duration_text

PLACES_A_PAGE, NEAREST = 15, 12


@dataclass(frozen=True)
class Drawing:
    """What the picture of a map shows: lines by kind of road, marks, a route."""

    box: str
    scale: float
    lines: tuple[tuple[str, str], ...]
    marks: tuple[tuple[float, float, str], ...]
    route: str
    label: str


def land(visit: Visit) -> Region:
    """The region of this episode."""
    return region(visit.value("SELECT seed FROM region"))


@lru_cache(maxsize=512)
def lines(seed: int, west: float, south: float, width: float, height: float) -> tuple[tuple[str, str], ...]:
    """The roads inside a box as SVG paths, by kind; north is up."""
    roads = region(seed).roads
    paths: dict[str, list[str]] = {kind: [] for kind in ("path", "cycleway", "street", "road", "motorway")}
    for road in roads.roads:
        ends = (roads.points[road.start], roads.points[road.end])
        if any(west - 3 < x < west + width + 3 and south - 3 < y < south + height + 3 for x, y in ends):
            (x, y), (to_x, to_y) = ends
            paths[road.kind].append(
                f"M{x - west:.2f} {south + height - y:.2f}L{to_x - west:.2f} {south + height - to_y:.2f}"
            )
    return tuple((kind, "".join(parts)) for kind, parts in paths.items() if parts)


def draw(
    visit: Visit, box: tuple[float, float, float, float], junctions: dict[int, str], route: tuple[int, ...], label: str
) -> Drawing:
    """A picture of a part of the region with some junctions marked."""
    west, south, width, height = box
    points = land(visit).roads.points
    marks = tuple(
        (round(points[number][0] - west, 3), round(south + height - points[number][1], 3), kind)
        for number, kind in junctions.items()
    )
    way = " ".join(f"{points[number][0] - west:.3f},{south + height - points[number][1]:.3f}" for number in route)
    seed = visit.value("SELECT seed FROM region")
    return Drawing(f"0 0 {width:g} {height:g}", width, lines(seed, *box), marks, way, label)


def around(points: list[tuple[float, float]], margin: float) -> tuple[float, float, float, float]:
    """A box with these points in it, not too narrow."""
    west, east = min(x for x, _ in points) - margin, max(x for x, _ in points) + margin
    south, north = min(y for _, y in points) - margin, max(y for _, y in points) + margin
    short = (east - west) * 0.6 - (north - south)
    south, north = (south - short / 2, north + short / 2) if short > 0 else (south, north)
    return round(west, 2), round(south, 2), round(east - west, 2), round(north - south, 2)


def home(visit: Visit) -> Response:
    """Search, categories and the whole region."""
    towns = visit.rows("SELECT * FROM town ORDER BY population DESC, name")
    here = land(visit)
    label = f"Map of {here.name} with the towns {', '.join(row['name'] for row in towns)}"
    box = around([here.roads.points[row["junction"]] for row in towns], 3.0)
    picture = draw(visit, box, {row["junction"]: "town" for row in towns}, (), label)
    return visit.page("map/home.html", region=here.name, towns=towns, categories=categories_of(visit), picture=picture)


def categories_of(visit: Visit) -> list[sqlite3.Row]:
    """Every category with its count."""
    return visit.rows("SELECT category, count(*) AS places FROM place GROUP BY category ORDER BY category")


def town_names(visit: Visit) -> list[str]:
    """All towns."""
    return [row["name"] for row in visit.rows("SELECT name FROM town ORDER BY name")]


def categories(visit: Visit) -> Response:
    """The index of categories."""
    return visit.page("map/categories.html", categories=categories_of(visit))


def search(visit: Visit) -> Response:
    """Places by words, category and town."""
    words = visit.query.get("query", "").strip()[:100]
    kinds = [row["category"] for row in categories_of(visit)]
    category, town = chosen(visit, "category", tuple(kinds), ""), chosen(visit, "town", tuple(town_names(visit)), "")
    where, values = "1", []
    for word in words.lower().split()[:8]:
        where += " AND instr(lower(name || ' ' || category || ' ' || address || ' ' || town || ' ' || postcode), ?)"
        values.append(word)
    for column, value in (("category", category), ("town", town)):
        if value:
            where += f" AND {column} = ?"
            values.append(value)
    part = paged(visit, visit.value(f"SELECT count(*) FROM place WHERE {where}", *values), PLACES_A_PAGE)
    order = "lower(name) = lower(?) DESC, instr(lower(name), lower(?)) = 1 DESC, name COLLATE NOCASE, id"
    rows = visit.rows(
        f"SELECT * FROM place WHERE {where} ORDER BY {order} LIMIT ? OFFSET ?",
        *values,
        words,
        words,
        part.size,
        part.offset,
    )
    towns = visit.rows("SELECT * FROM town WHERE lower(name) = lower(?)", words)
    return visit.page("map/search.html", words=words, category=category, town=town, kinds=kinds,
    towns=town_names(visit),
                      places=rows, part=part, found_towns=towns)  # fmt: skip


def place(visit: Visit) -> Response:
    """All about a place."""
    row = visit.require("SELECT * FROM place WHERE id = ?", visit.path["id"])
    x, y = land(visit).roads.points[row["junction"]]
    label = f"Map of {row['town']} around {row['name']}"
    picture = draw(visit, around([(x, y)], 0.7), {row["junction"]: "place"}, (), label)
    return visit.page(
        "map/place.html", place=row, picture=picture, kinds=[kind["category"] for kind in categories_of(visit)]
    )


def nearest(visit: Visit) -> Response:
    """Places of a category around a place, by walking time."""
    centre = visit.require("SELECT * FROM place WHERE id = ?", visit.number("place", 0, 0))
    kinds = [row["category"] for row in categories_of(visit)]
    category = chosen(visit, "category", tuple(kinds), "")
    mode = chosen(visit, "mode", tuple(MODES), "foot")
    roads = land(visit).roads
    places = []
    sql = "SELECT * FROM place WHERE id != ?" + (" AND category = ?" if category else "")
    tree = roads.tree(mode, centre["junction"])
    rows = visit.rows(sql, centre["id"], *([category] if category else []))
    for row in sorted(rows, key=lambda row: (tree[row["junction"]][0], row["id"]))[:NEAREST]:
        metres = sum(road.metres for road in roads.walk(mode, centre["junction"], row["junction"])[1])
        places.append((row, distance_text(metres), duration_text(tree[row["junction"]][0])))
    return visit.page(
        "map/nearest.html",
        centre=centre,
        category=category,
        kinds=kinds,
        found=places,
        mode=mode,
        modes=list(MODES.items()),
    )


@dataclass(frozen=True)
class End:
    """Where a route begins or ends."""

    name: str
    detail: str
    junction: int


def resolve(visit: Visit, words: str) -> tuple[End | None, str, list[sqlite3.Row]]:
    """The place or town that words name, or what is wrong with them and which places they might mean."""
    if not words:
        return None, "", []
    row = visit.one("SELECT * FROM place WHERE name = ? COLLATE NOCASE", words)
    if row is None:
        town = visit.one("SELECT * FROM town WHERE name = ? COLLATE NOCASE", words)
        if town:
            return End(town["name"], "Town centre", town["junction"]), "", []
        near = visit.rows("SELECT * FROM place WHERE instr(lower(name), lower(?)) ORDER BY name, id LIMIT 6", words)
        if len(near) != 1:
            return (
                None,
                "Several places have this in their name: choose one." if near else "No place is called that.",
                near,
            )
        row = near[0]
    return End(row["name"], f"{row['address']}, {row['town']}", row["junction"]), "", []


def directions(visit: Visit) -> Response:
    """The fastest way between two places."""
    words = {name: visit.query.get(name, "").strip()[:100] for name in ("from", "to")}
    mode = chosen(visit, "mode", tuple(MODES), "car")
    errors: dict[str, str] = {}
    near: dict[str, list[sqlite3.Row]] = {}
    ends: dict[str, End | None] = {}
    for name in words:
        ends[name], error, near[name] = resolve(visit, words[name])
        if error:
            errors[name] = error
        elif not words[name] and any(words.values()):
            errors[name] = "Where to?" if name == "to" else "Where from?"
    start, end = ends["from"], ends["to"]
    values: dict[str, Any] = {"way": None, "picture": None}
    if start and end:
        roads = land(visit).roads
        way = roads.route(mode, start.junction, end.junction)
        assert way is not None
        label = f"Map of the way from {start.name} to {end.name}"
        box = around([roads.points[number] for number in way.junctions], 0.5)
        values = {
            "way": way, "distance": distance_text(way.metres), "duration": duration_text(way.seconds),
            "steps": [(step.text, distance_text(step.metres)) for step in way.steps],
            "picture": draw(visit, box, {start.junction: "start", end.junction: "end"}, way.junctions, label),
        }  # fmt: skip
    return visit.page(
        "map/directions.html",
        words=words,
        mode=mode,
        modes=list(MODES.items()),
        errors=errors,
        near=near,
        start=start,
        end=end,
        **values,
    )
