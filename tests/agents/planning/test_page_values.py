"""The learned value of pages: what an episode teaches, what a page says of its task, and what is learned of both."""

from __future__ import annotations

import pytest

from oneiro.agents.planning.base import Root
from oneiro.agents.planning.page_values import Lesson, PageValue, features_of, lessons_of
from oneiro.tasks.webpage.dynamics import BrowsedPage
from oneiro.tasks.webpage.state import PageState
from oneiro_web.diff import Item

TASK = "Show the way from Mill Park to Red Fig on foot."


def at(url: str, *lines: str, answer: str | None = None, task: str = TASK) -> BrowsedPage:
    items = tuple(Item(number, line, 0) for number, line in enumerate(lines, start=1))
    return BrowsedPage("map", task, PageState(f"http://map.org/{url}", items), answer=answer)


START, FORM = at("", "link 'Directions'"), at("way", "textbox 'From'", "StaticText 'Mill Park'")
RIGHT = at("way?from=Mill+Park&to=Red+Fig&mode=foot", "heading 'Red Fig'")


def test_an_episode_teaches_what_followed_and_where_not_to_stop() -> None:
    views = [(START, "click [1]"), (FORM, "click [2]"), (RIGHT, "stop []")]
    assert list(lessons_of(views, True)) == [
        Lesson(START, False, pytest.approx(0.9**3)),
        Lesson(START, True, 0.0),
        Lesson(FORM, False, pytest.approx(0.9**2)),
        Lesson(FORM, True, 0.0),
        Lesson(RIGHT, True, 1.0),
    ]
    # A failure says nothing of stops that were not tried.
    assert list(lessons_of(views, False)) == [
        Lesson(START, False, 0.0),
        Lesson(FORM, False, 0.0),
        Lesson(RIGHT, True, 0.0),
    ]


def test_a_page_says_which_of_the_tasks_names_stand_where() -> None:
    found = features_of(RIGHT)
    assert found["names in address"] == 1.0 == found["all names in address"]
    assert found["names in headings"] == 0.5 and found["all names in headings"] == 0.0
    assert features_of(FORM)["names in fields"] == 0.5 and features_of(START)["names in page"] == 0.0
    pairs = [name.rpartition(" ")[2] for name in found if "=" in name and "|" not in name]
    assert pairs == ["0", "1", "mode=foot"]  # from is the first name, to the second
    swapped = features_of(at("way?from=Red+Fig&to=Mill+Park&mode=foot"))
    assert {name for name in swapped if "from=name 1" in name} and not {name for name in found if "from=name 1" in name}


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
    assert right.value > 0.8 and wrong.value < 0.3 and early.value < 0.2
    assert right.done and early.done
    (on,) = value([Root(at("", "link 'Directions'", task=task))])
    assert not on.done and 0.2 < on.value < 0.6  # half of the episodes that began there got the reward, two actions on
