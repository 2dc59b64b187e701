"""One deadline for every page of Chromium: whatever a page does without end, it is given up by name."""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import replace
from typing import Any

from oneiro_web.actions import Action, Kind
from oneiro_web.browsers.base import Browser
from oneiro_web.env import WebConfig, WebEnv
from oneiro_web.page import PageFailure
from oneiro_web.sites.web import Reply
from web.tests.pages import Pages, html

A = "http://a.test/"
SECONDS = 0.3
"""A deadline that none of these pages could meet on any machine: they never settle."""


def impatient(browser: Browser, web: Pages) -> Any:
    """A session whose pages have `SECONDS`."""
    session: Any = browser.open(web, ["about:blank"])
    session.limits = replace(session.limits, seconds=SECONDS)
    return session


def test_a_page_that_cannot_be_read_is_given_up_and_named(chromium: Browser) -> None:
    session = impatient(chromium, Pages({A: "<title>T</title><p>Here</p>"}))
    session.limits = replace(session.limits, seconds=60.0)
    session.act(Action(Kind.GOTO, text=A))
    read, reads = session._read, []

    async def never(tab: Any) -> Any:
        reads.append(tab)
        await asyncio.Event().wait()

    session.limits = replace(session.limits, seconds=SECONDS)
    session._read = never
    page = session.observe()
    assert page.failure == PageFailure(A, SECONDS)
    assert str(page.failure) == "http://a.test/ did not settle within 0.3 seconds and was given up."
    assert len(reads) == 2, "once more without its script, then no more"
    assert (page.url, page.text()) == ("about:blank", "Tab 0 (current): \n\n[1] RootWebArea '' focused: True")
    # The session goes on, with an empty tab.
    session._read, session.limits = read, replace(session.limits, seconds=60.0)
    assert session.observe().url == "about:blank" and session.observe().failure is None
    assert session.act(Action(Kind.GOTO, text=A)).failure is None
    assert session.observe().title == "T"
    session.close()


def test_frames_without_end_are_an_action_that_failed(chromium: Browser) -> None:
    numbers = itertools.count()

    def nested(method: str, url: str, body: bytes) -> Reply:
        return html(f"<title>T</title><iframe src='/?{next(numbers)}'></iframe>" * 2)

    session = impatient(chromium, Pages({A: nested}))
    outcome = session.act(Action(Kind.GOTO, text=A))
    assert outcome.failure == "The page did not answer within 0.3 seconds."
    assert "timeout" in outcome.events
    session.close()


def test_an_agent_is_told_of_a_page_that_was_given_up(chromium: Browser) -> None:
    env = WebEnv(WebConfig(browser="chromium", templates=("map/hours",)))
    env.reset(seed=0)
    session: Any = env.session
    failed = replace(env.page, url="about:blank", failure=PageFailure(A, 15.0))

    async def give_up() -> Any:
        return failed

    session._observe = give_up
    result = env.step("none")
    assert "Notice: http://a.test/ did not settle within 15 seconds and was given up." in result[0]
    env.close()
