"""Lightpanda's tabs: each a connection of its own, with the cookies of its session."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from oneiro.worlds.web.actions import Action, Kind
from oneiro.worlds.web.browser.base import BrowserDied, Failed, address
from oneiro.worlds.web.browser.devtools import Connection, ProtocolError
from oneiro.worlds.web.browser.lightpanda_scripts import ACCEPT, ELEMENTS
from oneiro.worlds.web.browser.server import HEADER
from oneiro.worlds.web.browser.waiting import WaitingSession
from oneiro.worlds.web.sites import Web

if TYPE_CHECKING:
    from oneiro.worlds.web.browser.lightpanda import LightpandaBrowser

STARTED_SECONDS = 0.5
"""How long a navigation that was asked for may take to begin."""


@dataclass(eq=False)
class Tab:
    """One connection with its page."""

    connection: Connection
    session: str
    frame: str
    url: str = "about:blank"
    status: int = 0
    requested: bool = False
    loading: bool = False
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    async def send(self, method: str, **parameters: Any) -> dict[str, Any]:
        """One command to the page."""
        return await self.connection.send(method, self.session, **parameters)

    async def run(self, expression: str) -> Any:
        """The value of an expression in the page. Handlers in the markup run in the world of whoever clicks, so ours
        is the page's own; no grader of our tasks reads a page.
        """
        answer = await self.send("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        return None if "exceptionDetails" in answer else answer["result"].get("value")

    async def call(self, element: int, function: str, *arguments: Any) -> Any:
        """A function of ours with an element of the last reading as `this`."""
        given = ", ".join(json.dumps(argument) for argument in arguments)
        return await self.run(f"({function}).call({ELEMENTS}[{element}]{', ' * bool(given)}{given})")


class Tabs(WaitingSession):
    """The tabs of one episode. The methods with an underscore run in the browser's thread."""

    browser: LightpandaBrowser

    def __init__(self, browser: LightpandaBrowser, web: Web) -> None:
        self.browser, self.web, self.limits = browser, web, browser.limits
        self.events: list[str] = []
        self.tabs: list[Tab] = []
        self.front = 0
        self.secret = ""
        self.jar: list[dict[str, Any]] = []
        """The cookies after the last action: new tabs get them."""

    @property
    def tab(self) -> Tab:
        """The tab in front."""
        return self.tabs[self.front]

    async def _open(self, urls: Sequence[str], cookies: Mapping[str, Mapping[str, str]]) -> None:
        self.secret = self.browser.server.admit(self.web, self.event)
        self.jar = [
            {"name": name, "value": value, "domain": host, "path": "/"}
            for host, values in cookies.items()
            for name, value in values.items()
        ]
        for url in urls or ["about:blank"]:
            self.tabs.append(await self._connected())
            self.front = len(self.tabs) - 1
            target = address(url)
            if target and target != "about:blank":
                await self._arrive(self.tab, target)
        self.front = 0

    async def _arrive(self, tab: Tab, url: str) -> None:
        """Open a page in a fresh tab; one that hangs leaves an empty tab."""
        try:
            async with asyncio.timeout(self.limits.seconds):
                await self._goto(tab, url)
        except Failed:
            self.event("blocked")
        except (ProtocolError, TimeoutError):
            self.event("timeout")
            await self._replace(tab)

    async def _connected(self) -> Tab:
        """A blank tab with the cookies of the session."""
        holder: list[Tab] = []

        def react(event: str, told: dict[str, Any]) -> None:
            if holder:
                self._react(holder[0], event, told)

        seconds, longest = self.limits.seconds, 4 * self.limits.page_bytes
        connection = await Connection.open(self.browser.url, react, seconds, longest)
        context = (await connection.send("Target.createBrowserContext"))["browserContextId"]
        target = await connection.send("Target.createTarget", url="about:blank", browserContextId=context)
        attached = await connection.send("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        tab = Tab(connection, attached["sessionId"], target["targetId"])
        holder.append(tab)
        for name in ("Page", "Runtime", "Network"):
            await tab.send(f"{name}.enable")
        await tab.send("Page.addScriptToEvaluateOnNewDocument", source=ACCEPT)
        await tab.send("Network.setExtraHTTPHeaders", headers={HEADER: self.secret})
        if self.jar:
            await tab.send("Network.setCookies", cookies=self.jar)
        return tab

    def _react(self, tab: Tab, event: str, told: dict[str, Any]) -> None:
        """Keep up with what a page does by itself."""
        frame = told.get("frameId") or told.get("frame", {}).get("id")
        if event == "Page.javascriptDialogOpening":
            self.event("dialog")
        elif frame != tab.frame:
            return
        elif event in ("Page.frameRequestedNavigation", "Page.frameScheduledNavigation"):
            tab.requested = True
        elif event == "Page.frameStartedLoading":
            tab.loading = True
        elif event == "Page.frameStoppedLoading":
            tab.loading = tab.requested = False
        elif event == "Page.frameNavigated":
            tab.url = told["frame"]["url"]
        elif event == "Network.responseReceived" and told.get("type") == "Document":
            tab.status = int(told["response"]["status"])
        tab.changed.set()

    async def _replace(self, tab: Tab) -> None:
        """A blank tab takes the place of one whose page hangs or died."""
        if not self.browser.alive:
            raise BrowserDied("Lightpanda is gone")
        if tab in self.tabs:
            await tab.connection.close()
            self.tabs[self.tabs.index(tab)] = await self._connected()

    async def _goto(self, tab: Tab, url: str) -> None:
        answer = await tab.send("Page.navigate", url=url)
        if answer.get("errorText"):
            if "Redirect" in str(answer["errorText"]):
                raise Failed("The page sends on from address to address without end.")
            raise Failed(f"The page cannot be opened: {answer['errorText']}")
        while tab.loading:
            tab.changed.clear()
            if tab.loading:
                await tab.changed.wait()

    async def _settle(self, tab: Tab) -> None:
        """Wait until what the action began is over."""
        if tab not in self.tabs:
            return
        if not tab.loading:
            with contextlib.suppress(ProtocolError):  # the page may be gone by then
                await tab.run("new Promise(done => setTimeout(done, 0))")
        if tab.requested and not tab.loading:
            tab.changed.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(tab.changed.wait(), STARTED_SECONDS)
            tab.requested = False
        while tab.loading:
            tab.changed.clear()
            if tab.loading:
                await tab.changed.wait()
        if tab in self.tabs:
            self.jar = (await tab.send("Network.getAllCookies")).get("cookies", [])

    async def _change_tab(self, action: Action) -> None:
        if action.kind is Kind.NEW_TAB:
            if len(self.tabs) >= self.limits.tabs:
                raise Failed(f"No more than {self.limits.tabs} tabs can be open.")
            self.tabs.append(await self._connected())
            self.front = len(self.tabs) - 1
        elif action.kind is Kind.FOCUS_TAB:
            if not 0 <= action.tab < len(self.tabs):
                raise Failed(f"There is no tab {action.tab}; the tabs are 0 to {len(self.tabs) - 1}.")
            self.front = action.tab
            if self.jar:
                await self.tab.send("Network.setCookies", cookies=self.jar)
        else:
            closing = self.tabs.pop(self.front)
            if not self.tabs:
                self.tabs.append(await self._connected())
            await closing.connection.close()
            self.front = len(self.tabs) - 1
