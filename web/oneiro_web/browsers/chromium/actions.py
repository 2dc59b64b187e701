"""Actions in Chromium: carried out by its mouse and keyboard, over when what they began is over."""

from __future__ import annotations

import asyncio

from playwright.async_api import (
    Error as PlaywrightError,
)

from oneiro_web.actions import Action, Kind
from oneiro_web.browsers.base import Failed, address, refused
from oneiro_web.browsers.chromium.scripts import FIELD, FORGET, HOME, PICK, POINT, SET_DATE, SETTLE
from oneiro_web.browsers.chromium.tabs import BLANK_SECONDS, ChromiumTab, Tabs
from oneiro_web.browsers.text.fields import date_value
from oneiro_web.browsers.text.keys import split_keys

STARTED_SECONDS = 3.0
"""How long a navigation that was asked for may take to begin, on a busy machine too. One that never does, such as a
download, costs an action this long.
"""


class ActingTabs(Tabs):
    """Tabs in which an agent acts on the elements that it was shown."""

    async def _settle(self, tab: ChromiumTab) -> str | None:
        """Wait until what the action began is over; what a form said that was not sent."""
        if tab not in self.tabs:
            return None
        complaint = None
        if not tab.loading:
            try:
                complaint = await self._run(tab, SETTLE)
            except PlaywrightError:
                tab.world = None
        if tab.requested and not tab.loading:
            tab.changed.clear()
            try:
                await asyncio.wait_for(tab.changed.wait(), STARTED_SECONDS)
            except TimeoutError:
                tab.requested = False
        while tab.loading and tab in self.tabs:
            tab.changed.clear()
            if tab.loading:
                await tab.changed.wait()
        while tab.popups or self.setting_up:
            self.arrived.clear()
            try:
                await asyncio.wait_for(self.arrived.wait(), BLANK_SECONDS)
            except TimeoutError:
                tab.popups = 0  # Chromium did not let it open
        return f"The form was not sent: {complaint}" if complaint else None

    async def _target(self, action: Action) -> str:
        """The element that an action names, as a remote object."""
        tab = self.tab
        missing = Failed(f"There is no element [{action.element}] on this page.")
        try:
            if isinstance(self.shown, list):
                if action.element is None or not 0 <= action.element < len(self.shown):
                    raise missing
                arguments = {
                    "expression": f"globalThis.oneiroElements?.[{self.shown[action.element]}]",
                    "contextId": await self._world(tab),
                }
                remote = (await tab.protocol.send("Runtime.evaluate", arguments))["result"]
            else:
                node = (self.shown or {}).get(action.element or 0)
                if node is None or node.handle is None:
                    raise missing
                arguments = {"backendNodeId": node.handle, "executionContextId": await self._world(tab)}
                remote = (await tab.protocol.send("DOM.resolveNode", arguments))["object"]
        except PlaywrightError:
            raise missing from None
        if "objectId" not in remote:
            raise missing
        return str(remote["objectId"])

    async def _carry_out(self, action: Action) -> None:
        match action.kind:
            case Kind.CLICK | Kind.RIGHT_CLICK | Kind.HOVER:
                await self._point(await self._target(action), action.kind)
            case Kind.TYPE:
                await self._type(action)
            case Kind.SELECT:
                match await self._call(await self._target(action), PICK, action.text):
                    case "no option":
                        raise Failed(f"No option contains '{action.text}'.")
                    case "":
                        return
                raise Failed("That element is not a list of options to choose from.")
            case Kind.PRESS:
                keys = split_keys(action.text)
                if keys is None:
                    raise Failed(f"There is no key named '{action.text}'.")
                await self.tab.window.keyboard.press("+".join([*sorted(keys[0]), keys[1]]))
            case Kind.SCROLL:
                await self._run(self.tab, f"scrollBy(0, {action.pages!r} * innerHeight)")
            case Kind.GOTO:
                await self._goto(action.text)
            case Kind.BACK:
                await self._travel(-1, "There is no page to go back to.")
            case Kind.FORWARD:
                await self._travel(1, "There is no page to go forward to.")
            case Kind.NEW_TAB | Kind.FOCUS_TAB | Kind.CLOSE_TAB:
                await self._change_tab(action)

    async def _change_tab(self, action: Action) -> None:
        if action.kind is Kind.NEW_TAB:
            if len(self.tabs) >= self.limits.tabs:
                raise Failed(f"No more than {self.limits.tabs} tabs can be open.")
            await self._new_tab()
        elif action.kind is Kind.FOCUS_TAB:
            if not 0 <= action.tab < len(self.tabs):
                raise Failed(f"There is no tab {action.tab}; the tabs are 0 to {len(self.tabs) - 1}.")
            self.front = action.tab
            await self.tab.window.bring_to_front()
        else:
            closing = self.tab
            await closing.window.close()
            self._on_close(closing)
            if not self.tabs:
                await self._new_tab()
            self.front = len(self.tabs) - 1

    async def _point(self, target: str, kind: Kind) -> None:
        """The mouse over an element; a real click where it can be hit, else the element's own."""
        where = await self._call(target, POINT)
        if where is None:
            return
        if where["tag"] == "option":
            if kind is Kind.CLICK:
                await self._call(target, PICK, None)
            return
        if where["tag"] == "select":
            await self._call(target, "function() {" + HOME + "if (!element.disabled) element.focus(); }")
            return
        if not where["hit"]:
            if kind is Kind.CLICK:
                click = "function() {" + HOME + "element.click(); }"
                await self._call(target, click, gesture=True)
            return
        mouse = self.tab.window.mouse
        if kind is Kind.HOVER:
            await mouse.move(where["x"], where["y"])
        else:
            await mouse.click(where["x"], where["y"], button="right" if kind is Kind.RIGHT_CLICK else "left")

    async def _type(self, action: Action) -> None:
        """Into a field, at the end of what is there or in its place."""
        if action.element is None:
            arguments = {"expression": "document.activeElement", "contextId": await self._world(self.tab)}
            target = (await self.tab.protocol.send("Runtime.evaluate", arguments))["result"]["objectId"]
        else:
            target = await self._target(action)
        kind = await self._call(target, FIELD, action.clear)
        if not kind:
            if action.element is None:
                raise Failed("There is no field to type into: click one first.")
            raise Failed(f"Element [{action.element}] is not a field that can be typed into.")
        text = action.text.replace("\r", "")
        if kind == "date":
            await self._call(target, SET_DATE, date_value(text))
        else:
            if action.clear and not text:
                await self.tab.window.keyboard.press("Backspace")
            await self.tab.window.keyboard.insert_text(text if kind == "textarea" else text.replace("\n", ""))
        if action.enter:
            await self.tab.window.keyboard.press("Enter")

    async def _goto(self, url: str) -> None:
        target = address(url)
        if target is None:
            self.event("blocked")
            raise refused(url)
        try:
            await self.tab.window.goto(target, wait_until="load")
        except PlaywrightError as error:
            text = str(error)
            if "ERR_TOO_MANY_REDIRECTS" in text:
                raise Failed("The page sends on from address to address without end.") from None
            if "Download" not in text and "ERR_ABORTED" not in text:
                raise

    async def _travel(self, steps: int, failure: str) -> None:
        tab = self.tab
        history = await tab.protocol.send("Page.getNavigationHistory")
        place = history["currentIndex"] + steps
        if not tab.first <= place < len(history["entries"]):
            raise Failed(failure)
        if steps < 0:
            await tab.window.go_back(wait_until="load")
        else:
            await tab.window.go_forward(wait_until="load")
        if tab.world is None:
            await self._run(tab, FORGET)
