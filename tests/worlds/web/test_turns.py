"""Sessions of a browser take turns: who waits for one is not given up, and who has one is, after its patience."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from oneiro.worlds.web.browser.base import BrowserDied
from oneiro.worlds.web.browser.waiting import AT_ONCE, WaitingBrowser


class Idle(WaitingBrowser):
    """A browser without a process."""

    name = "idle"
    failure = ConnectionError
    working = most = 0

    def open(self, *_: Any) -> Any:
        raise NotImplementedError

    async def _stop(self) -> None:
        return None

    async def work(self, seconds: float) -> float:
        self.working += 1
        self.most = max(self.most, self.working)
        await asyncio.sleep(seconds)
        self.working -= 1
        return seconds


@pytest.fixture
def browser() -> Iterator[Idle]:
    with Idle() as started:
        started.patience = 0.5
        yield started


def test_many_sessions_wait_longer_than_anybodys_patience_and_none_is_given_up(browser: Idle) -> None:
    many = 5 * AT_ONCE  # at 0.2 seconds each the last turn begins after 0.8
    with ThreadPoolExecutor(many) as threads:
        assert list(threads.map(lambda _: browser.turn(browser.work(0.2)), range(many))) == [0.2] * many
    assert (browser.most, browser.turns_ended, browser.hung) == (AT_ONCE, many, False)
    assert browser._at_once([browser.work(0.2) for _ in range(many)]) == [0.2] * many


def test_a_turn_that_never_ends_is_given_up_also_while_others_end(browser: Idle) -> None:
    with ThreadPoolExecutor(2) as threads:
        other = threads.submit(lambda: [browser.turn(browser.work(0.1)) for _ in range(9)])
        with pytest.raises(BrowserDied, match="Idle does not answer"):
            browser.turn(browser.work(60))
        assert browser.hung and other.result() == [0.1] * 9


def test_where_no_turn_ends_those_who_wait_give_up_too(browser: Idle) -> None:
    with ThreadPoolExecutor(AT_ONCE + 1) as threads:
        stuck = [threads.submit(browser.turn, browser.work(60)) for _ in range(AT_ONCE + 1)]
        assert all(isinstance(one.exception(), BrowserDied) for one in stuck)
    assert browser.turn(browser.work(0)) == 0, "what was given up leaves its place"
