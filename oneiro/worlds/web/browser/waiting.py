"""What browsers in other processes share: an event loop in a thread, a proxy, and many sessions stepped at once."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Coroutine, Sequence
from typing import Any, ClassVar, TypeVar

from oneiro.worlds.web.actions import Action
from oneiro.worlds.web.browser.base import Browser, BrowserDied, Limits, Outcome, Session, Visited
from oneiro.worlds.web.browser.server import Server
from oneiro.worlds.web.page import Page

Result = TypeVar("Result")
STOP_SECONDS = 20.0


class WaitingSession(Session):
    """A session whose methods hand their work to the browser's thread, where the ones with an underscore run."""

    browser: WaitingBrowser
    events: list[str]
    tabs: list[Any]
    front: int

    def observe(self) -> Page:
        return self.browser.wait(self._observe())

    def act(self, action: Action) -> Outcome:
        return self.browser.wait(self._act(action))

    def simplified_html(self) -> str:
        return self.browser.wait(self._simplified())

    def visit(self, url: str) -> Visited:
        return self.browser.wait(self._visit(url, None))[0]

    def locate(self, locator: str, url: str | None = None) -> str:
        if url is not None:
            return self.browser.wait(self._visit(url, locator))[1]
        return self.browser.wait(self._evaluated(self.tabs[self.front], locator))

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

    async def _evaluated(self, tab: Any, locator: str) -> str:
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
        """Seconds until a browser that does not answer is given up; pages that hang are stopped long before."""
        self.hung = False
        self.starting = threading.Lock()
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, name=self.name, daemon=True)
        self.thread.start()
        self.server = Server(self.limits)

    def wait(self, work: Coroutine[Any, Any, Result], seconds: float | None = None) -> Result:
        """Run something in the browser's thread. A browser that does not answer at all is dead; the next session starts
        a new one.
        """
        bound = seconds if seconds is not None else self.patience
        future = asyncio.run_coroutine_threadsafe(work, self.loop)
        try:
            return future.result(bound)
        except TimeoutError:
            # Either nothing came in time, or the work itself gave up on a page: then the browser answers others.
            self.hung = self.hung or not future.done()
            future.cancel()
            raise BrowserDied(f"{self.name.capitalize()} does not answer") from None
        except self.failure as error:
            raise self._died(error) from None

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
                return self._died(error)

        try:
            return self._at_once([step(one, action) for one, action in zip(sessions, actions, strict=True)])
        except BrowserDied as error:  # it does not answer at all
            return [error] * len(sessions)

    def _died(self, error: Exception) -> BrowserDied:
        return BrowserDied(f"{self.name.capitalize()}: {(str(error) or 'gone').splitlines()[0]}")

    def _at_once(self, work: list[Coroutine[Any, Any, Result]]) -> list[Result]:
        async def together() -> list[Result]:
            return list(await asyncio.gather(*work))

        return self.wait(together(), self.patience + len(work))

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
