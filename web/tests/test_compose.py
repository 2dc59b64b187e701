"""Composed templates: the oracle does them, nobody else does, and what is held out is made of parts that are taught."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import cast

import pytest

from oneiro_web import validate
from oneiro_web.env import WebConfig, WebEnv, chosen_templates, contents_in
from oneiro_web.errors import WebError
from oneiro_web.grading.answers import check_answer
from oneiro_web.seeds import generator
from oneiro_web.tasks import AnswerCheck, Task
from oneiro_web.templates.base import Content
from oneiro_web.templates.compose import Composed, compose
from oneiro_web.templates.registry import composed_templates
from oneiro_web.templates.schema import Entity, Field, Filter, Sort
from oneiro_web.templates.table import click, written

TEMPLATES = [cast(Composed, template) for template in composed_templates().values()]


def in_parts(count: int) -> pytest.MarkDecorator:
    """Every part is one in `count` of the templates; one part is tested always, the others in the thorough run."""
    others = [pytest.param(TEMPLATES[n::count], marks=pytest.mark.thorough) for n in range(1, count)]
    return pytest.mark.parametrize("templates", [TEMPLATES[::count], *others], ids=range(count))


CHEATERS = ("random", "cheat-prompt", "na", "exit", "random-answer")


@pytest.fixture(scope="module")
def world() -> Iterator[WebEnv]:
    made = WebEnv(WebConfig(max_actions=12))
    yield made
    made.close()


def pasted(world: WebEnv, task: Task) -> float:
    """The score of the whole last page as the answer."""
    page, _ = world.reset(seed=0, options={"task": task})
    while (action := world.oracle()) is not None and not action.startswith("stop"):
        page, *_ = world.step(action)
    world.step(world.stop_action(" ".join(re.findall(r"'([^'\n]+)'", page))))
    return world.score


@in_parts(200)
def test_the_oracle_does_it_on_several_contents_and_no_cheater_does(templates: list[Composed], world: WebEnv) -> None:
    for template in templates:
        tasks = [validate.drawn_task(template, 0, number) for number in range(3)]
        for task in tasks:
            played = validate.play(world, "oracle", task)
            assert played.score == 1, (template.name, task.intent, played.reasons)
            assert 2 <= played.actions <= 12, template.name
        for agent in CHEATERS:
            assert validate.play(world, agent, tasks[0]).score == 0, (template.name, agent)
        if template.verb.kind:
            assert pasted(world, tasks[0]) == 0, template.name


@in_parts(400)  # each draws from fifty contents of its site
def test_no_constant_answer_passes_often(templates: list[Composed]) -> None:
    for template in templates:
        if not template.verb.kind:  # it asks for no answer
            continue
        draws = [validate.drawn_task(template, 0, number).spec for number in range(50)]
        asked = [[check for check in spec.checks if isinstance(check, AnswerCheck)] for spec in draws if spec]
        answers = {written(template.verb.kind, spec.slots["answer"]) for spec in draws if spec}
        passed = {
            answer: sum(all(check_answer(one, answer).score for one in row) for row in asked) for answer in answers
        }
        assert max(passed.values()) <= 5, (template.name, max(passed.items(), key=lambda pair: pair[1]))


def test_there_are_hundreds_over_every_site() -> None:
    assert len(TEMPLATES) >= 300
    assert {one.site for one in TEMPLATES} == {"shopping", "shopping_admin", "reddit", "gitlab", "map"}
    assert len({one.name for one in TEMPLATES}) == len(TEMPLATES)


def test_the_parts_of_what_is_held_out_are_all_trained_but_never_together() -> None:
    trained = {(one.site, *one.parts) for one in TEMPLATES if not one.held_out}
    tested = {(one.site, *one.parts) for one in TEMPLATES if one.held_out}
    assert not trained & tested and len(TEMPLATES) / 8 < len(tested) < len(TEMPLATES) / 4
    assert {(site, entity, choice) for site, entity, choice, _ in tested} <= {part[:3] for part in trained}
    verbs = {(site, entity, verb) for site, entity, _, verb in trained}
    assert {(site, entity, verb) for site, entity, _, verb in tested} <= verbs


def test_intents_of_two_templates_of_a_site_are_never_the_same() -> None:
    said: dict[tuple[str, str], str] = {}
    for one in TEMPLATES:
        for intent in one.intents:
            assert said.setdefault((one.site, intent), one.name) == one.name, intent


def test_training_never_draws_what_is_held_out_and_tests_have_other_intents() -> None:
    config = WebConfig(kind="composed", sites=("map",))
    drawn: dict[str, set[tuple[str, str]]] = {}
    for split in ("train", "eval"):
        world = WebEnv(config)
        for seed in range(40):
            _, info = world.reset(seed=seed, options={"split": split})
            drawn.setdefault(split, set()).add((world.task.intent, str(info["template"])))
            assert world.task.spec is not None and world.task.spec.content in contents_in(split)
        world.close()
    assert not {intent for intent, _ in drawn["train"]} & {intent for intent, _ in drawn["eval"]}
    held_out = {one.name for one in TEMPLATES if one.held_out}
    assert not {name for _, name in drawn["train"]} & held_out and {name for _, name in drawn["eval"]} & held_out


def test_kinds_of_templates_are_chosen_by_a_setting() -> None:
    written_by_hand, composed = (chosen_templates(("map",), (), kind) for kind in ("written", "composed"))
    assert chosen_templates(("map",), (), "both") == written_by_hand + composed
    assert chosen_templates(("map",), ()) == written_by_hand
    name = composed[0].name
    assert chosen_templates((), ("map/phone", name)) == (*chosen_templates((), ("map/phone",)), composed[0])
    with pytest.raises(WebError, match=r"no template is called 'map/places\.nme\.open'"):
        chosen_templates((), ("map/places.nme.open",))


TOWNS = Entity(
    "towns",
    "town",
    "map",
    "SELECT name AS id, name, population FROM town ORDER BY name",
    Field("name", "name"),
    (click("link", "Towns"),),
    fields=(Field("population", "population", "number"),),
    filters=(Filter("people", ("with {people} people or more",), "from", "People from", "population"),),
    sorts=(Sort("largest", ("with the most people",), "population", (click("link", "Population"),)),),
)


def test_parts_make_a_template_each_with_its_words_and_its_way() -> None:
    filtered = Filter("name", ('"{name}"', "named {name}"), label="Name")
    entity = Entity(
        "towns", "town", "map", TOWNS.source, TOWNS.title, TOWNS.way, fields=TOWNS.fields, filters=(filtered,)
    )
    names = [one.name for one in compose([entity])]
    assert names == [
        "map/towns.name.read-population", "map/towns.name.list", "map/towns.name.highest-population",
        "map/towns.name.lowest-population",
    ]  # fmt: skip
    read = compose([entity])[0]
    assert read.intents[:2] == (
        'What is the population of the town "{name}"?',
        'Give the population of the town "{name}".',
    )
    assert len(read.intents) == 6 and len(read.way) == 2
    content = contents_in("train")[0]
    slots = read.draw(Content("map", content), generator("compose"))
    assert slots is not None
    row = Content("map", content).rows("SELECT population FROM town WHERE name = ?", slots["name"])[0]
    assert slots["answer"] == row["population"]


def test_a_bound_keeps_what_reaches_it() -> None:
    bound = TOWNS.filters[0]
    rows = [{"population": number} for number in (9, 10, 11, None)]
    assert bound.matching(rows, 10) == rows[1:3]
