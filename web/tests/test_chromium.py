"""Chromium itself: the same actions give what the text browser gives."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from oneiro_web.actions import Action, Kind
from oneiro_web.browsers.base import BrowserDied, Limits, Session
from oneiro_web.browsers.text.browser import TextBrowser
from oneiro_web.errors import WebError
from oneiro_web.sites import SITES, Web
from web.tests.pages import Pages, html, one
from web.tests.test_accessibility import CASES
from web.tests.test_text_browser import FORM, HERE, LOCATED, LOCATORS, click, find, sent, write

pytestmark = pytest.mark.usefixtures("chromium")


@pytest.fixture
def open_page(chromium) -> Iterator:
    sessions: list[Session] = []

    def start(web: Web | str, url: str = HERE, cookies=None) -> Session:
        sessions.append(chromium.open(one(web) if isinstance(web, str) else web, [url], cookies))
        return sessions[-1]

    yield start
    for session in sessions:
        session.close()


def test_trees_are_those_of_the_text_browser(open_page):
    web = Pages({f"http://here.test/{i}": f"<!doctype html><title>T</title>{CASES[n][0]}" for i, n in enumerate(CASES)})
    session = open_page(web, "http://here.test/0")
    text = TextBrowser().open(web, ["http://here.test/0"])
    for index, name in enumerate(CASES):
        for one_session in (session, text):
            one_session.act(Action(Kind.GOTO, text=f"http://here.test/{index}"))
        assert session.observe().text() == text.observe().text(), name


def test_a_form_sends_what_was_typed_ticked_and_chosen(open_page):
    session = open_page(FORM)
    write(session, "textbox 'Name'", "y z")
    click(session, "checkbox ' Yes'")
    click(session, "radio 'Two'")
    session.act(Action(Kind.SELECT, find(session, "combobox 'Size'"), "larg"))
    write(session, "textbox 'Text'", "one\ntwo")
    click(session, "option 'Small'")
    click(session, "option 'Large'")
    assert click(session, "button 'Send'").failure is None
    assert sent(session) == "POST a=xy+z&c=1&r=2&s=l&t=one%0D%0Atwo&h=%7E*&go=1"


def test_typing_tabs_history_and_failures_are_those_of_the_text_browser(open_page):
    page = (
        '<h1>Head</h1><form action="/to"><input name="q" aria-label="Q" value="old"><button>Go</button></form>'
        '<a href="/to?n" target="_blank">New</a><input type="number" aria-label="N"><input type="date" aria-label="D">'
        '<form action="/to"><input name="e" type="email" required aria-label="E"><button>Mail</button></form>'
        '<details><summary>More</summary><p>Inside</p></details><a href="#x">Low</a>'
        '<select aria-label="S"><option>first</option><option>second</option></select>'
    )
    sessions = [open_page(page), TextBrowser().open(one(page), [HERE])]
    told = []
    for step in (
        ("heading", Kind.TYPE, {"text": "x"}), ("textbox 'Q'", Kind.TYPE, {"text": "er"}),
        ("textbox 'Q'", Kind.TYPE, {"text": "new", "clear": True}), ("spinbutton 'N'", Kind.TYPE, {"text": "1a2"}),
        ("Date 'D'", Kind.TYPE, {"text": "06/15/2026"}), ("button 'Mail'", Kind.CLICK, {}),
        ("textbox 'E'", Kind.TYPE, {"text": "nobody", "enter": True}), ("DisclosureTriangle", Kind.CLICK, {}),
        ("link 'Low'", Kind.CLICK, {}), ("combobox", Kind.SELECT, {"text": "third"}),
        ("combobox", Kind.SELECT, {"text": "second"}), (None, Kind.PRESS, {"text": "ctrl+frob"}),
        ("heading", Kind.HOVER, {}), (None, Kind.SCROLL, {"pages": 1.0}), ("button 'Go'", Kind.CLICK, {}),
        (None, Kind.BACK, {}), (None, Kind.BACK, {}), (None, Kind.BACK, {}), (None, Kind.FORWARD, {}),
        ("link 'New'", Kind.CLICK, {}), (None, Kind.FOCUS_TAB, {"tab": 0}), (None, Kind.CLOSE_TAB, {}),
        (None, Kind.NEW_TAB, {}), (None, Kind.FOCUS_TAB, {"tab": 7}), (None, Kind.GOTO, {"text": "file:///etc/passwd"}),
        (None, Kind.GOTO, {"text": "http://elsewhere.example/"}), (None, Kind.CLICK, {"element": 999}),
    ):  # fmt: skip
        line, kind, more = step
        seen = []
        for session in sessions:
            if line is not None:
                more = {**more, "element": find(session, line)}
            outcome = session.act(Action(kind, **more))
            lines = [node.line for node in session.observe().nodes.values()]
            seen.append((outcome, session.url, lines, session.observe().header()))
        assert seen[0] == seen[1], step
        told.append(seen[0][0].failure)
    assert sum(failure is not None for failure in told) == 9


def test_simplified_html_and_its_ids(open_page):
    page = '<h1>Head</h1><a href="/to?a">A</a><input aria-label="Q"><p hidden>no</p><a href="/to?b">B</a>'
    session, text = open_page(page), TextBrowser().open(one(page), [HERE])
    for each in (session, text):
        each.simplified_html()
        each.act(Action(Kind.TYPE, 1, "hello"))
    assert session.simplified_html() == text.simplified_html()
    assert 'data-value="hello"' in text.simplified_html()
    session.act(Action(Kind.CLICK, 2))
    assert session.url == "http://here.test/to?b"


def test_graders_look_without_leaving_a_trace(open_page):
    session = open_page('<input name="q"><p class="x">One <b>two</b></p>')
    write(session, "textbox ''", "typed")
    assert session.locate("document.querySelector('[name=\"q\"').value") == "typed"
    assert session.locate("document.querySelector('.x').outerText") == "One two"
    assert session.locate("document.querySelector('.none').outerText") == ""
    assert session.visit("http://here.test/to?z=1").status == 200
    assert session.locate("document.querySelector('p').outerText", "http://here.test/to?z=1") == "GET z=1"
    assert session.url == HERE
    assert session.observe().header() == "Tab 0 (current): Page"
    assert session.act(Action(Kind.GOTO, text="http://here.test/to")).failure is None
    located = open_page(LOCATED)
    assert [located.locate(locator) for locator, _ in LOCATORS] == [found for _, found in LOCATORS]


def test_a_screenshot_is_a_picture(open_page):
    assert open_page("<p>Here").screenshot().startswith(b"\x89PNG")


def test_cookies_and_sessions_do_not_meet(open_page, chromium):
    site = SITES["reddit"]
    web, other = Web(0), Web(0)
    signed = open_page(web, site.url, {site.host: web.sign_in(site)})
    stranger = open_page(other, site.url)
    pages = chromium.observe_many([signed, stranger])
    assert "button 'Log out'" in pages[0].text()
    assert "button 'Log out'" not in pages[1].text()
    outcomes = chromium.act_many([signed, stranger], [Action(Kind.GOTO, text=f"http://{site.host}/forums")] * 2)
    assert [outcome.failure for outcome in outcomes] == [None, None]
    assert signed.url == stranger.url == f"http://{site.host}/forums"


def test_scripts_dialogs_and_downloads(open_page):
    page = """<button onclick="document.title = 'Asked ' + confirm('Sure?')">Ask</button>
    <button onclick="fetch('http://elsewhere.example/').then(r => document.title = r.status)">Get</button>
    <a href="/file">File</a>"""
    from oneiro_web.sites.web import Reply

    web = Pages(
        {
            HERE: f"<title>Page</title>{page}",
            "http://here.test/file": Reply(200, (("content-type", "application/zip"),), b"PK"),
        }
    )
    session = open_page(web)
    assert click(session, "button 'Ask'").events == ("dialog",)
    assert session.observe().title == "Asked true"
    assert "download" in click(session, "link 'File'").events
    assert session.url == HERE
    click(session, "button 'Get'")
    session.locate("1")
    assert "elsewhere" not in session.url


def test_nothing_passes_the_proxy(open_page, chromium):
    refused = chromium.server.refused
    page = """<button onclick="fetch('https://elsewhere.example/').catch(() => document.title = 'tls');
    new WebSocket('ws://elsewhere.example/').onerror = () => document.body.append(' socket')">Try</button>"""
    session = open_page(page)
    click(session, "button 'Try'")
    deadline = time.monotonic() + 60
    while not (session.observe().title == "tls" and "socket" in session.html()) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert session.observe().title == "tls"
    assert chromium.server.refused > refused
    assert all(url.startswith("http://here.test/") for _, url, _, _ in session.web.asked)


def test_a_crashed_page_is_a_blank_tab_and_a_dead_browser_is_replaced(chromium):
    with type(chromium)(Limits(seconds=60.0)) as fragile:
        session = fragile.open(one("<h1>Head</h1>"), [HERE])
        assert session.act(Action(Kind.NOTHING)).failure is None
        fragile.turn(fragile.process.close())
        with pytest.raises(BrowserDied):
            session.act(Action(Kind.CLICK, 1))
        again = fragile.open(one("<h1>Head</h1>"), [HERE])
        assert "heading 'Head'" in again.observe().text()
        assert fragile.counts["restart"] == 1


def test_a_browser_that_is_not_there_is_said_in_one_line(chromium):
    with pytest.raises(WebError, match=r"Chromium does not start .*install it"):
        type(chromium)(executable="/nowhere/chromium")


def test_answers_without_cookies_are_not_stored(open_page):
    session = open_page(Pages({HERE: html("<a href='/b'>B</a>"), "http://here.test/b": "<title>B</title>"}))
    click(session, "link 'B'")
    session.act(Action(Kind.BACK))
    assert [url for _, url, _, _ in session.web.asked] == [HERE, "http://here.test/b", HERE]
