"""The view in the form of Playwright's aria snapshot: its lines, and that its references are the ids of actions."""

from __future__ import annotations

from typing import Any

import yaml

from oneiro_web.aria import snapshot
from oneiro_web.browsers.text.browser import TextBrowser
from oneiro_web.env import WebConfig, WebEnv
from web.tests.pages import one
from web.tests.test_text_browser import HERE

PAGE = """<h1>Head</h1><nav aria-label="Main"><a href="/a">A "quoted"</a><a href="/b">B</a></nav>
<label><input type="checkbox" checked> Yes</label><button disabled>Go</button><input aria-label="Q" value="now: here">
<table><tr><td>One</td><td><b>Two</b> more</td></tr></table><p>- odd # text</p>"""


def test_lines_are_those_of_the_tree() -> None:
    session = TextBrowser().open(one(PAGE), [HERE])
    page = session.observe()
    header, _, body = snapshot(page).partition("\n\n")
    assert header == "Tab 0 (current): Page"
    for line in (
        '- heading "Head" [ref=e2]', '- navigation "Main" [ref=e3]:', '  - link "A \\"quoted\\"" [ref=e4]',
        '- button "Go" [disabled] [ref=e7]', '- textbox "Q" [ref=e8]: "now: here"', '- text: "- odd # text"',
    ):  # fmt: skip
        assert line in body.splitlines(), line
    assert any(line.startswith('- checkbox "Yes" [checked]') for line in body.splitlines())
    references = [int(part.split("]")[0]) for part in body.split("[ref=e")[1:]]
    assert all(page.nodes[number].role != "StaticText" for number in references)
    assert yaml.safe_load(body)  # it nests as YAML


def test_playwright_itself_names_the_same_elements(chromium: Any) -> None:
    session = chromium.open(one(PAGE), [HERE])
    theirs = chromium.turn(session.tab.window.locator("body").aria_snapshot())
    ours = snapshot(session.observe())
    session.close()
    named = [line.split(" [")[0].split(":")[0].strip() for line in theirs.splitlines()]
    for line in named:
        if line.startswith(("- heading", "- link", "- navigation", "- checkbox", "- button", "- textbox")):
            assert any(mine.strip().startswith(line) for mine in ours.splitlines()), line


def test_an_oracle_plays_in_this_view() -> None:
    world = WebEnv(WebConfig(view="aria", sites=("reddit",)))
    for seed in range(2):
        world.reset(seed=seed)
        assert "[ref=e" in world.render()
        while not world.over:
            reward = world.step(world.oracle() or "")[1]
        assert reward == 1.0
    world.close()
