"""What browsers in other processes share: an event loop in a thread, a proxy, and many sessions stepped at once."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, ClassVar, TypeVar

from oneiro_web.actions import Action
from oneiro_web.browsers.base import Browser, BrowserDied, Limits, Outcome, Session, Visited
from oneiro_web.browsers.chromium.server import ProxyServer
from oneiro_web.page import Page

Result = TypeVar("Result")
STOP_SECONDS = 20.0
AT_ONCE = max(8, 2 * (os.cpu_count() or 1))
"""Sessions of a browser that work at the same time. The others wait for their turn, and the clocks of their pages with
them: on few cores many sessions are slow, and none of their pages is to blame.
"""


class WaitingSession(Session):
    """A session whose methods hand their work to the browser's thread, where the ones with an underscore run."""

    browser: WaitingBrowser
    events: list[str]
    tabs: list[Any]
    front: int

    def observe(self) -> Page:
        return self.browser.turn(self._observe())

    def act(self, action: Action) -> Outcome:
        return self.browser.turn(self._act(action))

    def simplified_html(self) -> str:
        return self.browser.turn(self._simplified())

    def visit(self, url: str) -> Visited:
        return self.browser.turn(self._visit(url, None))[0]

    def locate(self, locator: str, url: str | None = None) -> str:
        if url is not None:
            return self.browser.turn(self._visit(url, locator))[1]
        return self.browser.turn(self._evaluate(self.tabs[self.front], locator))

    def event(self, name: str) -> None:
        """Count what happened besides."""
        self.events.append(name)
        self.browser.count(name)

    async def _observe(self) -> Page:
        raise NotImplementedError

    async def _act(self, action: Action) -> Outcome:
        raise NotImplementedError

    async def _simplified(self) -> str:
        raise NotImplementedError

    async def _visit(self, url: str, locator: str | None) -> tuple[Visited, str]:
        """A page of its own for a grader, and what a locator finds on it."""
        raise NotImplementedError

    async def _value(self, tab: Any, expression: str) -> Any:
        """The value of an expression in a page, None where it has none or the page does not answer."""
        raise NotImplementedError

    async def _evaluate(self, tab: Any, locator: str) -> str:
        """A locator as JavaScript; what goes wrong in it is nothing found."""
        value = await self._value(tab, f"(() => {{ try {{ return ({locator}) }} catch {{ }} }})()")
        if isinstance(value, bool):
            return "true" if value else "false"
        return "" if value is None else str(value)


class WaitingBrowser(Browser):
    """Sessions work in the thread's event loop; their methods with an underscore are coroutines there."""

    failure: ClassVar[type[Exception]]
    """What the protocol raises where the browser is gone."""
    start_seconds: ClassVar[float]

    def __init__(self, limits: Limits | None = None) -> None:
        super().__init__(limits)
        self.patience = 8 * self.limits.seconds + 20
        """Seconds of a turn until a browser that does not answer is given up; pages that hang are stopped long
        before.
        """
        self.turns = asyncio.Semaphore(AT_ONCE)
        self.turns_ended = 0
        self.hung = False
        self.starting = threading.Lock()
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, name=self.name, daemon=True)
        self.thread.start()
        self.server = ProxyServer(self.limits)

    def wait(self, work: Coroutine[Any, Any, Result], seconds: float) -> Result:
        """Run something in the browser's thread, so long and no longer."""
        deadline = time.monotonic() + seconds
        return self._result(work, lambda: deadline - time.monotonic())

    def turn(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Run a session's work in the browser's thread when its turn comes; from then on it has `patience`."""
        began: list[float] = []

        def left() -> float:
            return began[0] + self.patience - time.monotonic() if began else self.patience

        return self._result(self._turn(work, began), left, lambda: not began)

    def _result(
        self, work: Coroutine[Any, Any, Result], left: Callable[[], float], waits: Callable[[], bool] = lambda: False
    ) -> Result:
        """What `work` gives within the seconds `left`. A browser that does not answer at all is dead; the next session
        starts a new one. Work that `waits` for its turn goes on waiting as long as other turns end.
        """
        future = asyncio.run_coroutine_threadsafe(work, self.loop)
        while True:
            ended = self.turns_ended
            try:
                return future.result(max(0.0, left()))
            except TimeoutError:
                # Either nothing came in time, or the work itself gave up on a page: then the browser answers others.
                if not future.done() and (left() > 0 if not waits() else self.turns_ended > ended):
                    continue
                self.hung = self.hung or not future.done()
                future.cancel()
                raise BrowserDied(f"{self.name.capitalize()} does not answer") from None
            except self.failure as error:
                raise self._explain_death(error) from None

    async def _turn(self, work: Coroutine[Any, Any, Result], began: list[float]) -> Result:
        try:
            async with self.turns:
                began.append(time.monotonic())
                try:
                    return await work
                finally:
                    self.turns_ended += 1
        finally:
            work.close()  # where its turn never came

    def act_many(self, sessions: Sequence[Session], actions: Sequence[Action]) -> list[Outcome]:
        return self._at_once([one._act(action) for one, action in zip(sessions, actions, strict=True)])  # type: ignore[attr-defined]

    def observe_many(self, sessions: Sequence[Session]) -> list[Page]:
        return self._at_once([one._observe() for one in sessions])  # type: ignore[attr-defined]

    def step_many(
        self, sessions: Sequence[Session], actions: Sequence[Action]
    ) -> list[tuple[Outcome, Page] | BrowserDied]:
        async def step(one: Any, action: Action) -> tuple[Outcome, Page] | BrowserDied:
            try:
                return await one._act(action), await one._observe()
            except BrowserDied as error:
                return error
            except self.failure as error:
                return self._explain_death(error)

        try:
            return self._at_once([step(one, action) for one, action in zip(sessions, actions, strict=True)])
        except BrowserDied as error:  # it does not answer at all
            return [error] * len(sessions)

    def _explain_death(self, error: Exception) -> BrowserDied:
        return BrowserDied(f"{self.name.capitalize()}: {(str(error) or 'gone').splitlines()[0]}")

    def _at_once(self, work: list[Coroutine[Any, Any, Result]]) -> list[Result]:
        began: list[float] = []

        async def together() -> list[Result]:
            return list(await asyncio.gather(*[self._turn(one, began) for one in work]))

        def left() -> float:  # since the last of them began
            return (began[-1] if began else time.monotonic()) + self.patience - time.monotonic()

        return self._result(together(), left, lambda: len(began) < len(work))

    def count(self, event: str) -> None:
        """One more of an event."""
        self.counts[event] = self.counts.get(event, 0) + 1

    @property
    def alive(self) -> bool:
        """Whether the process runs."""
        raise NotImplementedError

    async def _start(self) -> None:
        """Start the process."""
        raise NotImplementedError

    async def _stop(self) -> None:
        """End the process."""
        raise NotImplementedError

    def _ensure(self) -> None:
        """A process that answers, before a session begins."""
        with self.starting:
            if self.alive and not self.hung:
                return
            self.count("restart")
            if self.hung:
                with contextlib.suppress(BrowserDied):
                    self.wait(self._stop(), STOP_SECONDS)
            self.hung = False
            self.wait(self._start(), self.start_seconds)

    def close(self) -> None:
        async def stop() -> None:
            await self._stop()
            await self.server.stop()

        if not self.thread.is_alive():
            return
        try:
            self.wait(stop(), STOP_SECONDS)
        except BrowserDied:
            pass
        finally:
            self.loop.call_soon_threadsafe(self.loop.stop)
            self.thread.join(5.0)
