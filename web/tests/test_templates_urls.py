"""Tasks that ask for a page: only that page scores, however the address of another one resembles it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from oneiro_web.env import WebEnv
from oneiro_web.tasks import Evaluation, Task
from oneiro_web.templates.registry import TEMPLATES
from oneiro_web.templates.table import ShowPage
from oneiro_web.validate import drawn_task

PAGES = [name for name, template in TEMPLATES.items() if isinstance(template, ShowPage)]
QUERIES = ("shopping/show-sorted", "gitlab/show-labelled", "gitlab/show-own", "map/show-way", "map/show-category")


@pytest.fixture(scope="module")
def world() -> Iterator[WebEnv]:
    world = WebEnv()
    yield world
    world.close()


def gold_of(task: Task) -> str:
    assert isinstance(task.eval, Evaluation) and task.eval.reference_url
    return task.eval.reference_url


def end_at(world: WebEnv, task: Task, url: str) -> float:
    """The score of going to an address and stopping there."""
    world.reset(seed=0, options={"task": task})
    world.step(f"goto [{url}]")
    world.step("stop []")
    return world.score


@pytest.mark.parametrize("name", PAGES)
def test_the_page_scores_and_a_blocked_one_or_a_missing_one_does_not(world: WebEnv, name: str) -> None:
    task = drawn_task(TEMPLATES[name], 0, 0)
    gold = gold_of(task)
    assert end_at(world, task, gold) == end_at(world, task, f"{gold}#top") == 1
    bare = gold.removeprefix("http://")
    path, mark, query = bare.partition("?")
    for wrong in (
        f"http://evil.example/{bare}",
        f"http://evil.example/?{gold}",
        f"http://{bare.split('/')[0]}:81/{bare.partition('/')[2]}",
        f"http://{path}/more{mark}{query}",
    ):
        assert end_at(world, task, wrong) == 0, wrong


@pytest.mark.parametrize("name", QUERIES)
def test_of_a_repeated_key_the_value_that_the_site_reads_counts(world: WebEnv, name: str) -> None:
    task = drawn_task(TEMPLATES[name], 0, 0)
    gold = gold_of(task)
    place, query = gold.split("?")
    key = query.partition("=")[0]
    assert end_at(world, task, f"{gold}&{key}=Winterby") == 0
    assert end_at(world, task, f"{gold}&{key}=") == 0
    assert end_at(world, task, f"{place}?{key}=Winterby&{query}") == 1
    assert end_at(world, task, f"{gold}&empty=") == 1


def test_a_narrower_list_or_its_second_page_is_another_page(world: WebEnv) -> None:
    task = drawn_task(TEMPLATES["map/show-category"], 0, 0)
    assert end_at(world, task, f"{gold_of(task)}&town=Winterby") == 0
    assert end_at(world, task, f"{gold_of(task)}&query=museum") == 0
    assert end_at(world, task, f"{gold_of(task)}&p=2") == 0
    assert end_at(world, task, f"{gold_of(task)}&p=1") == 1
