"""Our tasks on the code host and the map: the oracle does them, and nothing short of doing them scores."""

from __future__ import annotations

import string
from collections.abc import Iterator

import pytest

from oneiro_web.env import WebConfig, WebEnv
from oneiro_web.seeds import generator
from oneiro_web.sites.gitlab.content import USER
from oneiro_web.templates.base import Content, Slots, Template
from oneiro_web.templates.registry import TEMPLATES
from oneiro_web.templates.script import Script, View

OURS = [template for template in TEMPLATES.values() if template.site in ("gitlab", "map")]
BY_NAME = pytest.mark.parametrize("template", OURS, ids=lambda template: template.name)
ONE_IN_THREE = pytest.mark.parametrize(
    "template",
    [t if place % 3 == 0 else pytest.param(t, marks=pytest.mark.thorough) for place, t in enumerate(OURS)],
    ids=lambda template: template.name,
)
CONTENT = 3


@pytest.fixture(scope="module")
def world() -> Iterator[WebEnv]:
    """The world, in WebArena's grammar."""
    made = WebEnv(WebConfig())
    yield made
    made.close()


def drawn(template: Template, unlike: Slots | None = None) -> Slots:
    """Slots of a task on the one content of these tests; with `unlike`, of a task that asks for something else."""

    def asked(slots: Slots) -> tuple[object, object]:
        return template.checks(slots), template.url(slots)

    for number in range(300):
        slots = template.draw(Content(template.site, CONTENT), generator("web", "test", template.name, number))
        if not slots or template.leaks(template.task(CONTENT, slots)):
            continue
        if unlike is None or asked(slots) != asked(unlike):
            return slots
    raise AssertionError(f"{template.name}: no task")


def begin(world: WebEnv, name: str) -> Slots:
    """A task of this template, at its first page."""
    slots = drawn(TEMPLATES[name])
    world.reset(seed=0, options={"task": TEMPLATES[name].task(CONTENT, slots)})
    return slots


def follow(world: WebEnv, script: Script, stop: bool = True) -> None:
    """Carry out a script, perhaps without its end."""
    for action in script:
        text = world.grammar.write(action)
        if not stop and text.startswith("stop"):
            return
        *_, info = world.step(text)
        assert info["valid"], (text, world.notice)


def test_both_sites_have_their_templates_and_hold_some_back() -> None:
    for site, least in (("gitlab", 17), ("map", 11)):
        own = [template for template in OURS if template.site == site]
        assert len(own) >= least
        assert 0.1 < sum(template.held_out for template in own) / len(own) < 0.3


@BY_NAME
def test_a_held_out_template_needs_skills_that_others_teach(template: Template) -> None:
    taught = {skill for other in OURS if not other.held_out and other.site == template.site for skill in other.skills}
    assert set(template.skills) <= taught


@BY_NAME
def test_both_wordings_name_the_same_things(template: Template) -> None:
    named = [{name for _, name, *_ in string.Formatter().parse(intent) if name} for intent in template.intents]
    assert len(named) == 2 and named[0] == named[1]
    assert named[0] <= drawn(template).keys()


@ONE_IN_THREE
def test_the_oracle_scores_and_leaving_at_once_does_not(template: Template, world: WebEnv) -> None:
    task = template.task(CONTENT, drawn(template))
    for answer in ("", "N/A"):
        world.reset(seed=0, options={"task": task})
        world.step(world.stop_action(answer))
        assert world.score == 0.0
    world.reset(seed=0, options={"task": task})
    while not world.over:
        action = world.oracle()
        assert action is not None, "the oracle lost its way"
        world.step(action)
    assert world.score == 1.0, world.verdict


@ONE_IN_THREE
def test_doing_another_task_of_the_template_does_not_score(template: Template, world: WebEnv) -> None:
    slots = drawn(template)
    world.reset(seed=0, options={"task": template.task(CONTENT, slots)})
    follow(world, template.script(world.see, drawn(template, unlike=slots)))
    assert world.score == 0.0


WRONG = {
    "gitlab/create-project": {"text": "Something else"},
    "gitlab/create-issue": {"due": "2027-01-31"},
    "gitlab/comment-issue": {"text": "Something else"},
    "gitlab/create-label": {"colour": "#123456"},
    "gitlab/create-milestone": {"due": "2027-01-31"},
    "gitlab/invite": {"role": "guest"},
    "gitlab/create-request": {"title": "Something else"},
    "gitlab/status": {"text": "Something else"},
}


@pytest.mark.parametrize("name", WRONG)
def test_one_wrong_value_does_not_score(name: str, world: WebEnv) -> None:
    slots = begin(world, name)
    follow(world, TEMPLATES[name].script(world.see, {**slots, **WRONG[name]}))
    assert world.score == 0.0


def star_something(see: View) -> Script:
    """A change that no task but one asks for."""
    yield see.goto("http://gitlab.com/explore/projects")
    yield see.click("link", see.nodes("link", within=" stars")[0].name)
    yield see.click("button", "Unstar" if see.has("button", "Unstar") else "Star")
    yield see.stop()


@pytest.mark.parametrize("name", ["gitlab/close-issue", "gitlab/invite", "gitlab/show-own", "gitlab/finish-todo"])
def test_a_side_effect_elsewhere_spoils_a_task(name: str, world: WebEnv) -> None:
    slots = begin(world, name)
    follow(world, TEMPLATES[name].script(world.see, slots), stop=False)
    url = world.page.url
    follow(world, star_something(world.see), stop=False)
    world.step(world.grammar.write(world.see.goto(url)))
    world.step(world.stop_action(""))
    assert world.score == 0.0
    assert world.verdict is not None
    assert [check.name for check in world.verdict.checks if check.score == 0.0] == ["db_guard"]


def edit_issue(see: View, field: str, value: str) -> Script:
    """From an issue's page, change it by the form."""
    yield see.click("link", "Edit")
    if field == "Assignee":
        yield see.select(field, value)
    else:
        yield from see.fill(field, value)
    yield see.click("button", "Save changes")
    yield see.stop()


def test_a_side_effect_on_the_issue_itself_spoils_the_task(world: WebEnv) -> None:
    slots = begin(world, "gitlab/close-issue")
    follow(world, TEMPLATES["gitlab/close-issue"].script(world.see, slots), stop=False)
    follow(world, edit_issue(world.see, "Title", "Another title"))
    assert world.score == 0.0


def test_an_issue_may_be_assigned_by_the_edit_form_too(world: WebEnv) -> None:
    slots = begin(world, "gitlab/assign-issue")
    script = TEMPLATES["gitlab/assign-issue"].script(world.see, slots)
    for _ in range(5):  # up to the issue's page
        world.step(world.grammar.write(next(script)))
    follow(world, edit_issue(world.see, "Assignee", slots["assignee"]))
    assert world.score == 1.0, world.verdict


def test_the_list_may_be_filtered_in_any_way(world: WebEnv) -> None:
    slots = begin(world, "gitlab/show-own")
    path = TEMPLATES["gitlab/show-own"].url(slots)
    assert path is not None
    first, _, second = path.partition("?")[2].partition("&")
    world.step(f"goto [http://gitlab.com{path.partition('?')[0]}?{second}&{first}&sort=title]")
    world.step(world.stop_action(""))
    assert world.score == 1.0 and USER in first
