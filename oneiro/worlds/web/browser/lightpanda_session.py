"""One episode in Lightpanda: the page as our own walker reads it, actions as scripts of ours."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from oneiro.worlds.web.actions import Action, Kind
from oneiro.worlds.web.browser import forms
from oneiro.worlds.web.browser.accessibility import tree
from oneiro.worlds.web.browser.base import BrowserDied, Failed, Outcome, Visited, address
from oneiro.worlds.web.browser.chromium_scripts import FIELD, PICK, SET_DATE
from oneiro.worlds.web.browser.devtools import ProtocolError
from oneiro.worlds.web.browser.document import INDEX, Document
from oneiro.worlds.web.browser.fields import date_value
from oneiro.worlds.web.browser.keys import split_keys
from oneiro.worlds.web.browser.lightpanda_scripts import CLICK, ELEMENTS, ENTERED, HOVER, INSERT, LIVE
from oneiro.worlds.web.browser.lightpanda_tabs import Tab, Tabs
from oneiro.worlds.web.browser.loading import Loader, styles
from oneiro.worlds.web.browser.simplified import simplify
from oneiro.worlds.web.browser.state import State
from oneiro.worlds.web.browser.styles import Styles
from oneiro.worlds.web.page import Node, Page, number
from oneiro.worlds.web.sites import Web

if TYPE_CHECKING:
    from oneiro.worlds.web.browser.lightpanda import LightpandaBrowser

Result = TypeVar("Result")


class LightpandaSession(Tabs):
    """The methods with an underscore run in the browser's thread."""

    def __init__(self, browser: LightpandaBrowser, web: Web) -> None:
        super().__init__(browser, web)
        self.loader = Loader(web, self.limits, {}, self.event)
        self.shown: dict[int, Node] | list[int] | None = None
        """What the last observation numbered: nodes of the tree, or places in `ELEMENTS`."""

    # What anybody may call

    @property
    def url(self) -> str:
        return self.tab.url

    def html(self) -> str:
        shown = f"document.documentElement.outerHTML.slice(0, {self.limits.page_bytes})"
        return self.browser.turn(self._bounded(self.tab.run(shown))) or ""

    def number_of(self, node: Node) -> int | None:
        given = self.shown if isinstance(self.shown, list) else []
        return given.index(node.handle) if node.handle in given else None

    def screenshot(self, small: bool = False) -> bytes | None:
        return None

    def close(self) -> None:
        async def end() -> None:
            self.browser.server.forget(self.secret)
            await asyncio.gather(*[tab.connection.close() for tab in self.tabs])

        with contextlib.suppress(BrowserDied):
            self.browser.turn(end())

    # Reading

    async def _bounded(self, work: Coroutine[Any, Any, Result]) -> Result | None:
        """Something that a page may never answer."""
        tab = self.tab
        try:
            return await asyncio.wait_for(work, self.limits.seconds)
        except (ProtocolError, TimeoutError):
            self.event("timeout")
            await self._replace(tab)
            return None

    async def _live(self, tab: Tab) -> tuple[Document, State, bool]:
        """The document as it is now."""
        script = LIVE.replace("NODES", str(self.limits.nodes)).replace("BYTES", str(self.limits.page_bytes))
        told = await self._bounded(tab.run(script)) or {"html": "", "cut": True, "focus": -1}
        tab.url = told.get("url", tab.url)
        document = Document(told["html"], self.limits.nodes)
        focus = str(told["focus"])
        state = State(focus=next((one for one in document.elements if one.attributes.get(INDEX) == focus), None))
        if state.focus is not None and state.focus.tag == "body":
            state.focus = None
        return document, state, bool(told["cut"]) or document.cut

    def _styles(self, document: Document, url: str) -> Styles:
        """What hides elements: the page's own style sheets and those it links to."""
        return styles((*document.styles, *self.loader.sheets_of(document, url)))

    async def _observe(self) -> Page:
        document, state, cut = await self._live(self.tab)
        url = self.tab.url
        root = tree(document, state, self._styles(document, url))
        nodes, too_many = number(root, self.limits.nodes)
        for node in nodes.values():
            element = node.handle
            node.handle = int(element.attributes.get(INDEX, -1)) if element is not None else None
        self.shown = nodes
        titles = tuple([await self._title(tab) if tab is not self.tab else document.title for tab in self.tabs])
        return Page(url, titles[self.front], root, nodes, titles, self.front, cut or too_many)

    async def _title(self, tab: Tab) -> str:
        try:
            return " ".join(str(await asyncio.wait_for(tab.run("document.title"), 1.0) or "").split())
        except (ProtocolError, TimeoutError):
            return ""

    async def _simplified(self) -> str:
        document, state, _ = await self._live(self.tab)
        text, numbered = simplify(document, state, self._styles(document, self.tab.url))
        self.shown = [int(element.attributes.get(INDEX, "-1")) for element in numbered]
        return text

    async def _value(self, tab: Tab, expression: str) -> Any:
        try:
            return await tab.run(expression)
        except (ProtocolError, TimeoutError):
            return None

    async def _visit(self, url: str, locator: str | None) -> tuple[Visited, str]:
        kept, counts = list(self.events), dict(self.browser.counts)
        tab = await self._connected()
        html = found = ""
        try:
            async with asyncio.timeout(self.limits.seconds):
                await self._goto(tab, address(url) or "about:blank")
            html = str(await tab.run("document.documentElement.outerHTML") or "")
            if locator is not None:
                found = await self._evaluated(tab, locator)
        except (Failed, ProtocolError, TimeoutError):
            pass
        await tab.connection.close()
        self.events, self.browser.counts = kept, counts
        return Visited(tab.url, tab.status, html), found

    # Acting

    async def _act(self, action: Action) -> Outcome:
        self.events = []
        failure: str | None = None
        if self.shown is None:
            await self._observe()
        tab = self.tab
        try:
            async with asyncio.timeout(self.limits.seconds):
                await self._carry_out(tab, action)
                await self._settle(tab)
                if "download" in self.events:  # the tab shows the empty answer in place of the file
                    await self._travel(tab, -1, "")
                    await self._settle(tab)
        except Failed as error:
            failure = str(error)
        except TimeoutError:
            self.event("timeout")
            await self._replace(tab)
            failure = f"The page did not answer within {self.limits.seconds:g} seconds."
        except ProtocolError as error:
            self.event("crash")
            await self._replace(tab)
            failure = f"The browser could not do that: {error}"
        if tab.url.split(":")[0] not in ("http", "about") and tab in self.tabs:
            self.event("blocked")
            await self._replace(tab)
        return Outcome(failure, tuple(self.events))

    def _target(self, action: Action) -> int:
        """The place of the element that an action names."""
        if isinstance(self.shown, list):
            if action.element is not None and 0 <= action.element < len(self.shown):
                return self.shown[action.element]
        elif (node := (self.shown or {}).get(action.element or 0)) is not None and node.handle is not None:
            return int(node.handle)
        raise Failed(f"There is no element [{action.element}] on this page.")

    async def _carry_out(self, tab: Tab, action: Action) -> None:
        match action.kind:
            case Kind.CLICK:
                await self._click(tab, self._target(action))
            case Kind.RIGHT_CLICK:
                event = "function() { this.dispatchEvent(new MouseEvent('contextmenu', {bubbles: true})); }"
                await tab.call(self._target(action), event)
            case Kind.HOVER:
                await tab.call(self._target(action), HOVER)
            case Kind.TYPE:
                await self._type(tab, action)
            case Kind.SELECT:
                match await tab.call(self._target(action), PICK, action.text):
                    case "no option":
                        raise Failed(f"No option contains '{action.text}'.")
                    case "":
                        return
                raise Failed("That element is not a list of options to choose from.")
            case Kind.PRESS:
                keys = split_keys(action.text)
                if keys is None:
                    raise Failed(f"There is no key named '{action.text}'.")
                await (self._enter(tab) if keys == (set(), "Enter") else self._press(tab, *keys))
            case Kind.SCROLL:
                await tab.run(f"scrollBy(0, {action.pages!r} * innerHeight)")
            case Kind.GOTO:
                target = address(action.text)
                if target is None:
                    self.event("blocked")
                    raise Failed(
                        f"Addresses that begin with '{action.text.strip().split(':')[0].lower()}:' are blocked."
                    )
                await self._goto(tab, target)
            case Kind.BACK:
                await self._travel(tab, -1, "There is no page to go back to.")
            case Kind.FORWARD:
                await self._travel(tab, 1, "There is no page to go forward to.")
            case Kind.NEW_TAB | Kind.FOCUS_TAB | Kind.CLOSE_TAB:
                await self._change_tab(action)

    async def _click(self, tab: Tab, element: int) -> None:
        told = await tab.call(element, CLICK) or ""
        kind, _, detail = str(told).partition(" ")
        if kind == "option":
            await tab.call(element, PICK, None)
        elif kind == "popup":
            if len(self.tabs) >= self.limits.tabs:
                self.event("blocked")
                return
            fresh = await self._connected()
            self.tabs.append(fresh)
            self.front = len(self.tabs) - 1
            self.event("new tab")
            await self._arrive(fresh, address(detail) or "about:blank")
        elif kind == "invalid":
            raise await self._refused(tab, detail)

    async def _type(self, tab: Tab, action: Action) -> None:
        """Into a field, at the end of what is there or in its place."""
        element = (
            self._target(action)
            if action.element is not None
            else int(await tab.run(f"{ELEMENTS}.indexOf(document.activeElement)"))
        )
        kind = await tab.call(element, FIELD, action.clear) if element >= 0 else ""
        if not kind:
            if action.element is None:
                raise Failed("There is no field to type into: click one first.")
            raise Failed(f"Element [{action.element}] is not a field that can be typed into.")
        text = action.text.replace("\r", "")
        if kind == "date":
            await tab.call(element, SET_DATE, date_value(text))
        else:
            await tab.call(element, INSERT, action.clear, text if kind == "textarea" else text.replace("\n", ""))
        if action.enter:
            await self._enter(tab)

    async def _press(self, tab: Tab, modifiers: set[str], key: str) -> None:
        flags = sum({"Alt": 1, "Control": 2, "Meta": 4, "Shift": 8}[name] for name in modifiers)
        text = {"Enter": "\r", "Tab": ""}.get(key, key if len(key) == 1 and not flags & 7 else "")
        for kind in ("keyDown", "keyUp"):
            await tab.send(
                "Input.dispatchKeyEvent", type=kind, key=key, modifiers=flags, **({"text": text} if text else {})
            )

    async def _enter(self, tab: Tab) -> None:
        """The key that sends a form; it may be refused."""
        flaw = await tab.run(ENTERED)
        await self._press(tab, set(), "Enter")
        if flaw:
            raise await self._refused(tab, str(flaw))

    async def _refused(self, tab: Tab, said: str) -> Failed:
        """Why a form was not sent, in the words of the other browsers where they have any."""
        document, state, _ = await self._live(tab)
        form = forms.owner(state.focus, document) if state.focus is not None else None
        found = forms.refusal(form, document, state) if form is not None else None
        return Failed(f"The form was not sent: {found[1] if found else said}")

    async def _travel(self, tab: Tab, steps: int, failure: str) -> None:
        history = await tab.send("Page.getNavigationHistory")
        place = history["currentIndex"] + steps
        entries = history["entries"]
        if not 0 <= place < len(entries) or entries[place]["url"] == "about:blank":
            raise Failed(failure)
        tab.requested = True
        await tab.run(f"history.go({steps})")
