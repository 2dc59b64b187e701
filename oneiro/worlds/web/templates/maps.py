"""Tasks on the map."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar
from urllib.parse import urlencode

import numpy as np

from oneiro.worlds.web.actions import Action, Kind
from oneiro.worlds.web.evaluation.values import read_one
from oneiro.worlds.web.sites.maps_content import region
from oneiro.worlds.web.sites.maps_roads import MODES, distance_text, duration_text
from oneiro.worlds.web.tasks import Check
from oneiro.worlds.web.templates.base import Content, Slots, Template, counts, says
from oneiro.worlds.web.templates.script import Script, View
from oneiro.worlds.web.templates.words import one_of

TRAVEL = {"car": "by car", "bicycle": "by bicycle", "foot": "on foot"}


class _Map(Template):
    site = "map"


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
    found = region(content.seed).roads.route(mode, start["junction"], end["junction"])
    assert found is not None
    return Way(found.metres, distance_text(found.metres), duration_text(found.seconds))


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


def by_time(content: Content, mode: str, start: sqlite3.Row, category: str) -> list[sqlite3.Row]:
    """The places of a category, the one that is reached first in front."""
    tree = region(content.seed).roads.tree(mode, start["junction"])
    rows = content.rows("SELECT * FROM place WHERE category = ? AND id != ?", category, start["id"])
    return sorted(rows, key=lambda row: (tree[row["junction"]][0], row["id"]))


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


# Ways through the site -----------------------------------------------------------------------------------------------


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


# Answers -------------------------------------------------------------------------------------------------------------


class Phone(_Map):
    name = "map/phone"
    intents = ("What is the phone number of {place}?", "I want to call {place}. Which number do I dial?")
    skills = ("search", "read")

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        place = some_place(content, rng)
        return None if place is None else {"place": place["name"], "phone": place["phone"]}

    def checks(self, slots: Slots) -> list[Check]:
        return [says("text", slots["phone"])]

    def script(self, see: View, slots: Slots) -> Script:
        yield from open_place(see, slots["place"])
        yield see.stop(slots["phone"])


class OpeningHours(_Map):
    name = "map/hours"
    intents = (
        "What are the opening hours of {place}? Write them as the map does.",
        "Give me the opening hours of {place}, exactly as they stand on its page.",
    )
    skills = ("search", "read")

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        place = some_place(content, rng)
        return None if place is None else {"place": place["name"], "hours": place["hours"]}

    def checks(self, slots: Slots) -> list[Check]:
        return [says("text", slots["hours"])]

    def script(self, see: View, slots: Slots) -> Script:
        yield from open_place(see, slots["place"])
        yield see.stop(slots["hours"])


class Address(_Map):
    name = "map/address"
    intents = (
        "What is the street address of the only {category} in {town}? Give number and street.",
        "There is one {category} in {town}. Give its street address, without the postcode and the town.",
    )
    skills = ("filter", "read")

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        part = some_part(content, rng, 1, 1)
        if part is None:
            return None
        sql = "SELECT address FROM place WHERE category = ? AND town = ?"
        address = content.value(sql, part["category"], part["town"])
        return {"category": part["category"], "town": part["town"], "address": address}

    def checks(self, slots: Slots) -> list[Check]:
        return [says("text", slots["address"])]

    def script(self, see: View, slots: Slots) -> Script:
        yield from list_places(see, slots["category"], slots["town"])
        yield see.stop(slots["address"])


class CategoryCount(_Map):
    name = "map/category-count"
    intents = (
        "How many places of the category {category} are there in {town}, and how many in {other}? Answer with two "
        "numbers in this order.",
        "Count the places that are listed under {category}, first in {town}, then in {other}. Answer with two numbers.",
    )
    skills = ("filter", "count")

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        sql = "SELECT town, count(*) AS places FROM place WHERE category = ? GROUP BY town ORDER BY town"
        category = some_category(content, rng, 5)
        rows = content.rows(sql, category)
        if len(rows) < 2:
            return None
        one, other = (rows[number] for number in rng.permutation(len(rows))[:2])
        names = {"category": category, "town": one["town"], "other": other["town"]}
        return {**names, "counts": [one["places"], other["places"]]} if one["places"] + other["places"] > 2 else None

    def checks(self, slots: Slots) -> list[Check]:
        return [counts(*slots["counts"])]

    def script(self, see: View, slots: Slots) -> Script:
        yield from list_places(see, slots["category"], slots["town"])
        yield see.select("Town", slots["other"])
        yield see.click("button", "Search")
        yield see.stop(", ".join(map(str, slots["counts"])))


class TravelTime(_Map):
    name = "map/travel-time"
    intents = (
        "How long does it take to get from {start} to {end} {travel}?",
        "Give the travel time {travel} from {start} to {end}.",
    )
    skills = ("form", "read", "route")

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        ends, mode = two_places(content, rng), one_of(rng, list(MODES))
        if ends is None:
            return None
        found = way(content, mode, *ends)
        names = {"start": ends[0]["name"], "end": ends[1]["name"]}
        return {**names, "mode": mode, "travel": TRAVEL[mode], "duration": found.duration}

    def checks(self, slots: Slots) -> list[Check]:
        return [says("duration", slots["duration"])]

    def script(self, see: View, slots: Slots) -> Script:
        yield from ask_way(see, slots["start"], slots["end"], slots["mode"])
        yield see.stop(slots["duration"])


class Distance(_Map):
    name = "map/distance"
    intents = (
        "How far is it from {start} to {end} {travel}?",
        "What is the distance between {start} and {end} if I travel {travel}?",
    )
    skills = ("form", "read", "route")

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        ends, mode = two_places(content, rng), one_of(rng, list(MODES))
        if ends is None:
            return None
        found = way(content, mode, *ends)
        names = {"start": ends[0]["name"], "end": ends[1]["name"]}
        return {**names, "mode": mode, "travel": TRAVEL[mode], "distance": found.distance}

    def checks(self, slots: Slots) -> list[Check]:
        return [says("distance", slots["distance"])]

    def script(self, see: View, slots: Slots) -> Script:
        yield from ask_way(see, slots["start"], slots["end"], slots["mode"])
        yield see.stop(slots["distance"])


class InTime(_Map):
    name = "map/in-time"
    intents = (
        "Can I get from {start} to {end} {travel} within {minutes} minutes? Answer yes or no, and how long it takes.",
        "I have {minutes} minutes from {start} to {end} {travel}. Is that enough, yes or no, and how long is the trip?",
    )
    skills = ("form", "compare", "route")

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        mode = one_of(rng, list(MODES))
        ends = two_places(content, rng, "town = ?" if mode == "foot" else "town != ?")
        if ends is None:
            return None
        found = way(content, mode, *ends)
        minutes = round(found.seconds / 60 * one_of(rng, (0.5, 0.7, 0.85, 1.2, 1.5, 2.0)))
        if minutes < 3 or minutes * 60 == found.seconds:
            return None
        names = {"start": ends[0]["name"], "end": ends[1]["name"], "mode": mode, "travel": TRAVEL[mode]}
        return {**names, "minutes": minutes, "enough": minutes * 60 > found.seconds, "duration": found.duration}

    def checks(self, slots: Slots) -> list[Check]:
        return [says("yes_no", slots["enough"]), says("duration", slots["duration"])]

    def script(self, see: View, slots: Slots) -> Script:
        yield from ask_way(see, slots["start"], slots["end"], slots["mode"])
        yield see.stop(f"{'Yes' if slots['enough'] else 'No'}, {slots['duration']}")


class NearerOfTwo(_Map):
    name = "map/nearer-of-two"
    intents = (
        "Which takes me less time {travel} from {start}: {one} or {other}?",
        "I am at {start}. Where do I arrive sooner {travel}, at {one} or at {other}?",
    )
    skills = ("form", "compare", "route")

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        start, category, mode = some_place(content, rng), some_category(content, rng, 3), one_of(rng, list(MODES))
        if start is None:
            return None
        where = "id NOT IN (?, ?) AND category = ?"
        one = some_place(content, rng, where, start["id"], 0, category)
        other = one and some_place(content, rng, where, start["id"], one["id"], category)
        if one is None or other is None:
            return None
        first, second = way(content, mode, start, one).seconds, way(content, mode, start, other).seconds
        if first == second:
            return None
        names = {"start": start["name"], "one": one["name"], "other": other["name"]}
        nearer = names["one"] if first < second else names["other"]
        return {**names, "mode": mode, "travel": TRAVEL[mode], "nearer": nearer}

    def checks(self, slots: Slots) -> list[Check]:
        return [says("text", slots["nearer"])]

    def script(self, see: View, slots: Slots) -> Script:
        yield from ask_way(see, slots["start"], slots["one"], slots["mode"])
        yield from see.fill("To", slots["other"])
        yield see.click("button", "Get directions")
        yield see.stop(slots["nearer"])


class ModeGap(_Map):
    name = "map/mode-gap"
    intents = (
        "How much longer does it take from {start} to {end} {slow} than {fast}? Take the times that the map shows.",
        "What is the difference between the travel times {slow} and {fast} from {start} to {end}?",
    )
    skills = ("form", "compare", "route")
    held_out = True

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        ends = two_places(content, rng, "town = ?")
        slow, fast = one_of(rng, (("foot", "bicycle"), ("foot", "car"), ("bicycle", "car")))
        if ends is None:
            return None
        minutes = (way(content, slow, *ends).seconds - way(content, fast, *ends).seconds) // 60
        if minutes < 2:
            return None
        names = {"start": ends[0]["name"], "end": ends[1]["name"], "slow": TRAVEL[slow], "fast": TRAVEL[fast]}
        return {**names, "modes": [slow, fast], "minutes": minutes}

    def checks(self, slots: Slots) -> list[Check]:
        return [says("duration", 60 * slots["minutes"])]

    def script(self, see: View, slots: Slots) -> Script:
        slow, fast = slots["modes"]
        yield from ask_way(see, slots["start"], slots["end"], slow)
        yield see.select("Travel by", MODES[fast])
        yield see.click("button", "Get directions")
        yield see.stop(f"{slots['minutes']} minutes")


class Nearest(_Map):
    name = "map/nearest"
    intents = (
        "Which {category} is nearest to {place} on foot?",
        "I am at {place} and look for a {category}. To which one do I walk the shortest time?",
    )
    skills: ClassVar[tuple[str, ...]] = ("search", "form", "route")

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        place, category = some_place(content, rng), some_category(content, rng, 3)
        if place is None:
            return None
        nearest = by_time(content, "foot", place, category)[:4]
        first, *others = (way(content, "foot", place, row) for row in nearest)
        if not all(first.seconds < other.seconds and first.metres < other.metres for other in others):
            return None
        return {"place": place["name"], "category": category, "nearest": nearest[0]["name"]}

    def checks(self, slots: Slots) -> list[Check]:
        return [says("text", slots["nearest"])]

    def script(self, see: View, slots: Slots) -> Script:
        yield from find_nearest(see, slots["place"], slots["category"])
        yield see.stop(slots["nearest"])


class NearestTime(_Map):
    name = "map/nearest-time"
    intents = (
        "How long does it take {travel} from {place} to the {category} that is reached first?",
        "I leave {place} {travel} for the closest {category}. What is the travel time?",
    )
    skills = ("search", "form", "route")

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        place, category, mode = (
            some_place(content, rng),
            some_category(content, rng, 2),
            one_of(rng, ("car", "bicycle")),
        )
        if place is None:
            return None
        first = by_time(content, mode, place, category)[0]
        duration = way(content, mode, place, first).duration
        names = {"place": place["name"], "category": category, "mode": mode, "travel": TRAVEL[mode]}
        return {**names, "duration": duration}

    def checks(self, slots: Slots) -> list[Check]:
        return [says("duration", slots["duration"])]

    def script(self, see: View, slots: Slots) -> Script:
        yield from find_nearest(see, slots["place"], slots["category"])
        yield see.select("Travel by", MODES[slots["mode"]])
        yield see.click("button", "Find nearest")
        yield see.stop(slots["duration"])


class NearestPhone(Nearest):
    name = "map/nearest-phone"
    intents = (
        "What is the phone number of the {category} that is nearest to {place} on foot?",
        "Find the {category} with the shortest walk from {place} and give me its phone number.",
    )
    skills = ("search", "form", "route", "read")
    held_out = True

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        found = super().draw(content, rng)
        return (
            None
            if found is None
            else {**found, "phone": content.value("SELECT phone FROM place WHERE name = ?", found["nearest"])}
        )

    def checks(self, slots: Slots) -> list[Check]:
        return [says("text", slots["phone"])]

    def script(self, see: View, slots: Slots) -> Script:
        yield from find_nearest(see, slots["place"], slots["category"])
        yield see.click("link", slots["nearest"])
        yield see.stop(slots["phone"])


class NearestAccessible(_Map):
    name = "map/nearest-accessible"
    intents = (
        'Which is the nearest {category} to {place}, on foot, whose wheelchair access is "yes"?',
        'Starting at {place}, which {category} with full wheelchair access ("yes") has the shortest walking time?',
    )
    skills = ("search", "form", "route", "compare")
    held_out = True

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        place, category = some_place(content, rng), some_category(content, rng, 4)
        if place is None:
            return None
        rows = by_time(content, "foot", place, category)
        seconds = [way(content, "foot", place, row).seconds for row in rows]
        chosen = next((number for number, row in enumerate(rows) if row["wheelchair"] == "yes"), None)
        if chosen is None or not 1 <= chosen <= 3 or len({*seconds[: chosen + 2]}) < len(seconds[: chosen + 2]):
            return None
        return {"place": place["name"], "category": category, "tried": [row["name"] for row in rows[: chosen + 1]]}

    def checks(self, slots: Slots) -> list[Check]:
        return [says("text", slots["tried"][-1])]

    def script(self, see: View, slots: Slots) -> Script:
        yield from find_nearest(see, slots["place"], slots["category"])
        yield from look_at(see, slots["tried"])
        yield see.stop(slots["tried"][-1])


class BestRated(_Map):
    name = "map/best-rated"
    intents = (
        "Which place of the category {category} in {town} has the highest rating?",
        "Compare the ratings of all places under {category} in {town}. Which one is rated best?",
    )
    skills = ("filter", "read", "compare")

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        part = some_part(content, rng, 2, 5)
        if part is None:
            return None
        rows = content.rows(
            "SELECT name, rating FROM place WHERE category = ? AND town = ? ORDER BY rating DESC, id",
            part["category"],
            part["town"],
        )
        if rows[0]["rating"] == rows[1]["rating"]:
            return None
        names = [row["name"] for row in rows]
        return {"category": part["category"], "town": part["town"], "best": names[0], "names": sorted(names)}

    def checks(self, slots: Slots) -> list[Check]:
        return [says("text", slots["best"])]

    def script(self, see: View, slots: Slots) -> Script:
        yield from list_places(see, slots["category"], slots["town"])
        yield from look_at(see, slots["names"])
        yield see.stop(slots["best"])


def look_at(see: View, names: list[str]) -> Script:
    """Open one place of a list after the other."""
    for number, name in enumerate(names):
        if number:
            yield Action(Kind.BACK)
        yield see.click("link", name)


# Pages ---------------------------------------------------------------------------------------------------------------


class ShowPlace(_Map):
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

    def checks(self, slots: Slots) -> list[Check]:
        return []

    def url(self, slots: Slots) -> str:
        return f"/place/{slots['place']}"

    def script(self, see: View, slots: Slots) -> Script:
        yield see.type("Search", slots["address"], enter=True)
        yield see.click("link", slots["name"])
        yield see.stop()


class ShowWay(_Map):
    name = "map/show-way"
    intents = (
        "Show the directions from {start} to {end} {travel}.",
        "Show me how to get from {start} to {end} {travel}.",
    )
    skills = ("form", "navigate", "route")

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        ends, mode = two_places(content, rng), one_of(rng, list(MODES))
        names = ends and {"start": ends[0]["name"], "end": ends[1]["name"]}
        return {**names, "mode": mode, "travel": TRAVEL[mode]} if names else None

    def checks(self, slots: Slots) -> list[Check]:
        return []

    def url(self, slots: Slots) -> str:
        return f"/directions?{urlencode({'from': slots['start'], 'to': slots['end'], 'mode': slots['mode']})}"

    def script(self, see: View, slots: Slots) -> Script:
        yield from ask_way(see, slots["start"], slots["end"], slots["mode"])
        yield see.stop()


class ShowCategory(_Map):
    name = "map/show-category"
    intents = (
        "List all places of the category {category} in {town}.",
        "Show me what the map has under {category} in {town}.",
    )
    skills = ("filter", "navigate")

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        part = some_part(content, rng, 1, 99)
        return None if part is None else {"category": part["category"], "town": part["town"]}

    def checks(self, slots: Slots) -> list[Check]:
        return []

    def url(self, slots: Slots) -> str:
        return f"/search?{urlencode({'category': slots['category'], 'town': slots['town']})}"

    def script(self, see: View, slots: Slots) -> Script:
        yield from list_places(see, slots["category"], slots["town"])
        yield see.stop()


TEMPLATES = (
    Phone, OpeningHours, Address, CategoryCount, TravelTime, Distance, InTime, NearerOfTwo, ModeGap, Nearest,
    NearestTime, NearestPhone, NearestAccessible, BestRated, ShowPlace, ShowWay, ShowCategory,
)  # fmt: skip
