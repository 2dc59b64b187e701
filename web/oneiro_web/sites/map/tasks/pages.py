"""Tasks that end on a page of the map."""

from __future__ import annotations

from urllib.parse import urlencode

import numpy as np

from oneiro_web.sites.map.tasks.parts import (
    Map,
    ask_way,
    list_places,
    some_part,
    some_place,
    some_trip,
)
from oneiro_web.templates.base import Content, Slots
from oneiro_web.templates.script import Script, View


class ShowPlace(Map):
    name = "map/show-place"
    intents = (
        "Open the page of the {category} at {address} in {town}.",
        "Show me everything about the {category} that stands at {address}, {town}.",
    )
    skills = ("search", "navigate")

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        place = some_place(content, rng)
        if place is None:
            return None
        names = {key: place[key] for key in ("category", "address", "town", "name")}
        sql = "SELECT count(*) FROM place WHERE address = ? AND town = ? AND category = ?"
        same = content.value(sql, place["address"], place["town"], place["category"])
        return {**names, "place": place["id"]} if same == 1 else None

    def url(self, slots: Slots) -> str:
        return f"/place/{slots['place']}"

    def script(self, see: View, slots: Slots) -> Script:
        yield see.type("Search", slots["address"], enter=True)
        yield see.click("link", slots["name"])
        yield see.stop()


class ShowWay(Map):
    name = "map/show-way"
    intents = (
        "Show the directions from {start} to {end} {travel}.",
        "Show me how to get from {start} to {end} {travel}.",
    )
    skills = ("form", "navigate", "route")

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        trip = some_trip(content, rng)
        return trip.slots if trip else None

    def url(self, slots: Slots) -> str:
        return f"/directions?{urlencode({'from': slots['start'], 'to': slots['end'], 'mode': slots['mode']})}"

    def script(self, see: View, slots: Slots) -> Script:
        yield from ask_way(see, slots["start"], slots["end"], slots["mode"])
        yield see.stop()


class ShowCategory(Map):
    name = "map/show-category"
    intents = (
        "List all places of the category {category} in {town}.",
        "Show me what the map has under {category} in {town}.",
    )
    skills = ("filter", "navigate")

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        part = some_part(content, rng, 1, 99)
        return None if part is None else {"category": part["category"], "town": part["town"]}

    def url(self, slots: Slots) -> str:
        return f"/search?{urlencode({'category': slots['category'], 'town': slots['town']})}"

    def script(self, see: View, slots: Slots) -> Script:
        yield from list_places(see, slots["category"], slots["town"])
        yield see.stop()


TEMPLATES = (ShowPlace, ShowWay, ShowCategory)
