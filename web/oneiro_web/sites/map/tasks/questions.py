"""Questions about places, and about the ways between them."""

from __future__ import annotations

import numpy as np

from oneiro_web.sites.map.roads import MODES
from oneiro_web.sites.map.tasks.parts import (
    TRAVEL,
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
from oneiro_web.templates.base import Content, Slots, one_of
from oneiro_web.templates.script import Script, View
from oneiro_web.templates.table import Draw, Question, add, by, choose, click


def place_with(column: str, where: str = "1") -> Draw:
    """A place, and what its page says of it."""

    def draw(content: Content, rng: np.random.Generator) -> Slots | None:
        place = some_place(content, rng, where)
        return {"place": place["name"], column: place[column]} if place else None

    return draw


def place_with_hours(content: Content, rng: np.random.Generator) -> Slots | None:
    """A place by its opening hours, any as likely as others: half of all places are always open."""
    row = content.pick(rng, "SELECT DISTINCT hours FROM place WHERE hours NOT LIKE '%00:00-24:00' ORDER BY hours")
    place = some_place(content, rng, "hours = ?", row["hours"]) if row else None
    return {"place": place["name"], "hours": place["hours"]} if place else None


def only_one(content: Content, rng: np.random.Generator) -> Slots | None:
    """A category that a town has one place of."""
    part = some_part(content, rng, 1, 1)
    return {"category": part["category"], "town": part["town"]} if part else None


def three_towns(content: Content, rng: np.random.Generator) -> Slots | None:
    sql = "SELECT town, count(*) AS places FROM place WHERE category = ? GROUP BY town ORDER BY town"
    category = some_category(content, rng, 5)
    rows = content.rows(sql, category)
    drawn = [rows[number] for number in rng.permutation(len(rows))[:3]]
    counts = [row["places"] for row in drawn]
    if len(drawn) < 3 or sum(counts) < 6:  # smaller ones are too easily guessed
        return None
    towns = {name: row["town"] for name, row in zip(("town", "other", "third"), drawn, strict=True)}
    return {"category": category, **towns, "counts": counts}


def trip_with(column: str) -> Draw:
    """A trip, and its `duration` or `distance`."""

    def draw(content: Content, rng: np.random.Generator) -> Slots | None:
        trip = some_trip(content, rng)
        return {**trip.slots, column: getattr(trip.way, column)} if trip else None

    return draw


def in_time(content: Content, rng: np.random.Generator) -> Slots | None:
    mode = one_of(rng, list(MODES))
    ends = two_places(content, rng, "town = ?" if mode == "foot" else "town != ?")
    if ends is None:
        return None
    trip = Trip(*ends, mode, way(content, mode, *ends))
    seconds = trip.way.seconds
    minutes = round(seconds / 60 * one_of(rng, (0.5, 0.7, 0.85, 1.2, 1.5, 2.0)))
    if minutes < 3 or minutes * 60 == seconds:
        return None
    return {**trip.slots, "minutes": minutes, "enough": minutes * 60 > seconds, "duration": trip.way.duration}


def nearer_of_two(content: Content, rng: np.random.Generator) -> Slots | None:
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


def ask_both(see: View, slots: Slots) -> Script:
    yield from ask_way(see, slots["start"], slots["one"], slots["mode"])
    yield from see.fill("To", slots["other"])
    yield see.click("button", "Get directions")


def mode_gap(content: Content, rng: np.random.Generator) -> Slots | None:
    ends = two_places(content, rng)
    slow, fast = one_of(rng, (("foot", "bicycle"), ("foot", "car"), ("bicycle", "car")))
    if ends is None:
        return None
    minutes = (way(content, slow, *ends).seconds - way(content, fast, *ends).seconds) // 60
    if minutes < 6:
        return None
    names = {"start": ends[0]["name"], "end": ends[1]["name"], "slow": TRAVEL[slow], "fast": TRAVEL[fast]}
    return {**names, "modes": [slow, fast], "minutes": minutes}


def ask_both_modes(see: View, slots: Slots) -> Script:
    slow, fast = slots["modes"]
    yield from ask_way(see, slots["start"], slots["end"], slow)
    yield see.select("Travel by", MODES[fast])
    yield see.click("button", "Get directions")


def nearest(content: Content, rng: np.random.Generator) -> Slots | None:
    place, category = some_place(content, rng), some_category(content, rng, 3)
    if place is None:
        return None
    rows = by_time(content, "foot", place, category)[:4]
    first, *others = (way(content, "foot", place, row) for row in rows)
    if not all(first.seconds < other.seconds and first.metres < other.metres for other in others):
        return None
    return {"place": place["name"], "category": category, "nearest": rows[0]["name"]}


def nearest_time(content: Content, rng: np.random.Generator) -> Slots | None:
    place, category = some_place(content, rng), some_category(content, rng, 2)
    mode = one_of(rng, ("car", "bicycle", "foot"))
    if place is None:
        return None
    first = way(content, mode, place, by_time(content, mode, place, category)[0])
    if first.seconds < 600:  # nearly all are a few minutes, which is easily guessed
        return None
    names = {"place": place["name"], "category": category, "mode": mode, "travel": TRAVEL[mode]}
    return {**names, "duration": first.duration}


def nearest_accessible(content: Content, rng: np.random.Generator) -> Slots | None:
    place, category = some_place(content, rng), some_category(content, rng, 4)
    if place is None:
        return None
    rows = by_time(content, "foot", place, category)
    seconds = [way(content, "foot", place, row).seconds for row in rows]
    chosen = next((number for number, row in enumerate(rows) if row["wheelchair"] == "yes"), None)
    if chosen is None or not 1 <= chosen <= 3 or len({*seconds[: chosen + 2]}) < len(seconds[: chosen + 2]):
        return None
    return {"place": place["name"], "category": category, "tried": [row["name"] for row in rows[: chosen + 1]]}


def best_rated(content: Content, rng: np.random.Generator) -> Slots | None:
    part = some_part(content, rng, 2, 5)
    if part is None:
        return None
    sql = "SELECT name, rating FROM place WHERE category = ? AND town = ? ORDER BY rating DESC, id"
    rows = content.rows(sql, part["category"], part["town"])
    if rows[0]["rating"] == rows[1]["rating"]:
        return None
    names = [row["name"] for row in rows]
    return {"category": part["category"], "town": part["town"], "best": names[0], "names": sorted(names)}


THE_WAY = by(ask_way, "{start}", "{end}", "{mode}")
THE_PLACES = by(list_places, "{category}", "{town}")
THE_NEAREST = by(find_nearest, "{place}", "{category}")

TEMPLATES = (
    Question(
        "map/phone",
        "What is the phone number of {place}?",
        "I want to call {place}. Which number do I dial?",
        skills="search read",
        draw=place_with("phone"),
        way=[by(open_place, "{place}")],
        answer="text phone",
    ),
    Question(
        "map/hours",
        "What are the opening hours of {place}? Write them as the map does.",
        "Give me the opening hours of {place}, exactly as they stand on its page.",
        skills="search read",
        draw=place_with_hours,
        way=[by(open_place, "{place}")],
        answer="text hours",
    ),
    Question(
        "map/address",
        "What is the street address of the only {category} in {town}? Give number and street.",
        "There is one {category} in {town}. Give its street address, without the postcode and the town.",
        skills="filter read",
        draw=add(only_one, "SELECT address FROM place WHERE category = :category AND town = :town"),
        way=[THE_PLACES],
        answer="text address",
    ),
    Question(
        "map/category-count",
        "How many places of the category {category} are there in {town}, how many in {other}, and how many in {third}? "
        "Answer with three numbers in this order.",
        "Count the places that are listed under {category}, first in {town}, then in {other}, then in {third}. Answer "
        "with three numbers.",
        skills="filter count",
        draw=three_towns,
        way=[
            THE_PLACES,
            choose("Town", "{other}"),
            click("button", "Search"),
            choose("Town", "{third}"),
            click("button", "Search"),
        ],
        answer="counts counts",
    ),
    Question(
        "map/travel-time",
        "How long does it take to get from {start} to {end} {travel}?",
        "Give the travel time {travel} from {start} to {end}.",
        skills="form read route",
        draw=trip_with("duration"),
        way=[THE_WAY],
        answer="duration duration",
    ),
    Question(
        "map/distance",
        "How far is it from {start} to {end} {travel}?",
        "What is the distance between {start} and {end} if I travel {travel}?",
        skills="form read route",
        draw=trip_with("distance"),
        way=[THE_WAY],
        answer="distance distance",
    ),
    Question(
        "map/in-time",
        "Can I get from {start} to {end} {travel} within {minutes} minutes? Answer yes or no, and how long it takes.",
        "I have {minutes} minutes from {start} to {end} {travel}. Is that enough, yes or no, and how long is the trip?",
        skills="form compare route",
        draw=in_time,
        way=[THE_WAY],
        answer="yes_no enough, duration duration",
    ),
    Question(
        "map/nearer-of-two",
        "Which takes me less time {travel} from {start}: {one} or {other}?",
        "I am at {start}. Where do I arrive sooner {travel}, at {one} or at {other}?",
        skills="form compare route",
        draw=nearer_of_two,
        way=[ask_both],
        answer="text nearer",
    ),
    Question(
        "map/mode-gap",
        "How much longer does it take from {start} to {end} {slow} than {fast}? Take the times that the map shows.",
        "What is the difference between the travel times {slow} and {fast} from {start} to {end}?",
        skills="form compare route",
        held_out=True,
        draw=mode_gap,
        way=[ask_both_modes],
        answer="minutes minutes",
    ),
    Question(
        "map/nearest",
        "Which {category} is nearest to {place} on foot?",
        "I am at {place} and look for a {category}. To which one do I walk the shortest time?",
        skills="search form route",
        draw=nearest,
        way=[THE_NEAREST],
        answer="text nearest",
    ),
    Question(
        "map/nearest-time",
        "How long does it take {travel} from {place} to the {category} that is reached first?",
        "I leave {place} {travel} for the closest {category}. What is the travel time?",
        skills="search form route",
        draw=nearest_time,
        way=[
            THE_NEAREST,
            lambda see, slots: see.select("Travel by", MODES[slots["mode"]]),
            click("button", "Find nearest"),
        ],
        answer="duration duration",
    ),
    Question(
        "map/nearest-phone",
        "What is the phone number of the {category} that is nearest to {place} on foot?",
        "Find the {category} with the shortest walk from {place} and give me its phone number.",
        skills="search form route read",
        held_out=True,
        draw=add(nearest, "SELECT phone FROM place WHERE name = :nearest"),
        way=[THE_NEAREST, click("link", "{nearest}")],
        answer="text phone",
    ),
    Question(
        "map/nearest-accessible",
        'Which is the nearest {category} to {place}, on foot, whose wheelchair access is "yes"?',
        'Starting at {place}, which {category} with full wheelchair access ("yes") has the shortest walking time?',
        skills="search form route compare",
        held_out=True,
        draw=nearest_accessible,
        way=[THE_NEAREST, lambda see, slots: look_at(see, slots["tried"])],
        answer="last tried",
    ),
    Question(
        "map/best-rated",
        "Which place of the category {category} in {town} has the highest rating?",
        "Compare the ratings of all places under {category} in {town}. Which one is rated best?",
        skills="filter read compare",
        draw=best_rated,
        way=[THE_PLACES, lambda see, slots: look_at(see, slots["names"])],
        answer="text best",
    ),
)
