"""The map: its content, routes by hand and by properties, search, hostile input."""

from __future__ import annotations

import html
import itertools
import math

import pytest

from oneiro_web.sites.map.content import region
from oneiro_web.sites.map.roads import MODES, Road, Roads, distance_text, duration_text, turn
from oneiro_web.sites.web import original
from web.tests.visitor import HOSTILE, Visitor, crawl, fingerprint


@pytest.fixture
def atlas() -> Visitor:
    return Visitor("map")


def toy() -> Roads:
    """Four junctions: a square whose diagonal is a footpath and whose long way round is a motorway."""
    points = {1: (0.0, 0.0), 2: (1.0, 0.0), 3: (1.0, 1.0), 4: (0.0, 1.0)}
    return Roads(points, [
        Road(1, 2, 1000, "South Street", "street"), Road(2, 3, 1000, "East Street", "street"), Road(1, 3, 1500,
        "Green Path", "path"),
        Road(1, 4, 2500, "Ring", "motorway"), Road(4, 3, 2500, "Ring", "motorway"),
    ])  # fmt: skip


def test_routes_on_a_toy_graph_are_those_worked_by_hand() -> None:
    roads = toy()
    car = roads.route("car", 1, 3)  # 5 km at 100 km/h is 180 s, 2 km at 32 km/h is 225 s
    assert car is not None and (car.metres, car.junctions) == (5000, (1, 4, 3))
    assert math.isclose(car.seconds, 180)
    assert [(step.text, step.metres) for step in car.steps] == [("Head north on Ring", 5000)]
    bicycle = roads.route("bicycle", 1, 3)  # 2 km at 16 km/h is 450 s, 1.5 km at 10 km/h is 540 s
    assert bicycle is not None and math.isclose(bicycle.seconds, 450) and bicycle.metres == 2000
    assert [step.text for step in bicycle.steps] == ["Head east on South Street", "Turn left onto East Street"]
    foot = roads.route("foot", 3, 1)  # 1.5 km at 4.5 km/h is 1200 s, 2 km at 5 km/h is 1440 s
    assert foot is not None and math.isclose(foot.seconds, 1200) and foot.junctions == (3, 1)
    assert [step.text for step in foot.steps] == ["Head south-west on Green Path"]
    assert roads.route("foot", 1, 4) is None
    stay = roads.route("car", 2, 2)
    assert stay is not None and (stay.metres, stay.seconds, stay.steps) == (0, 0, ())


def test_turns_distances_and_durations_in_words() -> None:
    assert [turn(90, 90 + change) for change in (5, 45, 90, -90, 170)] == [
        "Continue on", "Bear right onto", "Turn right onto", "Turn left onto", "Turn back onto"]  # fmt: skip
    assert turn(350, 80) == "Turn right onto"
    assert [distance_text(metres) for metres in (0, 999, 1000, 12_340)] == ["0 m", "999 m", "1.0 km", "12.3 km"]
    assert [duration_text(seconds) for seconds in (0, 90, 3600, 3900)] == ["1 min", "2 min", "1 h 00 min", "1 h 05 min"]


@pytest.mark.parametrize("mode", MODES)
def test_the_way_back_is_as_long_and_no_detour_is_faster(mode: str) -> None:
    land = region(1)
    ends = [place["junction"] for place in land.places[::21]]
    time = {}
    for start, end in itertools.product(ends, ends):
        there, back = land.roads.route(mode, start, end), land.roads.route(mode, end, start)
        assert there is not None and back is not None
        assert (there.metres, there.junctions) == (back.metres, back.junctions[::-1]) and math.isclose(
            there.seconds, back.seconds
        )
        straight = math.dist(land.roads.points[start], land.roads.points[end]) * 1000
        assert there.metres >= straight - 1 and sum(step.metres for step in there.steps) == there.metres
        time[start, end] = there.seconds
    for start, by, end in itertools.product(ends, ends, ends):
        assert time[start, end] <= time[start, by] + time[by, end] + 1e-6


def test_the_fastest_time_agrees_with_floyd_and_warshall() -> None:
    roads = region(2).roads
    town = region(2).towns[4].junctions
    time = {(one, other): 0.0 if one == other else math.inf for one in town for other in town}
    for one in town:
        for other, seconds, _ in roads.ways("foot")[one]:
            if other in town:
                time[one, other] = min(time[one, other], seconds)
    for by, one, other in itertools.product(town, town, town):
        time[one, other] = min(time[one, other], time[one, by] + time[by, other])
    for one, other in time:
        assert math.isclose(roads.tree("foot", one)[other][0], time[one, other], abs_tol=1e-6)


@pytest.mark.parametrize("seed", [0, 5])
def test_the_content_has_the_promised_sizes_and_everything_is_reached_by_every_mode(seed: int) -> None:
    atlas = Visitor("map", seed)
    assert atlas.value("SELECT count(*) FROM place") == atlas.value("SELECT count(DISTINCT name) FROM place") == 150
    assert atlas.value("SELECT count(*) FROM town") == 6 == atlas.value("SELECT count(DISTINCT town) FROM place")
    assert atlas.value("SELECT count(DISTINCT junction) FROM place") == 150
    junctions = {row[0] for row in atlas.db.execute("SELECT junction FROM place")}
    for mode in MODES:
        assert junctions <= set(region(seed).roads.tree(mode, next(iter(junctions))))
    assert not atlas.value("SELECT count(*) FROM place WHERE rating < 1 OR rating > 5 OR phone = '' OR hours = ''")


def test_a_seed_always_gives_the_same_rows_and_another_seed_others() -> None:
    first = fingerprint("map", 3)
    original.cache_clear()
    region.cache_clear()
    assert fingerprint("map", 3) == first != fingerprint("map", 4)


def test_every_link_within_reach_answers_and_nothing_changes(atlas: Visitor) -> None:
    assert atlas.changes(lambda: crawl(atlas, 150)) == {}


def test_a_place_tells_all_about_itself(atlas: Visitor) -> None:
    row = atlas.db.execute("SELECT * FROM place WHERE id = 40").fetchone()
    page = atlas.text("/place/40")
    for name in ("name", "address", "phone", "hours", "postcode", "rating", "lat", "lon", "wheelchair"):
        assert html.escape(str(row[name])) in page, name
    assert 'role="img" aria-label="Map of' in page


def test_search_finds_by_name_category_and_town(atlas: Visitor) -> None:
    row = atlas.db.execute("SELECT * FROM place WHERE category = 'cafe'").fetchone()
    page = atlas.text("/search", query=row["name"].upper())
    assert page.index(f'/place/{row["id"]}"') == page.index("/place/")
    for query, where in (({"category": "cafe"}, "category = 'cafe'"), ({"town": row["town"]},
    f"town = '{row['town']}'"),
                         ({"query": f"cafe {row['town']}"}, None)):  # fmt: skip
        if where:
            assert f"{atlas.value(f'SELECT count(*) FROM place WHERE {where}')} places" in atlas.text(
                "/search", **query
            )
        else:
            assert html.escape(row["name"]) in atlas.text("/search", **query)


def test_the_nearest_places_come_by_time_on_the_way(atlas: Visitor) -> None:
    land = region(0)
    centre = land.places[9]
    cafes = [place for place in land.places if place["category"] == "cafe" and place["id"] != centre["id"]]
    ways = {place["id"]: land.roads.route("foot", centre["junction"], place["junction"]) for place in cafes}
    wanted = sorted(ways, key=lambda number: (ways[number].seconds, number))[:12]  # type: ignore[union-attr]
    page = atlas.text("/nearest", place=centre["id"], category="cafe")
    assert [page.index(f'<td><a href="/place/{number}"') for number in wanted] == sorted(
        page.index(f'<td><a href="/place/{number}"') for number in wanted
    )
    assert page.count('<td><a href="/place/') == len(wanted)
    assert distance_text(ways[wanted[0]].metres) in page  # type: ignore[union-attr]


def test_directions_say_distance_time_and_steps(atlas: Visitor) -> None:
    land = region(0)
    start, end = land.places[3], land.places[77]
    for mode in MODES:
        way = land.roads.route(mode, start["junction"], end["junction"])
        assert way is not None
        page = atlas.text("/directions", **{"from": start["name"].lower(), "to": end["name"], "mode": mode})
        assert f"<dd>{distance_text(way.metres)}</dd>" in page and f"<dd>{duration_text(way.seconds)}</dd>" in page
        assert all(html.escape(step.text) in page for step in way.steps)
    towns = atlas.text("/directions", **{"from": land.towns[0].name, "to": land.towns[1].name})
    assert "Arrive at" in towns


def test_directions_to_nowhere_say_what_is_wrong(atlas: Visitor) -> None:
    name = region(0).places[3]["name"]
    for query, error in (({"from": name, "to": ""}, "Where to?"), ({"from": "", "to": name}, "Where from?"),
                         ({"from": name, "to": "zzzz"}, "No place is called that."), ({"from": name,
                         "to": "Library"}, "choose one")):  # fmt: skip
        page = atlas.text("/directions", **query)
        assert error in page and "Arrive at" not in page


def test_unknown_things_are_not_found(atlas: Visitor) -> None:
    for path in (
        "/place/0",
        "/place/999999",
        "/place/99999999999999999999",
        "/nearest",
        "/nearest?place=9999",
        "/other",
        "/login",
    ):
        assert atlas.get(path).status == 404, path


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_input_is_shown_as_text_and_breaks_nothing(atlas: Visitor, text: str) -> None:
    query = dict.fromkeys(("query", "category", "town", "p", "from", "to", "mode"), text)
    for path in ("/", "/search", "/directions", "/categories"):
        assert "<script>alert" not in atlas.text(path, **query)
    assert "<script>alert" not in atlas.text("/nearest", place=1, category=text, mode=text)
    assert atlas.get("/nearest", place=text).status == 404
