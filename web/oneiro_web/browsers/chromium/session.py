"""One episode in Chromium: pages read as trees, actions, pages beside for graders."""

from __future__ import annotations

import asyncio
import base64
import contextlib
from typing import Any

from playwright.async_api import (
    Error as PlaywrightError,
)

from oneiro_web.actions import Action
from oneiro_web.browsers.base import BrowserDied, Failed, Outcome, Visited, address
from oneiro_web.browsers.chromium.actions import ActingTabs
from oneiro_web.browsers.chromium.scripts import MARKED
from oneiro_web.browsers.chromium.tabs import ChromiumTab
from oneiro_web.browsers.chromium.tree import convert
from oneiro_web.browsers.text.accessibility import tree
from oneiro_web.browsers.text.document import INDEX, Document
from oneiro_web.browsers.text.simplified import simplify
from oneiro_web.browsers.text.state import State
from oneiro_web.browsers.text.styles import Styles
from oneiro_web.page import Node, Page, PageFailure, number

SMALL = 0.4
"""The scale of small screenshots."""


class ChromiumSession(ActingTabs):
    """One context of Chromium. The methods with an underscore run in the browser's thread."""

    @property
    def url(self) -> str:
        return self.tab.window.url

    def html(self) -> str:
        return self.browser.turn(self._within_deadline(self.tab.window.content(), ""))

    def number_of(self, node: Node) -> int | None:
        return self.browser.turn(self._number_of(node))

    def screenshot(self, small: bool = False) -> bytes | None:
        return self.browser.turn(self._within_deadline(self._small() if small else self.tab.window.screenshot(), None))

    def close(self) -> None:
        async def end() -> None:
            self.browser.server.forget(self.secret)
            if self.context is not None:
                await asyncio.wait_for(self.context.close(), self.limits.seconds)

        with contextlib.suppress(BrowserDied, TimeoutError):
            self.browser.turn(end())

    # In the browser's thread

    async def _observe(self) -> Page:
        self._check()
        tab = self.tab
        try:
            async with asyncio.timeout(self.limits.seconds):
                try:
                    async with asyncio.timeout(self.limits.seconds / 2):
                        return await self._read(tab)
                except (PlaywrightError, TimeoutError):
                    # A script may keep the page busy, or the page was just leaving: once more, without the script.
                    self._check()
                    self.event("timeout")
                    await self._interrupt(tab)
                return await self._read(self.tab)
        except (PlaywrightError, TimeoutError):
            self._check()
            return await self._give_up(self.tab)

    async def _give_up(self, tab: ChromiumTab) -> Page:
        """An empty page in the place of one that does not settle. It is made here: nothing is asked of Chromium that
        a busy machine could keep waiting for.
        """
        failure = PageFailure(tab.window.url, self.limits.seconds)
        await self._replace(tab)
        root = Node("RootWebArea", "", {"focused": True})
        nodes, _ = number(root, self.limits.nodes)
        self.shown = nodes
        return Page("about:blank", "", root, nodes, ("",) * len(self.tabs), self.front, failure=failure)

    async def _act(self, action: Action) -> Outcome:
        self._check()
        self.events = []
        self.dialogs = 0
        failure: str | None = None
        if self.shown is None:
            await self._observe()
        tab = self.tab
        try:
            async with asyncio.timeout(self.limits.seconds):
                await self._carry_out(action)
                failure = await self._settle(tab)
        except Failed as error:
            failure = str(error)
        except TimeoutError:
            self.event("timeout")
            await self._interrupt(tab)
            failure = f"The page did not answer within {self.limits.seconds:g} seconds."
        except PlaywrightError as error:
            self._check()
            failure = f"The browser could not do that: {str(error).splitlines()[0]}"
        if not self.tabs:
            await self._new_tab()
        return Outcome(failure, tuple(self.events))

    async def _read(self, tab: ChromiumTab) -> Page:
        size = await self._run(tab, "document.getElementsByTagName('*').length")
        if (size or 0) > self.limits.nodes:
            limit = self.limits.page_bytes
            html = await self._run(tab, f"document.documentElement.outerHTML.slice(0, {limit})") or ""
            document = Document(html, self.limits.nodes)
            root = tree(document, State(), Styles(document.styles))
            for node in _all(root):
                node.handle = None
        else:
            root = convert((await tab.protocol.send("Accessibility.getFullAXTree"))["nodes"])
        nodes, cut = number(root, self.limits.nodes)
        self.shown = nodes
        titles = tuple([await self._title(one) if one is not tab else root.name for one in self.tabs])
        return Page(tab.window.url, root.name, root, nodes, titles, self.front, cut or (size or 0) > self.limits.nodes)

    async def _small(self) -> bytes:
        protocol = self.tab.protocol
        seen = (await protocol.send("Page.getLayoutMetrics"))["cssVisualViewport"]
        part = {"x": seen["pageX"], "y": seen["pageY"], "width": seen["clientWidth"], "height": seen["clientHeight"]}
        arguments = {"format": "jpeg", "quality": 50, "clip": {**part, "scale": SMALL}}
        return base64.b64decode((await protocol.send("Page.captureScreenshot", arguments))["data"])

    async def _title(self, tab: ChromiumTab) -> str:
        try:
            return " ".join((await asyncio.wait_for(tab.window.title(), 1.0)).split())
        except (PlaywrightError, TimeoutError):
            return ""

    async def _simplified(self) -> str:
        tab = self.tab
        limit = str(self.limits.page_bytes)
        html = await self._within_deadline(self._run(tab, MARKED.replace("LIMIT", limit)), None) or ""
        document = Document(html, self.limits.nodes)
        text, numbered = simplify(document, State(), Styles(()))
        self.shown = [int(element.attributes.get(INDEX, "-1")) for element in numbered]
        return text

    async def _number_of(self, node: Node) -> int | None:
        arguments = {"backendNodeId": node.handle, "executionContextId": await self._world(self.tab)}
        try:
            remote = (await self.tab.protocol.send("DOM.resolveNode", arguments))["object"]
            place = await self._call(str(remote["objectId"]), "function () { return oneiroElements.indexOf(this) }")
        except (PlaywrightError, KeyError):
            return None
        given = self.shown if isinstance(self.shown, list) else []
        return given.index(place) if place in given else None

    async def _value(self, tab: ChromiumTab, expression: str) -> Any:
        return await self._within_deadline(self._run(tab, expression), None)

    async def _visit(self, url: str, locator: str | None) -> tuple[Visited, str]:
        assert self.context is not None
        target = address(url)
        kept, counts = list(self.events), dict(self.browser.counts)
        self.beside = True
        try:
            window = await self.context.new_page()
        finally:
            self.beside = False
        status, html, located = 0, "", ""
        try:
            async with asyncio.timeout(self.limits.seconds):
                answer = await window.goto(target or "about:blank", wait_until="load")
            status = answer.status if answer is not None else 0
            html = await self._within_deadline(window.content(), "")
            if locator is not None:
                tab = ChromiumTab(window, await self.context.new_cdp_session(window))
                located = await self._evaluate(tab, locator)
        except (PlaywrightError, TimeoutError):
            pass
        reached = window.url
        await self._within_deadline(window.close(), None)
        self.events, self.browser.counts = kept, counts
        return Visited(reached, status, html), located


def _all(root: Node) -> list[Node]:
    nodes = [root]
    for node in nodes:
        nodes.extend(node.children)
    return nodes
