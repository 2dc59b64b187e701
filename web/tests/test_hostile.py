"""Pages that mean harm: none hangs, escapes or ends the run, in either browser."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from oneiro_web.actions import Action, Kind
from oneiro_web.browsers.base import Browser, Limits, Session
from oneiro_web.browsers.text.browser import TextBrowser
from oneiro_web.sites.web import Reply
from web.tests.pages import Pages, html, redirect

LIMITS = Limits(nodes=1000, seconds=60.0, tabs=3)
"""Pages that answer have all the time that a busy machine may need."""
IMPATIENT = 0.5
"""Seconds for what never answers: each test waits for them."""
A = "http://a.test/"
HTML = (("content-type", "text/html"),)

PAGES = {
    "5,000 nodes": {A: "<title>T</title>" + "<b>x</b>" * 5_000},
    "500,000 nodes": {A: "<title>T</title>" + "<b>x</b>" * 500_000},
    "deep nodes": {A: "<title>T</title>" + "<div>" * 100_000 + "deep"},
    "endless redirects": {A: redirect(A, 302)},
    "redirect to a file": {A: redirect("file:///etc/passwd", 302)},
    "redirect outside": {A: redirect("http://169.254.169.254/latest", 302)},
    "100 MB": {A: lambda *_: Reply(200, HTML, b"<title>T</title>" + b"x" * (100 << 20))},
    "no UTF-8": {A: Reply(200, HTML, b"<title>T</title><p>\xff\xfe caf\xe9 \x80</p>")},
    "long name": {A: f"<title>T</title><a href='/x'>{'y' * 1_000_000}</a>"},
    "many attributes": {A: "<title>T</title><p " + " ".join(f"a{i}='1'" for i in range(50_000)) + ">z</p>"},
    "bad markup": {A: "<title>T</title><table><form><tr><select><p></table><a href='x'><a href=\"y'>" + "<!--" * 999},
    "bad status and headers": {
        A: Reply(799, (("content-type", "text/html"), ("x-a", "b\r\nset-cookie: k=v")), b"<p>odd")
    },
}
QUICK = ("5,000 nodes", "redirect to a file", "bad status and headers")
"""What Chromium is shown in every run: what our limits cut, our proxy refuses, or our server passes on."""
HEAVY = ("500,000 nodes", "deep nodes", "100 MB")
"""Twenty seconds each in Chromium, which gives them up."""
SCRIPTED = {
    "many alerts": "for (let i = 0; i < 30; i++) alert(i)",
    "alert loop": "for (;;) alert(1)",
    "popup storm": "for (let i = 0; i < 500; i++) open('/', '_blank')",
    "endless script": "for (;;) {}",
    "endless microtasks": "const f = () => Promise.resolve().then(f); f()",
    "growing page": "setInterval(() => { for (let i = 0; i < 999; i++) document.body.append(new Comment('x'), 'y') })",
    "service worker": "navigator.serviceWorker?.register('/sw.js')",
    "file frame": "document.body.append(Object.assign(document.createElement('iframe'), {src: 'file:///etc/passwd'}))",
    "way out": "location = 'file:///etc/passwd'; fetch('http://169.254.169.254/'); new Image().src = 'http://10.0.0.1/'",
    "closing itself": "close()",
    "leaving never": "onbeforeunload = e => { e.preventDefault(); return 'stay' }; location = '/next'",
    "proxy secrets": "fetch('/echo').then(r => r.text()).then(t => document.title = t)",
}
RARE = ("alert loop", "endless microtasks", "growing page", "service worker", "file frame", "closing itself",
        "leaving never")  # fmt: skip
"""Each is much like one of the others."""


@pytest.fixture(scope="module")
def text() -> Browser:
    return TextBrowser(LIMITS)


@pytest.fixture
def chromium(chromium: Browser) -> Iterator[Browser]:
    """The Chromium of all tests, within these limits: what harms it is a fault that the next test will notice."""
    before, chromium.limits, chromium.server.limits = chromium.limits, LIMITS, LIMITS
    yield chromium
    chromium.limits = chromium.server.limits = before


@contextmanager
def impatient(browser: Browser, seconds: float = IMPATIENT) -> Iterator[None]:
    """Sessions opened in here, and requests answered in here, have so many seconds."""
    browser.limits = browser.server.limits = replace(LIMITS, seconds=seconds)
    yield
    browser.limits = browser.server.limits = LIMITS


def survives(browser: Browser, web: Pages, name: str) -> Session:
    """Open, look, act, look: it ends, and nothing of the machine is seen."""
    session = browser.open(web, [A])
    page = session.observe()
    assert len(page.nodes) <= LIMITS.nodes
    assert len(page.text()) < 1_000_000
    for action in (Action(Kind.CLICK, max(page.nodes)), Action(Kind.PRESS, text="Tab"), Action(Kind.GOTO, text=A)):
        session.act(action)
        assert "root:" not in session.observe().text(), name
    assert not [
        url for _, url, _, _ in web.asked if not url.startswith(("http://a.test/", "http://169.254.", "http://10."))
    ]
    return session


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.thorough) if "500" in n else n for n in PAGES])
def test_the_text_browser_survives(text, name):
    session = survives(text, Pages(PAGES[name]), name)
    assert "passwd" not in session.html()
    if name in ("5,000 nodes", "500,000 nodes", "100 MB"):
        assert session.observe().title == "T"


@pytest.mark.parametrize(
    "name",
    [n if n in QUICK else pytest.param(n, marks=pytest.mark.thorough) for n in PAGES if n not in HEAVY],
)
def test_chromium_survives(chromium, name):
    session = survives(chromium, Pages(PAGES[name]), name)
    if name == "5,000 nodes":
        assert session.observe().cut
    session.close()


@pytest.mark.thorough
@pytest.mark.parametrize("name", HEAVY)
def test_chromium_gives_up_what_takes_too_long(chromium, name):
    with impatient(chromium, 2.0):
        session = survives(chromium, Pages(PAGES[name]), name)
        if name == "500,000 nodes":
            page = session.observe()
            assert page.cut or page.url == "about:blank", "a page that is too slow to be read gives way to an empty one"
        session.close()


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.thorough) if n in RARE else n for n in SCRIPTED])
def test_chromium_survives_scripts(chromium, name, monkeypatch):
    if name == "way out":  # asked for and never begun
        monkeypatch.setattr("oneiro_web.browsers.chromium.actions.STARTED_SECONDS", IMPATIENT)
    answers = {A: f'<title>T</title><button onclick="{SCRIPTED[name]}">Go</button>', f"{A}next": "<title>N</title>"}
    answers[f"{A}echo"] = html("headers")
    web = Pages(answers)
    session = chromium.open(web, [A])
    button = next(node.id for node in session.observe().nodes.values() if node.role == "button")
    if name.startswith(("alert loop", "endless", "growing")):
        session.limits = replace(LIMITS, seconds=2 * IMPATIENT)
    events = session.act(Action(Kind.CLICK, button)).events
    page = session.observe()
    assert len(page.nodes) <= LIMITS.nodes and len(page.tabs) <= LIMITS.tabs
    assert "root:" not in page.text()
    session.act(Action(Kind.GOTO, text=f"{A}next"))
    assert session.observe().title in ("N", "T", "")
    assert not [url for _, url, _, _ in web.asked if "passwd" in url]
    session.close()
    if name == "many alerts":
        assert events.count("dialog") > 20, "they are answered, one after the other"
    if name == "endless script":
        assert {"timeout", "crash"} & set(events)
        assert_answers(chromium)


@pytest.mark.parametrize("script", ["for (;;) {}", pytest.param("for (;;) alert(1)", marks=pytest.mark.thorough)])
def test_chromium_survives_scripts_at_once(chromium, script):
    with impatient(chromium):
        session = chromium.open(Pages({A: f"<title>T</title><script>{script}</script><p>after</p>"}), [A])
        session.observe()
        session.act(Action(Kind.NOTHING))
        session.close()
    assert_answers(chromium)


def test_chromium_survives_a_site_that_never_answers(chromium):
    over = threading.Event()

    def silent(method: str, url: str, body: bytes) -> Reply:
        over.wait(60)
        return html("late")

    with impatient(chromium):
        session = chromium.open(Pages({A: silent}), [A])
        assert "late" not in session.observe().text()
        session.close()
    over.set()
    assert_answers(chromium)


def assert_answers(browser: Browser) -> None:
    """The next session is served as if nothing had been."""
    session = browser.open(Pages({A: "<title>After</title>"}), [A])
    assert session.observe().title == "After"
    session.close()
