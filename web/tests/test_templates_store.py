"""The tasks at the store and in its back office: solvable, not by doing nothing, and not with anything beside."""

from __future__ import annotations

import pytest

from oneiro_web.actions import Kind
from oneiro_web.env import WebConfig, WebEnv
from oneiro_web.seeds import generator
from oneiro_web.templates.base import Content
from oneiro_web.templates.registry import TEMPLATES

CONTENT = 3
STORE = {name: template for name, template in TEMPLATES.items() if template.site in ("shopping", "shopping_admin")}


def one_in_three(names):
    """The others are for the thorough run."""
    return [n if place % 3 == 0 else pytest.param(n, marks=pytest.mark.thorough) for place, n in enumerate(names)]


def draws(name):
    """Tasks of a template on one content, as slots, in a fixed order."""
    for attempt in range(200):
        slots = STORE[name].draw(Content(STORE[name].site, CONTENT), generator("test", "store", name, attempt))
        if slots is not None and not STORE[name].leaks(STORE[name].task(CONTENT, slots)):
            yield slots


def slots_of(name):
    return next(draws(name))


CHANGING = [name for name in STORE if STORE[name].changes(slots_of(name))]


@pytest.fixture(scope="module")
def world():
    world = WebEnv()
    yield world
    world.close()


def play(world, script):
    for action in script:
        world.step(world.grammar.write(action))


def begin(world, name, slots, wording=0):
    world.reset(seed=0, options={"task": STORE[name].task(CONTENT, slots, wording)})


@pytest.mark.parametrize("name", one_in_three(STORE))
def test_the_script_solves_the_task_and_doing_nothing_does_not(world, name):
    slots = slots_of(name)
    for answer in ("", "N/A"):
        begin(world, name, slots)
        world.step(world.stop_action(answer))
        assert world.score == 0
    begin(world, name, slots, wording=1)
    play(world, STORE[name].script(world.see, slots))
    assert world.score == 1
    assert 2 <= world.taken <= 20


@pytest.mark.parametrize("name", one_in_three(CHANGING))
def test_the_same_steps_with_other_values_fail(world, name):
    slots = slots_of(name)
    other = next(one for one in draws(name) if STORE[name].checks(one) != STORE[name].checks(slots))
    begin(world, name, slots)
    play(world, STORE[name].script(world.see, other))
    assert world.over
    assert world.score == 0


@pytest.mark.parametrize(
    ("name", "beside"),
    [
        ("shopping/phone", "shopping/wish"),
        ("shopping/wish", "shopping/phone"),
        ("shopping/checkout", "shopping/write-review"),
        ("shopping/order-total", "shopping/contact"),
        ("shopping/show-sorted", "shopping/wish"),
        ("shopping_admin/customer-group", "shopping_admin/hold-order"),
        ("shopping_admin/change-price", "shopping_admin/disable-product"),
        ("shopping_admin/sales-in-month", "shopping_admin/order-note"),
    ],
)
def test_a_solved_task_with_a_side_effect_fails(world, name, beside):
    slots = slots_of(name)
    begin(world, name, slots)
    steps = play_but_the_end(world, STORE[beside].script(world.see, slots_of(beside)))
    assert steps > 1
    play(world, STORE[name].script(world.see, slots))
    assert world.over
    assert world.score == 0
    failed = [check.name for check in world.verdict.checks if check.score < 1]
    assert failed == ["db_guard"]


def play_but_the_end(world, script):
    """All steps of a script but the last, which would end the episode; how many."""
    for count, action in enumerate(script):
        if action.kind is Kind.STOP:
            return count
        world.step(world.grammar.write(action))
    raise AssertionError("a script without an end")


def test_the_other_columns_of_an_edited_row_must_stay(world):
    """A price is set as asked, and the quantity of the same product is changed too."""
    name = "shopping_admin/change-price"
    slots = slots_of(name)
    begin(world, name, slots)
    play_but_the_end(world, STORE["shopping_admin/restock"].script(world.see, {**slots, "row": {"stock": 7}}))
    play(world, STORE[name].script(world.see, slots))
    failed = [check.name for check in world.verdict.checks if check.score < 1]
    assert failed == ["db_check"]


def test_scripts_work_in_the_view_of_html():
    world = WebEnv(WebConfig(view="html"))
    for name in ("shopping/checkout", "shopping_admin/judge-all", "shopping_admin/change-price"):
        begin(world, name, slots_of(name))
        while not world.over:
            world.step(world.oracle())
        assert world.score == 1
    world.close()


def test_every_template_has_two_wordings_that_name_the_same_slots():
    for template in STORE.values():
        slots = slots_of(template.name)
        one, other = (template.task(CONTENT, slots, wording) for wording in (0, 1))
        assert one.instantiation_dict == other.instantiation_dict
        assert one.intent != other.intent


def test_about_a_fifth_is_held_out_and_needs_nothing_that_the_others_do_not_teach():
    taught = {skill for template in STORE.values() if not template.held_out for skill in template.skills}
    for site in ("shopping", "shopping_admin"):
        own = [template for template in STORE.values() if template.site == site]
        held = [template for template in own if template.held_out]
        assert 0.15 < len(held) / len(own) < 0.25
        assert {skill for template in held for skill in template.skills} <= taught
