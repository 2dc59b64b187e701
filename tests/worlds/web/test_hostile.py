"""Pages that mean harm: none hangs, escapes or ends the run, in either browser."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest

from oneiro.worlds.web.actions import Action, Kind
from oneiro.worlds.web.browser.base import Browser, Limits, Session
from oneiro.worlds.web.browser.text import TextBrowser
from oneiro.worlds.web.sites.web import Reply
from tests.worlds.web.pages import Pages, html, redirect

LIMITS = Limits(nodes=5000, seconds=2.0, tabs=3)
A = "http://a.test/"
HTML = (("content-type", "text/html"),)

WEB = "needs Playwright (pip install oneiro[web])"


def slow(method: str, url: str, body: bytes) -> Reply:
    time.sleep(4)
    return html("late")


PAGES = {
    "500,000 nodes": {A: "<title>T</title>" + "<b>x</b>" * 500_000},
    "deep nodes": {A: "<title>T</title>" + "<div>" * 100_000 + "deep"},
    "endless redirects": {A: redirect(A, 302)},
    "redirect to a file": {A: redirect("file:///etc/passwd", 302)},
    "redirect outside": {A: redirect("http://169.254.169.254/latest", 302)},
    "100 MB": {A: Reply(200, HTML, b"<title>T</title>" + b"x" * (100 << 20))},
    "no UTF-8": {A: Reply(200, HTML, b"<title>T</title><p>\xff\xfe caf\xe9 \x80</p>")},
    "long name": {A: f"<title>T</title><a href='/x'>{'y' * 1_000_000}</a>"},
    "many attributes": {A: "<title>T</title><p " + " ".join(f"a{i}='1'" for i in range(50_000)) + ">z</p>"},
    "bad markup": {A: "<title>T</title><table><form><tr><select><p></table><a href='x'><a href=\"y'>" + "<!--" * 999},
    "bad status and headers": {
        A: Reply(799, (("content-type", "text/html"), ("x-a", "b\r\nset-cookie: k=v")), b"<p>odd")
    },
}
HEAVY = ("deep nodes", "100 MB")
"""Twenty seconds each in Chromium."""
SCRIPTED = {
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


@pytest.fixture(scope="module")
def text() -> Browser:
    return TextBrowser(LIMITS)


@pytest.fixture(scope="module", params=["chromium", "lightpanda"])
def scripted(request) -> Iterator[Browser]:
    """A browser that runs scripts."""
    if request.param == "chromium":
        if shutil.which("chromium") is None:
            pytest.skip("needs Chromium (apt install chromium)")
        started = pytest.importorskip("oneiro.worlds.web.browser.chromium", reason=WEB).ChromiumBrowser(LIMITS)
    else:
        pytest.importorskip("lightpanda", reason="needs Lightpanda (pip install oneiro[lightpanda])")
        started = pytest.importorskip("oneiro.worlds.web.browser.lightpanda", reason=WEB).LightpandaBrowser(
            replace(LIMITS, seconds=1.0)
        )
    with started as browser:
        yield browser


def survives(browser: Browser, web: Pages, name: str) -> Session:
    """Open, look, act, look: in bounded time, and nothing of the machine is seen."""
    began = time.monotonic()
    session = browser.open(web, [A])
    page = session.observe()
    assert len(page.nodes) <= LIMITS.nodes
    assert len(page.text()) < 1_000_000
    for action in (Action(Kind.CLICK, max(page.nodes)), Action(Kind.PRESS, text="Tab"), Action(Kind.GOTO, text=A)):
        session.act(action)
        assert "root:" not in session.observe().text(), name
    assert time.monotonic() - began < 200, name
    assert not [
        url for _, url, _, _ in web.asked if not url.startswith(("http://a.test/", "http://169.254.", "http://10."))
    ]
    return session


@pytest.mark.parametrize("name", PAGES)
def test_the_text_browser_survives(text, name):
    session = survives(text, Pages(PAGES[name]), name)
    assert "passwd" not in session.html()
    if name in ("500,000 nodes", "100 MB"):
        assert session.observe().title == "T"


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.thorough) if name in HEAVY else name for name in PAGES]
)
def test_browsers_with_scripts_survive(scripted, name):
    session = survives(scripted, Pages(PAGES[name]), name)
    if name == "500,000 nodes":
        page = session.observe()
        assert page.cut or page.url == "about:blank", "a page that is too slow to be read gives way to an empty one"
    session.close()


def test_browsers_with_scripts_survive_scripts(scripted):
    said = {}
    for name, script in SCRIPTED.items():
        answers = {A: f'<title>T</title><button onclick="{script}">Go</button>', f"{A}next": "<title>N</title>"}
        answers[f"{A}echo"] = html("headers")
        web = Pages(answers)
        session = scripted.open(web, [A])
        button = next(node.id for node in session.observe().nodes.values() if node.role == "button")
        outcome = session.act(Action(Kind.CLICK, button))
        said[name] = outcome.events
        page = session.observe()
        assert len(page.nodes) <= LIMITS.nodes and len(page.tabs) <= LIMITS.tabs, name
        assert "root:" not in page.text(), name
        session.act(Action(Kind.GOTO, text=f"{A}next"))
        assert session.observe().title in ("N", "T", ""), name
        assert not [url for _, url, _, _ in web.asked if "passwd" in url], name
        session.close()
    assert said["alert loop"].count("dialog") >= 20
    assert {"timeout", "crash"} & set(said["endless script"])
    again = scripted.open(Pages({A: "<title>After</title>"}), [A])
    assert again.observe().title == "After"


def test_browsers_with_scripts_survive_scripts_at_once_and_slow_sites(scripted):
    for body in ("<script>for (;;) {}</script>", "<script>for (;;) alert(1)</script>"):
        session = scripted.open(Pages({A: f"<title>T</title>{body}<p>after</p>"}), [A])
        session.observe()
        session.act(Action(Kind.NOTHING))
        session.close()
    session = scripted.open(Pages({A: slow, f"{A}b": "<title>B</title>"}), [A])
    session.observe()
    session.close()
    again = scripted.open(Pages({A: "<title>After</title>"}), [A])
    assert again.observe().title == "After"
