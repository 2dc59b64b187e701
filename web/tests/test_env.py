"""The web as a world: tasks, grades, splits, views, and what happens when a browser dies."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from oneiro_web import browsing
from oneiro_web.actions import Action
from oneiro_web.browsers.base import BrowserDied, Outcome
from oneiro_web.browsers.text.browser import TextBrowser, TextSession
from oneiro_web.env import WebConfig, WebEnv, contents_in
from oneiro_web.errors import WebError
from oneiro_web.seeds import generator
from oneiro_web.tasks import Task
from oneiro_web.templates.base import Content, first_page
from oneiro_web.templates.registry import TEMPLATES
from oneiro_web.validate import AGENTS, drawn_task, examine, template_tasks


def solve(world: WebEnv) -> float:
    """Let the oracle act to the end; what it was paid."""
    paid = 0.0
    while not world.over:
        action = world.oracle()
        assert action is not None
        paid += world.step(action)[1]
    return paid


@pytest.fixture
def world() -> WebEnv:
    return WebEnv(WebConfig(sites=("reddit",)))


def task(name: str, number: int = 0) -> Task:
    return drawn_task(TEMPLATES[name], 0, number)


@pytest.mark.parametrize("view", ["accessibility", "html"])
def test_the_oracle_is_paid_one_at_the_end_and_nothing_before(view: str) -> None:
    world = WebEnv(WebConfig(sites=("reddit",), view=view))
    observation, info = world.reset(seed=3)
    assert observation.startswith("Task: ") and info["template"].startswith("reddit/")
    assert solve(world) == 1.0
    assert world.step("none")[1:3] == (0.0, True)


def test_an_action_of_somebody_else_ends_the_script(world: WebEnv) -> None:
    world.reset(options={"task": task("reddit/subscribe")})
    assert world.oracle() is not None
    world.step("scroll [down]")
    assert world.oracle() is None


def test_two_episodes_never_meet(world: WebEnv) -> None:
    other = WebEnv(world.config)
    subscribing = task("reddit/subscribe")
    world.reset(options={"task": subscribing})
    other.reset(options={"task": subscribing})
    assert solve(world) == 1.0
    assert other.step("stop []")[1] == 0.0
    world.reset(options={"task": subscribing})  # nor one and the next
    assert world.step("stop []")[1] == 0.0


def test_what_is_done_without_a_stop_counts_when_time_is_up_and_an_answer_that_was_not_given_does_not() -> None:
    done = WebEnv(WebConfig(max_actions=3))
    done.reset(options={"task": task("reddit/vote")})
    rewards = [done.step(done.oracle() or "")[1] for _ in range(2)]
    assert rewards == [0.0, 0.0]
    *_, truncated, info = done.step("scroll [down]")
    assert truncated and info["success"] and done.score == 1.0
    asked = WebEnv(WebConfig(max_actions=1))
    asked.reset(options={"task": task("reddit/post-author")})
    assert asked.step(asked.oracle() or "")[1] == 0.0


def test_a_side_effect_fails_a_task_that_is_done(world: WebEnv) -> None:
    world.reset(options={"task": task("reddit/vote")})
    world.step(world.oracle() or "")
    world.step(world.oracle() or "")
    world.step("goto [http://reddit.com/]")
    others = [node.id for node in world.page.nodes.values() if node.role == "button" and node.name == "Downvote"]
    world.step(f"click [{others[0]}]")
    *_, info = world.step("stop []")
    assert not info["success"] and any("changed where it must not be" in reason for reason in info["failed"])


def test_a_text_that_is_no_action_is_shown_to_the_agent_and_costs_one(world: WebEnv) -> None:
    world.reset(seed=0)
    observation, reward, *_, info = world.step("kliick 12")
    assert "Notice: 'kliick'" in observation and reward == 0.0 and not info["valid"]
    observation, *_, info = world.step("click [99999]")
    assert "Notice: There is no element [99999]" in observation and not info["valid"]
    assert world.taken == 2


def test_no_test_asks_for_what_training_asks_for() -> None:
    world = WebEnv(WebConfig(templates=("map/phone", "gitlab/status")))  # many intents, and eight
    intents: dict[str, set[str]] = {"train": set(), "eval": set()}
    for split, drawn in intents.items():
        for seed in range(30):
            world.reset(seed=seed, options={"split": split})
            drawn.add(world.task.intent)
    assert len(intents["train"]) > 10 and len(intents["eval"]) > 10 and not intents["train"] & intents["eval"]


def test_splits_share_no_content_and_training_no_held_out_template() -> None:
    assert not {*contents_in("train")} & {*contents_in("eval")}
    assert len(contents_in("train")) == 64 and len(contents_in("eval")) == 48
    world = WebEnv()
    for seed in range(8):
        world.reset(seed=seed, options={"split": "train"})
        assert world.task.spec is not None and world.task.spec.content in contents_in("train")
        assert not TEMPLATES[world.task.spec.template_id].held_out
    unseen = WebEnv(WebConfig(test="unseen"))
    for seed in range(4):
        unseen.reset(seed=seed, options={"split": "eval"})
        assert unseen.task.spec is not None and unseen.task.spec.content in contents_in("eval")
        assert TEMPLATES[unseen.task.spec.template_id].held_out
    held_out = sum(template.held_out for template in TEMPLATES.values())
    assert len(TEMPLATES) >= 60 and 0.1 < held_out / len(TEMPLATES) < 0.3


def test_answers_do_not_stand_on_the_first_page() -> None:
    template = TEMPLATES["reddit/post-author"]
    content = contents_in("train")[0]
    shown = Content("reddit", content).rows("SELECT id, title, author FROM post ORDER BY hot DESC LIMIT 1")[0]
    slots = {"title": shown["title"], "post": shown["id"], "forum": "", "author": shown["author"]}
    assert shown["author"].lower() in first_page("reddit", "", content)
    assert template.leaks(template.task(content, slots))
    assert not template.leaks(template.task(content, {**slots, "author": "NobodyOfThisName"}))


def test_money_leaks_as_pages_write_it_whether_the_answer_is_a_text_or_a_number() -> None:
    template = TEMPLATES["shopping/product-price"]
    content = contents_in("train")[0]
    cents = next(
        cents
        for (cents,) in Content("shopping", content).rows("SELECT final_price FROM listed ORDER BY id")
        if f"${cents / 100:,.2f}" in first_page("shopping", "", content)
    )
    for price in (f"${cents / 100:,.2f}", cents / 100):
        assert template.leaks(template.task(content, {"product": "x", "price": price}))
    assert not template.leaks(template.task(content, {"product": "x", "price": 98765.43}))


def test_a_long_page_is_shown_a_window_at_a_time() -> None:
    whole, part = WebEnv(WebConfig(sites=("reddit",))), WebEnv(WebConfig(sites=("reddit",), lines=20))
    lines = whole.reset(seed=1)[0].splitlines()[2:]
    first = part.reset(seed=1)[0].splitlines()[2:]
    assert first == [*lines[:20], f"({len(lines) - 20} lines below)"]
    second = part.step("scroll [down]")[0].splitlines()[2:]
    assert second[0] == "(20 lines above)" and second[1:21] == lines[20:40]
    assert part.step("scroll [up]")[0].splitlines()[2:] == first


@pytest.mark.parametrize("deaths", [1, 2])
def test_a_browser_that_dies_is_replaced_once(world: WebEnv, deaths: int, monkeypatch: pytest.MonkeyPatch) -> None:
    left, acted = deaths, TextSession.act

    def act(self: TextSession, action: Action) -> Outcome:
        nonlocal left
        if left and world.taken >= 2:
            left -= 1
            raise BrowserDied("gone")
        return acted(self, action)

    monkeypatch.setattr(TextSession, "act", act)
    world.reset(options={"task": task("reddit/write-comment")})
    if deaths == 1:
        assert solve(world) == 1.0 and world.retried
    else:
        with pytest.raises(BrowserDied):
            solve(world)


def test_names_of_sites_and_templates_are_checked() -> None:
    with pytest.raises(WebError, match="no site is called 'redit'; did you mean 'reddit'"):
        WebEnv(WebConfig(sites=("redit",)))
    with pytest.raises(WebError, match="no template is called"):
        WebEnv(WebConfig(templates=("reddit/none",)))


@pytest.mark.parametrize("agent", [agent for agent in AGENTS if agent not in ("oracle", "cheat-grader", "idle")])
def test_who_does_not_do_the_task_scores_nothing(agent: str) -> None:
    rows = examine(agent, [task("reddit/comment-count"), task("reddit/subscribe"), task("reddit/show-sorted")])
    assert [row.score for row in rows] == [0.0, 0.0, 0.0]


def test_tasks_are_the_same_in_every_process_and_differ_by_number() -> None:
    one, two = (list(template_tasks(2, ("map",))) for _ in range(2))
    assert [found.model_dump() for found in one] == [found.model_dump() for found in two]
    assert len({found.task_id for found in one}) > len(one) * 0.8
    assert Task.model_validate(json.loads(one[0].model_dump_json())) == one[0]


def test_a_random_player_acts_in_both_views() -> None:
    for view in ("accessibility", "html"):
        world = WebEnv(WebConfig(sites=("map",), view=view))
        rng = generator("test", view)
        world.reset(seed=2)
        valid = [world.step(world.random_action(rng))[4]["valid"] for _ in range(8) if not world.over]
        assert sum(valid) > len(valid) / 2


def test_threads_that_ask_at_once_share_one_browser(monkeypatch):
    """Episodes in threads would otherwise start a browser each."""
    started = []

    def slow(name, headed):
        time.sleep(0.05)
        started.append(name)
        return TextBrowser()

    monkeypatch.setattr(browsing, "start", slow)
    monkeypatch.setattr(browsing, "_STARTED", {})
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(browsing.browser, ["text"] * 8))
    assert started == ["text"] and len({id(one) for one in found}) == 1


def test_many_worlds_are_stepped_as_one_by_one() -> None:
    """Pages, malformed texts, scrolling, answers and what comes after the end, in one call."""
    names = ("map/phone", "reddit/comment-count", "map/hours", "reddit/subscribe")
    config = WebConfig(lines=30, max_actions=4)
    alone, together = ([WebEnv(config) for _ in names] for _ in range(2))
    for own in (alone, together):
        for world, name in zip(own, names, strict=True):
            world.reset(seed=0, options={"task": task(name)})
    for turn in range(5):
        actions = [world.oracle() or "none" for world in alone]
        actions[1] = ("scroll [down]", "fly", "stop [7]", "none", "none")[turn]
        assert next(world.oracle() or "none" for world in together) == actions[0]
        assert WebEnv.step_many(together, actions) == [world.step(a) for world, a in zip(alone, actions, strict=True)]
    assert all(world.over for world in together)
    for world in (*alone, *together):
        world.close()


@pytest.mark.parametrize("deaths", [1, 2])
def test_a_browser_that_dies_among_many_costs_one_episode_at_most(deaths: int, monkeypatch: pytest.MonkeyPatch) -> None:
    left, acted = deaths, TextSession.act
    worlds = [WebEnv() for _ in range(3)]

    def act(self: TextSession, action: Action) -> Outcome:
        nonlocal left
        if left and self is worlds[1].session and worlds[1].taken == 1:
            left -= 1
            raise BrowserDied("gone")
        return acted(self, action)

    monkeypatch.setattr(TextSession, "act", act)
    whole = WebEnv()
    for world in (*worlds, whole):
        world.reset(seed=0, options={"task": task("reddit/write-comment")})
    for turn in range(3):
        expected = whole.step(whole.oracle() or "none")
        first, second, third = WebEnv.step_many(worlds, [world.oracle() or "none" for world in worlds])
        assert first == third == expected
        if turn == 1 and deaths == 2:
            assert isinstance(second, BrowserDied)
            return
        assert second == expected
    assert worlds[1].retried and not worlds[0].retried
