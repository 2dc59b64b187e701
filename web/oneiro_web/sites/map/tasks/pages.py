"""Tasks that end on a page of the map."""

from __future__ import annotations

from urllib.parse import urlencode

import numpy as np

from oneiro_web.sites.map.tasks.parts import ask_way, list_places, some_part, some_place, some_trip
from oneiro_web.templates.base import Content, Slots
from oneiro_web.templates.table import ShowPage, by, click, enter


def place(content: Content, rng: np.random.Generator) -> Slots | None:
    """A place that its category and address tell apart from all others."""
    row = some_place(content, rng)
    if row is None:
        return None
    sql = "SELECT count(*) FROM place WHERE address = ? AND town = ? AND category = ?"
    alone = content.value(sql, row["address"], row["town"], row["category"]) == 1
    names = {key: row[key] for key in ("category", "address", "town", "name")}
    return {**names, "place": row["id"]} if alone else None


def trip(content: Content, rng: np.random.Generator) -> Slots | None:
    drawn = some_trip(content, rng)
    return drawn.slots if drawn else None


def part(content: Content, rng: np.random.Generator) -> Slots | None:
    row = some_part(content, rng, 1, 99)
    return {"category": row["category"], "town": row["town"]} if row else None


TEMPLATES = (
    ShowPage(
        "map/show-place",
        "Open the page of the {category} at {address} in {town}.",
        "Show me everything about the {category} that stands at {address}, {town}.",
        skills="search navigate",
        draw=place,
        way=[enter("Search", "{address}"), click("link", "{name}")],
        page="/place/{place}",
    ),
    ShowPage(
        "map/show-way",
        "Show the directions from {start} to {end} {travel}.",
        "Show me how to get from {start} to {end} {travel}.",
        skills="form navigate route",
        draw=trip,
        way=[by(ask_way, "{start}", "{end}", "{mode}")],
        page=lambda slots: (
            f"/directions?{urlencode({'from': slots['start'], 'to': slots['end'], 'mode': slots['mode']})}"
        ),
    ),
    ShowPage(
        "map/show-category",
        "List all places of the category {category} in {town}.",
        "Show me what the map has under {category} in {town}.",
        skills="filter navigate",
        draw=part,
        way=[by(list_places, "{category}", "{town}")],
        page=lambda slots: f"/search?{urlencode({'category': slots['category'], 'town': slots['town']})}",
    ),
)
