"""The tabs of one context of Chromium: how they come and go, what happens in them, and scripts of ours in them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from playwright.async_api import (
    BrowserContext,
    CDPSession,
    Dialog,
)
from playwright.async_api import (
    Error as PlaywrightError,
)
from playwright.async_api import (
    Page as Window,
)

from oneiro_web.browsers.base import BrowserDied, address
from oneiro_web.browsers.chromium.scripts import LISTEN, WORLD
from oneiro_web.browsers.chromium.server import HEADER
from oneiro_web.browsers.chromium.waiting import WaitingSession
from oneiro_web.page import Node
from oneiro_web.sites import Web

if TYPE_CHECKING:
    from oneiro_web.browsers.chromium.browser import ChromiumBrowser

Result = TypeVar("Result")
VIEWPORT = {"width": 1280, "height": 720}
BLANK_SECONDS = 20.0
"""For Chromium to open an empty tab: a second on a quiet machine. It is no page's fault, so no page's deadline."""
MOST_DIALOGS = 20
"""Dialogs answered during one action before the page's script is stopped."""


@dataclass(eq=False)
class ChromiumTab:
    """A page of Chromium with the protocol session that reads it."""

    window: Window
    protocol: CDPSession
    first: int = 0
    """Where its history begins: blank pages before it do not count."""
    world: int | None = None
    requested: bool = False
    loading: bool = False
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    popups: int = 0
    """New tabs that its page asked for and that have not come yet."""


class Tabs(WaitingSession):
    """One context of Chromium. The methods with an underscore run in the browser's thread."""

    browser: ChromiumBrowser

    def __init__(self, browser: ChromiumBrowser, web: Web) -> None:
        self.browser, self.web = browser, web
        self.limits = browser.limits
        self.events: list[str] = []
        self.tabs: list[ChromiumTab] = []
        self.front = 0
        self.beside = False
        """A grader opens a page of its own: it is no tab."""
        self.making = False
        """A page that comes is of our own making."""
        self.secret = ""
        self.context: BrowserContext | None = None
        self.shown: dict[int, Node] | list[int] | None = None
        self.dialogs = 0
        self.arrived = asyncio.Event()
        self.setting_up: set[asyncio.Task[None]] = set()
        self.closing: set[asyncio.Task[None]] = set()

    @property
    def tab(self) -> ChromiumTab:
        """The tab in front."""
        return self.tabs[self.front]

    async def _open(self, urls: Sequence[str], cookies: Mapping[str, Mapping[str, str]]) -> None:
        assert self.browser.process is not None
        self.secret = self.browser.server.admit(self.web, self.event)
        self.context = await self.browser.process.new_context(
            viewport=VIEWPORT,  # type: ignore[arg-type]
            service_workers="block",
            accept_downloads=False,
            extra_http_headers={HEADER: self.secret},
            locale="en-US",
            timezone_id="UTC",
        )
        # Playwright's own time-outs come after our deadline, so that a page which is too slow always ends in one way.
        self.context.set_default_timeout(2000 * self.limits.seconds)
        jar = [
            {"name": name, "value": value, "domain": host, "path": "/"}
            for host, values in cookies.items()
            for name, value in values.items()
        ]
        if jar:
            await self.context.add_cookies(jar)  # type: ignore[arg-type]
        self.context.on("page", self._arrive)
        for url in urls or ["about:blank"]:
            tab = await self._new_tab()
            target = address(url)
            if target and target != "about:blank":
                try:
                    async with asyncio.timeout(self.limits.seconds):
                        await tab.window.goto(target, wait_until="load")
                except TimeoutError:  # what is there of it is read, or given up, by whoever looks first
                    self.event("timeout")
                except PlaywrightError:
                    self.event("blocked")
                tab.first = await self._place(tab)
        self.front = 0

    async def _new_tab(self) -> ChromiumTab:
        """A blank tab in front."""
        assert self.context is not None
        count = len(self.tabs)
        self.making = True
        try:
            await self.context.new_page()
        finally:
            self.making = False
        while len(self.tabs) == count:
            self.arrived.clear()
            await asyncio.wait_for(self.arrived.wait(), BLANK_SECONDS)
        self.front = len(self.tabs) - 1
        return self.tab

    def _arrive(self, window: Window) -> None:
        """A new page: made by us, opened by a page, or beside the tabs for a grader."""
        if self.beside:
            return
        task = asyncio.ensure_future(self._set_up(window, self.making))
        self.setting_up.add(task)
        task.add_done_callback(self._is_set_up)

    def _is_set_up(self, task: asyncio.Task[None]) -> None:
        self.setting_up.discard(task)
        self.arrived.set()  # whoever waits for it looks again

    async def _set_up(self, window: Window, own: bool) -> None:
        """Make a tab of a page. That a page opened it is known from nobody here having made it: Chromium may announce
        the page before the tab that opens it.
        """
        opener = next((tab for tab in self.tabs if tab.popups), None)
        if opener is not None:
            opener.popups -= 1
        try:
            if len(self.tabs) >= self.limits.tabs:
                self.event("blocked")
                await window.close()
                return
            tab = await self._tab_of(window)
        except PlaywrightError:
            return
        finally:
            self.arrived.set()
        self.tabs.append(tab)
        self.front = len(self.tabs) - 1
        if not own:
            self.event("new tab")
            try:
                await window.wait_for_load_state("load")
                tab.first = await self._place(tab)
            except PlaywrightError:
                pass
        self.arrived.set()

    async def _tab_of(self, window: Window) -> ChromiumTab:
        assert self.context is not None
        tab = ChromiumTab(window, await self.context.new_cdp_session(window))
        window.on("dialog", lambda dialog: asyncio.ensure_future(self._answer(tab, dialog)))
        window.on("download", lambda _: self.event("download"))
        window.on("crash", lambda _: asyncio.ensure_future(self._on_crash(tab)))
        window.on("close", lambda _: self._on_close(tab))
        protocol = tab.protocol

        def on(name: str, react: Callable[[dict[str, Any]], None]) -> None:
            protocol.on(name, react)

        frame = (await protocol.send("Page.getFrameTree"))["frameTree"]["frame"]["id"]

        def begin(event: dict[str, Any]) -> None:
            if event.get("frameId") == frame:
                tab.loading = True
                tab.changed.set()

        def end(event: dict[str, Any]) -> None:
            if event.get("frameId") == frame:
                tab.loading = tab.requested = False
                tab.changed.set()

        def ask(event: dict[str, Any]) -> None:
            if event.get("frameId") == frame and event.get("disposition", "currentTab") == "currentTab":
                tab.requested = True

        def moved(event: dict[str, Any]) -> None:
            if event["frame"]["id"] == frame:
                tab.world = None

        def popup(event: dict[str, Any]) -> None:
            tab.popups += 1

        on("Page.frameRequestedNavigation", ask)
        on("Page.frameScheduledNavigation", ask)
        on("Page.frameStartedLoading", begin)
        on("Page.frameStoppedLoading", end)
        on("Page.frameNavigated", moved)
        on("Page.windowOpen", popup)
        await protocol.send("Page.enable")
        await protocol.send("Accessibility.enable")
        await protocol.send(
            "Page.addScriptToEvaluateOnNewDocument", {"source": LISTEN, "worldName": WORLD, "runImmediately": True}
        )
        return tab

    async def _answer(self, tab: ChromiumTab, dialog: Dialog) -> None:
        """Every dialog is accepted and counted; a page that opens one after the other is stopped."""
        self.dialogs += 1
        self.event("dialog")
        try:
            if self.dialogs > MOST_DIALOGS:
                stopping = asyncio.ensure_future(tab.protocol.send("Runtime.terminateExecution"))
                stopping.add_done_callback(lambda task: task.exception())
            await dialog.accept()
        except PlaywrightError:
            pass

    async def _on_crash(self, tab: ChromiumTab) -> None:
        """A blank tab takes the place of one whose page died."""
        self.event("crash")
        with contextlib.suppress(BrowserDied):  # whoever asks this session next finds out
            await self._replace(tab)

    async def _replace(self, tab: ChromiumTab) -> None:
        """A blank tab in the place of one whose page is gone or does not answer."""
        if tab not in self.tabs:
            return
        place, front = self.tabs.index(tab), self.front
        try:
            async with asyncio.timeout(BLANK_SECONDS):
                fresh = await self._new_tab()
        except (PlaywrightError, TimeoutError):
            raise BrowserDied("Chromium opens no tab") from None
        self.tabs.remove(fresh)
        if tab in self.tabs:
            self.tabs.remove(tab)
        self.tabs.insert(place, fresh)
        self.front = front
        # Nobody waits for a page that hangs to go.
        closing = asyncio.ensure_future(tab.window.close())
        self.closing.add(closing)
        closing.add_done_callback(self._forget)

    def _forget(self, closing: asyncio.Task[None]) -> None:
        self.closing.discard(closing)
        if not closing.cancelled():
            closing.exception()  # a page that is gone already is as good as closed

    def _on_close(self, tab: ChromiumTab) -> None:
        """A tab is gone."""
        if tab in self.tabs:
            self.tabs.remove(tab)
            self.front = max(0, min(self.front, len(self.tabs) - 1))

    async def _place(self, tab: ChromiumTab) -> int:
        """Where in its history a tab is; 0 while a page that hangs keeps it."""
        try:
            history = await asyncio.wait_for(tab.protocol.send("Page.getNavigationHistory"), self.limits.seconds)
        except (PlaywrightError, TimeoutError):
            return 0
        return int(history["currentIndex"])

    # Asking a page

    async def _within_deadline(self, work: Coroutine[Any, Any, Result], otherwise: Result) -> Result:
        """Something that a page may never answer."""
        try:
            return await asyncio.wait_for(work, self.limits.seconds)
        except (PlaywrightError, TimeoutError):
            self._check()
            self.event("timeout")
            return otherwise

    def _check(self) -> None:
        if not self.browser.alive:
            raise BrowserDied("Chromium is gone")

    async def _world(self, tab: ChromiumTab) -> int:
        """Our isolated world in the page that the tab shows now."""
        if tab.world is None:
            frame = (await tab.protocol.send("Page.getFrameTree"))["frameTree"]["frame"]["id"]
            made = await tab.protocol.send("Page.createIsolatedWorld", {"frameId": frame, "worldName": WORLD})
            tab.world = made["executionContextId"]
        return tab.world

    async def _run(self, tab: ChromiumTab, script: str) -> Any:
        """The value of an expression in our world."""
        arguments = {
            "expression": script,
            "contextId": await self._world(tab),
            "returnByValue": True,
            "awaitPromise": True,
        }
        answer = await tab.protocol.send("Runtime.evaluate", arguments)
        return None if "exceptionDetails" in answer else answer["result"].get("value")

    async def _call(self, target: str, function: str, *arguments: Any, gesture: bool = False) -> Any:
        """A function of ours with an element as `this`."""
        call = {
            "objectId": target, "functionDeclaration": function, "returnByValue": True, "userGesture": gesture,
            "arguments": [{"value": argument} for argument in arguments],
        }  # fmt: skip
        answer = await self.tab.protocol.send("Runtime.callFunctionOn", call)
        return None if "exceptionDetails" in answer else answer["result"].get("value")

    async def _interrupt(self, tab: ChromiumTab) -> None:
        """Stop whatever script a page runs."""
        with contextlib.suppress(PlaywrightError, TimeoutError):
            await asyncio.wait_for(tab.protocol.send("Runtime.terminateExecution"), 1.0)
        tab.world = None
