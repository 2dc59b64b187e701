"""Every task of MiniWoB++ played here and by the original package: the same intent, page, end and reward.

The package drives a browser through Selenium. Here its own code gets a driver with the one method that it needs, on a
plain page of Chromium, so that no ChromeDriver has to be installed.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from typing import Any

import pytest

from oneiro_web.actions import Action, Kind
from oneiro_web.benchmarks.miniwob.episode import Episode, task_names
from oneiro_web.browsers.base import Browser
from oneiro_web.seeds import generator

pytest.importorskip("miniwob", reason="needs MiniWoB++ (pip install oneiro[miniwob])")

CLICKS = 4
SEEDS = (0, 1)
ELEMENTS = "[...document.querySelectorAll('#area *')]"
INTENT_ALONE = ("chase-circle", "moving-items", "simon-says", "stock-market", "scroll-text-2")
"""On the first four, things change while one looks, so that the same click may hit something else. In the last one the
original clicks by a script that gives the text the focus, which scrolls it; a mouse does not.
"""


class Driver:
    """What the original's `SeleniumInstance` asks of Selenium."""

    def __init__(self, page: Any) -> None:
        self.page = page

    def execute_script(self, script: str) -> Any:
        """The value that a function of this body returns."""
        return self.page.evaluate(f"() => {{ {script} }}")


@pytest.fixture(scope="module")
def window() -> Iterator[Any]:
    """A page of a Chromium of its own, which may read files."""
    if shutil.which("chromium") is None:
        pytest.skip("needs Chromium (apt install chromium)")
    playwright = pytest.importorskip("playwright.sync_api", reason="needs Playwright (pip install oneiro[web])")
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        yield browser.new_page(viewport={"width": 1280, "height": 720})
        browser.close()


def original(window: Any, task: str, seed: int) -> Any:
    """An episode of the original package that has begun."""
    from miniwob.reward import get_raw_reward
    from miniwob.selenium_instance import SeleniumInstance

    instance = SeleniumInstance(0, task, headless=True, reward_processor=get_raw_reward, field_extractor=lambda _: [])
    instance.record_screenshots = False
    instance.driver = Driver(window)
    window.goto(instance.url)
    # It would be over after ten seconds, which a busy machine may need.
    instance.driver.execute_script("core.EPISODE_MAX_TIME = 86400000; core.countdownTimer = function () {};")
    observations, infos = [None], [None]
    instance.reset(observations, infos, f"oneiro {seed}")
    instance.intent = observations[0]["utterance"]  # type: ignore[index]
    return instance


def click_there(instance: Any, place: int) -> tuple[bool, float]:
    """A click of the original on an element by its place in the page: whether the episode is over, and the reward."""
    from miniwob.selenium_actions import execute_click_element

    instance.get_observation(use_cached_fields=True)  # numbers the elements
    number = instance.driver.execute_script(f"return {ELEMENTS}[{place}].dataset.wob_ref")
    execute_click_element(int(number), instance.driver)
    noted = instance.get_metadata()
    return bool(noted["done"]), instance.reward_processor(noted) if noted["done"] else 0.0


def places(episode: Episode) -> dict[int, int]:
    """Elements that can be clicked here, by their numbers, with their places in the page: those that are drawn, hold no
    others, and that the original numbers as well (nothing of it is in a drop-down list).
    """
    session: Any = episode.session
    session.simplified_html()
    order = session.locate(
        f"JSON.stringify((() => {{ const all = [...document.documentElement.getElementsByTagName('*')]; "
        f"return {ELEMENTS}.map(e => e.children.length || !e.getBoundingClientRect().width || "
        f"!e.getBoundingClientRect().height || e.closest('select') ? -1 : all.indexOf(e)) }})())"
    )
    place_of = {index: place for place, index in enumerate(json.loads(order)) if index >= 0}
    return {number: place_of[index] for number, index in enumerate(session.shown) if index in place_of}


@pytest.mark.thorough
@pytest.mark.parametrize("task", task_names())
def test_intent_and_reward_are_those_of_the_original(chromium: Browser, window: Any, task: str) -> None:
    for seed in SEEDS:
        rng = generator("miniwob peer", task, seed)
        theirs = original(window, task, seed)
        with Episode(chromium, task, seed) as ours:
            assert ours.intent == theirs.intent
            if task in INTENT_ALONE:
                continue
            tags = f"{ELEMENTS}.map(e => e.tagName + e.children.length).join(' ')"
            assert ours.session.locate(tags) == theirs.driver.execute_script(f"return {tags}")
            for _ in range(CLICKS):
                known = places(ours)
                if not known or ours.done:
                    break
                number = list(known)[int(rng.integers(len(known)))]
                ours.act(Action(Kind.CLICK, number))
                over, reward = click_there(theirs, known[number])
                assert (ours.done, ours.reward) == (over, pytest.approx(reward)), f"seed {seed}"
