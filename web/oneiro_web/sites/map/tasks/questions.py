"""Questions about places, and about the ways between them."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from oneiro_web.sites.map.roads import MODES
from oneiro_web.sites.map.tasks.parts import (
    TRAVEL,
    Map,
    Trip,
    ask_way,
    by_time,
    find_nearest,
    list_places,
    look_at,
    open_place,
    some_category,
    some_part,
    some_place,
    some_trip,
    two_places,
    way,
)
from oneiro_web.tasks import Check
from oneiro_web.templates.base import Content, Question, Slots, counts, one_of, says
from oneiro_web.templates.script import Script, View


class Phone(Question, Map):
    name = "map/phone"
    intents = ("What is the phone number of {place}?", "I want to call {place}. Which number do I dial?")
    skills = ("search", "read")
    answer = ("text", "phone")

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        place = some_place(content, rng)
        return None if place is None else {"place": place["name"], "phone": place["phone"]}

    def look_up(self, see: View, slots: Slots) -> Script:
        yield from open_place(see, slots["place"])


class OpeningHours(Question, Map):
    name = "map/hours"
    intents = (
        "What are the opening hours of {place}? Write them as the map does.",
        "Give me the opening hours of {place}, exactly as they stand on its page.",
    )
    skills = ("search", "read")
    answer = ("text", "hours")

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        place = some_place(content, rng)
        return None if place is None else {"place": place["name"], "hours": place["hours"]}

    def look_up(self, see: View, slots: Slots) -> Script:
        yield from open_place(see, slots["place"])


class Address(Question, Map):
    name = "map/address"
    intents = (
        "What is the street address of the only {category} in {town}? Give number and street.",
        "There is one {category} in {town}. Give its street address, without the postcode and the town.",
    )
    skills = ("filter", "read")
    answer = ("text", "address")

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        part = some_part(content, rng, 1, 1)
        if part is None:
            return None
        sql = "SELECT address FROM place WHERE category = ? AND town = ?"
        address = content.value(sql, part["category"], part["town"])
        return {"category": part["category"], "town": part["town"], "address": address}

    def look_up(self, see: View, slots: Slots) -> Script:
        yield from list_places(see, slots["category"], slots["town"])


class CategoryCount(Map):
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


class TravelTime(Question, Map):
    name = "map/travel-time"
    intents = (
        "How long does it take to get from {start} to {end} {travel}?",
        "Give the travel time {travel} from {start} to {end}.",
    )
    skills = ("form", "read", "route")
    answer = ("duration", "duration")

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        trip = some_trip(content, rng)
        return {**trip.slots, "duration": trip.way.duration} if trip else None

    def look_up(self, see: View, slots: Slots) -> Script:
        yield from ask_way(see, slots["start"], slots["end"], slots["mode"])


class Distance(TravelTime):
    name = "map/distance"
    intents = (
        "How far is it from {start} to {end} {travel}?",
        "What is the distance between {start} and {end} if I travel {travel}?",
    )
    skills = ("form", "read", "route")
    answer = ("distance", "distance")

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        trip = some_trip(content, rng)
        return {**trip.slots, "distance": trip.way.distance} if trip else None


class InTime(Map):
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
        trip = Trip(*ends, mode, way(content, mode, *ends))
        found = trip.way
        minutes = round(found.seconds / 60 * one_of(rng, (0.5, 0.7, 0.85, 1.2, 1.5, 2.0)))
        if minutes < 3 or minutes * 60 == found.seconds:
            return None
        return {**trip.slots, "minutes": minutes, "enough": minutes * 60 > found.seconds, "duration": found.duration}

    def checks(self, slots: Slots) -> list[Check]:
        return [says("yes_no", slots["enough"]), says("duration", slots["duration"])]

    def script(self, see: View, slots: Slots) -> Script:
        yield from ask_way(see, slots["start"], slots["end"], slots["mode"])
        yield see.stop(f"{'Yes' if slots['enough'] else 'No'}, {slots['duration']}")


class NearerOfTwo(Question, Map):
    name = "map/nearer-of-two"
    intents = (
        "Which takes me less time {travel} from {start}: {one} or {other}?",
        "I am at {start}. Where do I arrive sooner {travel}, at {one} or at {other}?",
    )
    skills = ("form", "compare", "route")
    answer = ("text", "nearer")

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

    def look_up(self, see: View, slots: Slots) -> Script:
        yield from ask_way(see, slots["start"], slots["one"], slots["mode"])
        yield from see.fill("To", slots["other"])
        yield see.click("button", "Get directions")


class ModeGap(Map):
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


class Nearest(Question, Map):
    name = "map/nearest"
    intents = (
        "Which {category} is nearest to {place} on foot?",
        "I am at {place} and look for a {category}. To which one do I walk the shortest time?",
    )
    skills: ClassVar[tuple[str, ...]] = ("search", "form", "route")
    answer = ("text", "nearest")

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        place, category = some_place(content, rng), some_category(content, rng, 3)
        if place is None:
            return None
        nearest = by_time(content, "foot", place, category)[:4]
        first, *others = (way(content, "foot", place, row) for row in nearest)
        if not all(first.seconds < other.seconds and first.metres < other.metres for other in others):
            return None
        return {"place": place["name"], "category": category, "nearest": nearest[0]["name"]}

    def look_up(self, see: View, slots: Slots) -> Script:
        yield from find_nearest(see, slots["place"], slots["category"])


class NearestTime(Question, Map):
    name = "map/nearest-time"
    intents = (
        "How long does it take {travel} from {place} to the {category} that is reached first?",
        "I leave {place} {travel} for the closest {category}. What is the travel time?",
    )
    skills = ("search", "form", "route")
    answer = ("duration", "duration")

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

    def look_up(self, see: View, slots: Slots) -> Script:
        yield from find_nearest(see, slots["place"], slots["category"])
        yield see.select("Travel by", MODES[slots["mode"]])
        yield see.click("button", "Find nearest")


class NearestPhone(Nearest):
    name = "map/nearest-phone"
    intents = (
        "What is the phone number of the {category} that is nearest to {place} on foot?",
        "Find the {category} with the shortest walk from {place} and give me its phone number.",
    )
    skills = ("search", "form", "route", "read")
    held_out = True
    answer = ("text", "phone")

    def draw(self, content: Content, rng: np.random.Generator) -> Slots | None:
        found = super().draw(content, rng)
        return (
            None
            if found is None
            else {**found, "phone": content.value("SELECT phone FROM place WHERE name = ?", found["nearest"])}
        )

    def look_up(self, see: View, slots: Slots) -> Script:
        yield from super().look_up(see, slots)
        yield see.click("link", slots["nearest"])


class NearestAccessible(Map):
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


class BestRated(Question, Map):
    name = "map/best-rated"
    intents = (
        "Which place of the category {category} in {town} has the highest rating?",
        "Compare the ratings of all places under {category} in {town}. Which one is rated best?",
    )
    skills = ("filter", "read", "compare")
    answer = ("text", "best")

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

    def look_up(self, see: View, slots: Slots) -> Script:
        yield from list_places(see, slots["category"], slots["town"])
        yield from look_at(see, slots["names"])


TEMPLATES = (
    Phone,
    OpeningHours,
    Address,
    CategoryCount,
    TravelTime,
    Distance,
    InTime,
    NearerOfTwo,
    ModeGap,
    Nearest,
    NearestTime,
    NearestPhone,
    NearestAccessible,
    BestRated,
)
