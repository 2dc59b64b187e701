"""The learned value of pages: what an episode teaches, what a page says of its task, and what is learned of both."""

from __future__ import annotations

import math

import numpy as np
import pytest

from oneiro.agents.planning.base import Root
from oneiro.agents.planning.page_values import (
    Lesson,
    PageValue,
    common_words,
    cross_facts,
    facts_of,
    lessons_of,
)
from oneiro.runtime import seeds
from oneiro.tasks.webpage.model import BrowsedPage
from oneiro.tasks.webpage.state import PageState
from oneiro_web.diff import Item

WORDS = frozenset(("Show", "the", "way", "from", "foot.", "posts", "forum", "newest"))
TASK = "Show the way from Mill Park to Red Fig on foot."


def at(url: str, *lines: str, answer: str | None = None, task: str = TASK, past: int = 0) -> BrowsedPage:
    items = tuple(Item(number, line, 0) for number, line in enumerate(lines, start=1))
    return BrowsedPage("map", task, PageState(f"http://map.org/{url}", items), ("click [1]",) * past, answer=answer)


START, FORM = at("", "link 'Directions'"), at("way", "textbox 'From'", "StaticText 'Mill Park'")
RIGHT = at("way?from=Mill+Park&to=Red+Fig&mode=foot", "heading 'Red Fig'")


def test_an_episode_teaches_what_going_on_led_to_and_where_not_to_stop() -> None:
    views = [(START, "click [1]"), (FORM, "click [2]"), (RIGHT, "stop []")]
    assert list(lessons_of(views, True)) == [
        Lesson(START, False, 1.0),
        Lesson(START, True, 0.0),
        Lesson(FORM, False, 1.0),
        Lesson(FORM, True, 0.0),
        Lesson(RIGHT, True, 1.0),
    ]
    # Where a failed episode did not stop, stopping may have been right.
    assert list(lessons_of(views, False)) == [
        Lesson(START, False, 0.0),
        Lesson(FORM, False, 0.0),
        Lesson(RIGHT, True, 0.0),
    ]


def test_a_page_says_which_of_the_tasks_names_stand_where() -> None:
    found = facts_of(RIGHT, WORDS)
    assert "address has all of the names" in found and "headings has some of the names" in found
    assert "fields has some of the names" in facts_of(FORM, WORDS) and "page has none of the names" in facts_of(
        START, WORDS
    )
    assert {"query from=name 0", "query to=name 1", "query mode=foot", "asked foot", "asked way"} <= found
    assert "query from=name 1" in facts_of(at("way?from=Red+Fig&to=Mill+Park&mode=foot"), WORDS)
    other = "Show the way from Old Dock to Blue Hill on foot."
    same = at("way?from=Old+Dock&to=Blue+Hill&mode=foot", "heading 'Blue Hill'", task=other)
    assert facts_of(same, WORDS) == found  # other names, the same facts
    small = facts_of(at("f/nyc/new", task="Show the posts of the forum nyc, newest first."), WORDS | {"first."})
    assert "part 2=name 0" in small and "asked nyc" not in small  # a rare word is a name


def test_words_that_tasks_are_asked_by_are_told_by_how_often_they_stand() -> None:
    places = [f"Place{number}" for number in range(30)]
    assert common_words([f"Show the way to {place}" for place in places]) == {"Show", "the", "way"}


def test_a_value_learns_where_tasks_end_and_carries_it_to_other_names() -> None:
    lessons = []
    for one, two in (("Mill Park", "Red Fig"), ("Old Dock", "Blue Hill"), ("West Gate", "Iron Bridge")):
        task = f"Show the way from {one} to {two} on foot."
        first, second = one.replace(" ", "+"), two.replace(" ", "+")
        right = at(f"way?from={first}&to={second}&mode=foot", task=task)
        wrong = at(f"way?from={second}&to={first}&mode=foot", task=task)
        start = at("", "link 'Directions'", task=task)
        lessons += lessons_of([(start, "click [1]"), (right, "stop []")], True)
        lessons += lessons_of([(start, "click [1]"), (wrong, "stop []")], False)
    value = PageValue(lessons)
    task = "Show the way from Green Lane to High Mill on foot."
    pages = [
        at("way?from=Green+Lane&to=High+Mill&mode=foot", answer="", task=task),
        at("way?from=High+Mill&to=Green+Lane&mode=foot", answer="", task=task),
        at("", "link 'Directions'", answer="", task=task),
    ]
    right, wrong, early = value([Root(page) for page in pages])
    assert right.value > 0.7 and wrong.value < 0.3 and early.value < 0.2 and right.done and early.done


def test_the_regression_of_stops_by_a_second_implementation() -> None:
    """Twenty passes in a drawn order; a step of a half along the slope, over the root of the facts, and a pull to 0."""
    value = PageValue([])
    value.places = {name: place for place, name in enumerate("abc")}
    rows = [(np.array([0, 1]), 1.0), (np.array([1, 2]), 0.0), (np.array([2]), 1.0)]
    expected = [0.0, 0.0, 0.0]
    for epoch in range(20):
        for number in seeds.generator(3, "page value", epoch).permutation(3):
            row, target = rows[number]
            chance = 1 / (1 + math.exp(-sum(expected[place] for place in row)))
            for place in row:
                expected[place] -= 0.5 * ((chance - target) / math.sqrt(len(row)) + 1e-4 * expected[place])
    assert value._fit(rows, 3).tolist() == pytest.approx(expected)
    assert value._chance(np.array([1000.0, -2000.0]), np.array([0, 1])) == pytest.approx(math.exp(-30))


def test_facts_are_crossed_with_the_words_asked_by() -> None:
    assert cross_facts(frozenset(("asked b", "asked a", "kind y", "kind x"))) == [
        "kind x", "kind y", "asked a | kind x", "asked b | kind x", "asked a | kind y", "asked b | kind y",
    ]  # fmt: skip


def test_going_on_is_worth_the_share_of_successes_among_those_that_went_on_as_long() -> None:
    first, second = at("", "link 'Directions'"), at("way", "textbox 'From'", past=1)
    lessons = [
        *lessons_of([(first, "click [1]"), (second, "click [2]"), (RIGHT, "stop []")], True),
        *lessons_of([(first, "click [1]"), (second, "stop []")], False),
        *lessons_of([(first, "click [1]"), (second, "click [2]")], False),  # ran out of actions
        *lessons_of([(first, "stop []")], False),
    ]
    value = PageValue(lessons)
    pages = [at("cats?kind=7", past=past) for past in (0, 1, 2)]  # wherever it is
    # Three episodes went on from their first page and two from their second; one of them succeeded.
    assert [(one.value, one.done) for one in value([Root(page) for page in pages])] == [
        (pytest.approx(1 / 3), False),
        (pytest.approx(1 / 2), False),
        (0.0, False),
    ]
    stopped = at("way?from=Mill+Park&to=Red+Fig&mode=foot", "heading 'Red Fig'", answer="")
    (end,) = value([Root(stopped)])
    chance = value._chance(value.weights, value._row(facts_of(RIGHT, value.common)))
    assert chance > 0.5 and (end.value, end.done) == (chance, True)
    assert PageValue([])([Root(START)])[0].value == 0.0
