"""A browser whose processes answer nobody any more costs one session: the next one has a new browser."""

from __future__ import annotations

import os
import shutil
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from oneiro_web.browsers.base import BrowserDied, Limits
from web.tests.pages import one
from web.tests.proc import below

HERE = "http://here.test/"


def processes() -> set[int]:
    """Chromium's, that this process or its children started."""
    return {one.id for one in below(os.getpid()) if one.name.startswith("chromium") and one.state != "Z"}


async def gives_up() -> None:
    raise TimeoutError


@pytest.mark.thorough
@pytest.mark.skipif(shutil.which("chromium") is None, reason="needs Chromium (apt install chromium)")
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
def test_a_browser_that_does_not_answer_is_killed_and_replaced():
    chromium = pytest.importorskip(
        "oneiro_web.browsers.chromium.browser", reason="needs Playwright (pip install oneiro[web])"
    )
    before = processes()
    with chromium.ChromiumBrowser(Limits(seconds=60)) as browser:
        session = browser.open(one("<h1>Head</h1>"), [HERE])
        session.observe()
        with pytest.raises(BrowserDied):
            browser.turn(gives_up())
        assert not browser.hung, "a page that is too slow says nothing of the browser"
        stopped = processes() - before
        assert stopped
        for process in stopped:
            os.kill(process, signal.SIGSTOP)
        browser.patience = 0.5
        with pytest.raises(BrowserDied, match="does not answer"):
            session.observe()
        browser.patience = 120.0
        with ThreadPoolExecutor(4) as threads:  # whoever comes first replaces it, for all
            again = list(threads.map(lambda _: browser.open(one("<h1>Head</h1>"), [HERE]), range(4)))
        assert all("heading 'Head'" in one.observe().text() for one in again)
        assert browser.counts["restart"] == 1
        assert not stopped & processes()
    assert processes() <= before
