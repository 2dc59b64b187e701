"""MiniWoB++: its pages are served once an episode, and a browser that runs scripts earns their rewards."""

from __future__ import annotations

import pytest

from oneiro_web.actions import Action, Kind
from oneiro_web.benchmarks.miniwob.env import MiniWobConfig, MiniWobEnv
from oneiro_web.benchmarks.miniwob.episode import HOST, Episode, MiniWob, task_names
from oneiro_web.browsers.base import Browser
from oneiro_web.errors import WebError
from oneiro_web.page import Page

pytest.importorskip("miniwob")


def test_there_are_130_tasks_and_others_are_named() -> None:
    assert len(task_names()) == 130
    with pytest.raises(WebError, match="no task 'click-tset'; did you mean 'click-test'"):
        MiniWob("click-tset", 0)


def test_the_page_of_an_episode_is_served_once_with_its_seed() -> None:
    web = MiniWob("click-test", 7)
    first = web.request("GET", web.url)
    assert b'Math.seedrandom("oneiro 7")' in first.body
    assert b"played already" in web.request("GET", web.url).body


@pytest.mark.parametrize(
    ("path", "status"),
    [("/core/core.js", 200), ("/core/core.css", 200), ("/miniwob/click-link.html", 404), ("/../__init__.py", 404),
     ("/core/%2e%2e/%2e%2e/__init__.py", 404), ("/core", 404), ("/", 404), ("//etc/hostname", 404)],
)  # fmt: skip
def test_nothing_but_what_the_page_needs_is_served(path: str, status: int) -> None:
    assert MiniWob("click-test", 0).request("GET", f"http://{HOST}{path}").status == status


@pytest.mark.parametrize(
    "url", ["http://reddit.com/", f"https://{HOST}/core/core.js", f"http://{HOST}:80/core/core.js"]
)
def test_other_hosts_are_not(url: str) -> None:
    assert MiniWob("click-test", 0).request("GET", url).status == 403


def element(page: Page, role: str) -> int:
    """The first element of this role."""
    return next(node.id for node in page.nodes.values() if node.role == role)


@pytest.mark.thorough
@pytest.mark.parametrize("task", ["email-inbox-nl-turk", "email-inbox-forward-nl", "email-inbox-forward-nl-turk"])
def test_the_intent_is_the_sentence_where_the_page_gives_its_fields_too(chromium: Browser, task: str) -> None:
    with Episode(chromium, task, 0) as episode:
        shown = episode.session.locate("document.querySelector('#query').textContent")
        assert episode.intent == " ".join(shown.split()) and len(episode.intent.split()) > 3


@pytest.mark.thorough
def test_tasks_are_solved_and_failed_in_a_browser_that_runs_scripts(chromium: Browser) -> None:
    with Episode(chromium, "click-test", 0) as episode:
        assert episode.intent == "Click the button."
        page = episode.session.observe()
        episode.act(Action(Kind.NOTHING))
        assert not episode.done
        episode.act(Action(Kind.CLICK, element=element(page, "button")))
        assert (episode.done, episode.reward) == (True, 1.0)
        episode.act(Action(Kind.GOTO, text=episode.web.url))
        assert "played already" in episode.session.html()
    with Episode(chromium, "enter-text", 3) as episode, Episode(chromium, "enter-text", 3) as again:
        page = episode.session.observe()
        assert again.intent == episode.intent
        assert again.session.observe().text() == page.text()
        text = episode.intent.split('"')[1]
        for played, typed, reward in ((episode, text, 1.0), (again, "else", -1.0)):
            played.act(Action(Kind.TYPE, element=element(page, "textbox"), text=typed))
            played.act(Action(Kind.CLICK, element=element(played.session.observe(), "button")))
            assert (played.done, played.reward) == (True, reward)


def test_the_world_plays_a_task_with_its_own_reward(chromium: Browser) -> None:
    with pytest.raises(WebError, match="did you mean 'click-test'"):
        MiniWobEnv(MiniWobConfig(tasks=("click-tset",)))
    world = MiniWobEnv(MiniWobConfig(tasks=("click-test", "click-button")))
    first, info = world.reset(seed=4, options={"split": "train"})
    assert first.startswith(f"Task: {world.intent}\n")
    assert world.reset(seed=4, options={"split": "train"}) == (first, info)
    assert world.step("click nothing")[4]["valid"] is False
    wanted = world.intent.split('"')[1] if '"' in world.intent else "Click Me!"
    button = next(line for line in first.splitlines() if f"button '{wanted}'" in line)
    _, reward, done, _, told = world.step(f"click [{button.split(']')[0].strip()[1:]}]")
    assert (reward, done, told["success"]) == (1.0, True, True)
    world.reset(seed=5)
    assert world.step("stop [done]")[1:3] == (0.0, True)
    world.close()
