"""Sessions of a browser take turns: who waits for one is not given up, and who has one is, after its patience."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from oneiro_web.browsers.base import BrowserDied
from oneiro_web.browsers.chromium.waiting import AT_ONCE, WaitingBrowser

LONG = 120.0
"""Seconds that nothing here takes, on a busy machine either."""


class Idle(WaitingBrowser):
    """A browser without a process."""

    name = "idle"
    failure = ConnectionError
    working = most = 0

    def open(self, *_: Any) -> Any:
        raise NotImplementedError

    async def _stop(self) -> None:
        return None

    async def work(self, number: int = 0) -> int:
        """Ends when as many work as may."""
        self.working += 1
        self.most = max(self.most, self.working)
        while self.most < AT_ONCE:
            await asyncio.sleep(0.001)
        self.working -= 1
        return number

    async def hang(self) -> None:
        await asyncio.sleep(LONG)

    def start(self, work: Any) -> Any:
        """Give something a turn that nobody waits for."""
        return asyncio.run_coroutine_threadsafe(self._turn(work, []), self.loop)


class Crowded(Idle):
    """Whoever waits for a turn looks at its patience again and again; each time one of those before it ends."""

    looks = 0

    @property
    def patience(self) -> float:
        if self.looks == len(self.before):
            return LONG
        release, turn = self.before[self.looks]
        self.looks += 1
        self.loop.call_soon_threadsafe(release.set)
        turn.result(LONG)
        return 0.02

    @patience.setter
    def patience(self, seconds: float) -> None:
        self.before: list[tuple[asyncio.Event, Any]] = []

    def occupy(self, times: int) -> None:
        """Turns that end one after the other, each when it is told to."""
        self.turns = asyncio.Semaphore(1)
        for _ in range(times):
            release = asyncio.Event()
            self.before.append((release, self.start(release.wait())))


@pytest.fixture
def browser() -> Iterator[Idle]:
    with Idle() as started:
        yield started


def test_so_many_work_at_once_and_the_others_after_them(browser: Idle) -> None:
    many = 2 * AT_ONCE + 1
    with ThreadPoolExecutor(many) as threads:
        assert list(threads.map(lambda number: browser.turn(browser.work(number)), range(many))) == [*range(many)]
    assert (browser.most, browser.turns_ended, browser.hung) == (AT_ONCE, many, False)
    assert browser._at_once([browser.work(number) for number in range(many)]) == [*range(many)]
    assert browser.most == AT_ONCE


def test_who_waits_longer_than_its_patience_while_turns_end_is_not_given_up() -> None:
    with Crowded() as browser:
        browser.occupy(8)
        browser.most = AT_ONCE
        assert browser.turn(browser.work(3)) == 3
        assert browser.looks >= 8 and browser.turns_ended == 9 and not browser.hung


def test_a_turn_that_never_ends_is_given_up_also_while_others_end(browser: Idle) -> None:
    browser.patience, browser.most = 0.2, AT_ONCE
    over = threading.Event()

    async def others() -> None:
        while not over.is_set():
            await browser._turn(browser.work(), [])
            await asyncio.sleep(0.001)

    beside = asyncio.run_coroutine_threadsafe(others(), browser.loop)
    with pytest.raises(BrowserDied, match="Idle does not answer"):
        browser.turn(browser.hang())
    over.set()
    beside.result(LONG)
    assert browser.hung and browser.turns_ended > 1


def test_where_no_turn_ends_those_who_wait_give_up_too(browser: Idle) -> None:
    browser.patience, browser.most = 0.2, AT_ONCE
    with ThreadPoolExecutor(AT_ONCE + 1) as threads:
        stuck = [threads.submit(browser.turn, browser.hang()) for _ in range(AT_ONCE + 1)]
        assert all(isinstance(one.exception(LONG), BrowserDied) for one in stuck)
    browser.patience = LONG
    assert browser.turn(browser.work(7)) == 7, "what was given up leaves its place"
