"""`oneiro bench web`: steps and resets of the browsers on our sites and on MiniWoB++, beside BrowserGym, in one run.

A step is one action and the page as text after it. On our sites it is a click on a random link; on MiniWoB++ a click on
a random element. BrowserGym runs under the Python that ONEIRO_PEER_PYTHON names, on the same MiniWoB++ tasks, with its
default delay of half a second before each observation and with none.

`oneiro bench web --rollouts` is in `bench.rollouts`.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from bench.process import PEER_PYTHON
from oneiro.report.table import Table
from oneiro.runtime.collector import collecting_rarely
from oneiro.runtime.errors import OneiroError
from oneiro.runtime.seeds import generator
from oneiro_web import browsing
from oneiro_web.actions import Action, Kind
from oneiro_web.benchmarks.miniwob import episode as miniwob
from oneiro_web.browsers.base import Browser, Session
from oneiro_web.page import Page
from oneiro_web.sites import SITES, Web
from oneiro_web.sites.base import templates

CONTEXTS = (1, 4, 16)
TASKS = ("click-test", "click-checkboxes", "click-dialog", "enter-text", "login-user", "search-engine")
CLICKS = 5
"""Clicks on a MiniWoB++ page before the next one."""
LEAVE = ("log out", "sign out")
"""Links that would leave nothing but the page to log in."""
PATIENCE = 20
"""How many times as long as it should a peer may take."""


def run(model: str | None = None, *, seconds: float = 5.0, rollouts: bool = False, **options: Any) -> list[Table]:
    """Measure; `model` and other options are those of `rollouts`, which measures an agent (`bench.rollouts`)."""
    if rollouts:
        from bench.rollouts import compare

        return compare(model, **options)
    if model is not None or options:
        name = "model" if model is not None else next(iter(options))
        raise OneiroError(f"bench web has no option --{name.replace('_', '-')} without --rollouts")
    from oneiro_web.browsers.text.browser import TextBrowser

    rates = Table("Web: actions with the page as text after them", ["browser", "pages", "episodes at once", "steps/s"])
    resets = Table("Web: a new episode, until its first page is there as text", ["browser", "pages", "ms"])
    prepare()
    with TextBrowser() as text, collecting_rarely():  # as in rollouts
        for name in SITES:
            rates.add("text", name, 1, round(site_rate(text, 1, seconds, [name]), 1))
        resets.add("text", "our sites", round(reset_time(text, seconds), 2))
    try:
        with browsing.start("chromium") as chromium:
            for episodes in CONTEXTS:
                rates.add("chromium", "our sites", episodes, round(site_rate(chromium, episodes, seconds), 1))
            resets.add("chromium", "our sites", round(reset_time(chromium, seconds), 2))
            steps, reset = miniwob_rate(chromium, seconds)
            rates.add("chromium", "MiniWoB++", 1, round(steps, 1))
            resets.add("chromium", "MiniWoB++", round(1000 * reset, 2))
    except (OneiroError, ImportError) as error:
        rates.add("chromium", f"not measured: {error}", None, None)
    for name, found in browsergym(seconds).items():
        if isinstance(found, str):
            rates.add(name, f"not measured: {found}", None, None)
        else:
            rates.add(name, "MiniWoB++", 1, round(found["steps_per_second"], 2))
            resets.add(name, "MiniWoB++", round(1000 * found["reset_seconds"], 1))
    return [rates, resets]


def prepare() -> None:
    """What a process does once: templates are compiled, and the sites' content is made."""
    for template in templates().list_templates():
        templates().get_template(template)
    for site in SITES.values():
        Web(0).database(site)


def opened(browser: Browser, site: str, content: int) -> tuple[Web, Session]:
    """An episode on a site, logged in."""
    web = Web(content)
    found = SITES[site]
    return web, browser.open(web, [found.url], {found.host: web.sign_in(found)})


def site_rate(browser: Browser, episodes: int, seconds: float, sites: Sequence[str] = ()) -> float:
    """Random clicks on links of our sites, in so many episodes at once."""
    names, chance = list(sites or SITES), generator("bench", "web", episodes)
    with ExitStack() as stack:
        sessions = []
        for index in range(episodes):
            web, session = opened(browser, names[index % len(names)], 0)
            stack.callback(web.close)
            stack.callback(session.close)
            sessions.append(session)
        pages = browser.observe_many(sessions)

        def once() -> int:
            nonlocal pages
            browser.act_many(sessions, [random_link(page, chance) for page in pages])
            pages = browser.observe_many(sessions)
            for page in pages:
                page.text()
            return len(sessions)

        return rate(once, seconds)


def random_link(page: Page, chance: np.random.Generator) -> Action:
    """A click that leads to another page of the site; back to the start where there is none."""
    links = [node.id for node in page.nodes.values() if node.role == "link" and node.name.lower() not in LEAVE]
    return Action(Kind.CLICK, links[int(chance.integers(len(links)))]) if links else Action(Kind.BACK)


def rate(once: Callable[[], int], seconds: float) -> float:
    """How often a second, after a first time that does not count."""
    once()
    began, done = time.perf_counter(), 0
    while (spent := time.perf_counter() - began) < seconds:
        done += once()
    return done / spent


def reset_time(browser: Browser, seconds: float) -> float:
    """Milliseconds from nothing to the first page as text: the median over the sites' contents as they come."""
    names, taken = list(SITES), list[float]()
    began = time.perf_counter()
    while time.perf_counter() - began < seconds or len(taken) < 5:
        start = time.perf_counter()
        web, session = opened(browser, names[len(taken) % len(names)], 0)
        session.observe().text()
        taken.append(time.perf_counter() - start)
        session.close()
        web.close()
    return 1000 * float(np.median(taken))


def miniwob_rate(browser: Browser, seconds: float) -> tuple[float, float]:
    """Steps a second and seconds a reset on MiniWoB++ pages, the same way BrowserGym is measured."""
    chance, steps, spent, resets, resetting = generator("bench", "miniwob"), 0, 0.0, 0, 0.0
    while spent < seconds:
        began = time.perf_counter()
        with miniwob.Episode(browser, TASKS[resets % len(TASKS)], seed=resets) as episode:
            page = episode.session.observe()
            resetting, resets = resetting + time.perf_counter() - began, resets + 1
            began = time.perf_counter()
            for _ in range(CLICKS):
                ids = list(page.nodes)
                episode.act(Action(Kind.CLICK, ids[int(chance.integers(len(ids)))]))
                page = episode.session.observe()
                page.text()
                steps += 1
                if episode.done:
                    break
            spent += time.perf_counter() - began
    return steps / spent, resetting / resets


def browsergym(seconds: float) -> dict[str, Any]:
    """What the peer measured, by its delay; why not, where it could not."""
    python = os.environ.get(PEER_PYTHON) or sys.executable
    script = str(Path(__file__).with_name("browsergym_peer.py"))
    chromium = shutil.which("chromium")
    command = [python, "-P", script, str(seconds), ",".join(TASKS), *([chromium] if chromium else [])]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60 + PATIENCE * seconds)
    except subprocess.TimeoutExpired:
        return {"BrowserGym": "it took too long"}
    except OSError as error:
        raise OneiroError(
            f"{PEER_PYTHON}: cannot run '{python}' ({error.strerror}); give the path of a Python"
        ) from None
    if done.returncode:
        why = done.stderr.strip().splitlines()
        return {"BrowserGym": f"{why[-1] if why else 'it failed'} (a Python that has it: {PEER_PYTHON})"}
    found = json.loads(done.stdout.strip().splitlines()[-1])
    return {f"BrowserGym, {name}": value for name, value in found.items()}
