"""Chromium behind the browser interface: one long-lived process, a context for each session, no way out but our proxy.

    with ChromiumBrowser() as browser:
        session = browser.open(Web(), ["http://onestopmarket.com/"])

Playwright runs in a thread with an event loop of its own; the methods here hand work to it, so that many sessions can
be stepped at once (`act_many`, `observe_many`).
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import os
import shutil
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from playwright.async_api import (
    Browser as Process,
)
from playwright.async_api import (
    BrowserContext,
    CDPSession,
    Dialog,
    Playwright,
    async_playwright,
)
from playwright.async_api import (
    Error as PlaywrightError,
)
from playwright.async_api import (
    Page as Window,
)

from oneiro.errors import OneiroError
from oneiro.worlds.web.actions import Action, Kind
from oneiro.worlds.web.browser.accessibility import State, tree
from oneiro.worlds.web.browser.base import Browser, BrowserDied, Limits, Outcome, Session, Visited, address
from oneiro.worlds.web.browser.document import INDEX, Document
from oneiro.worlds.web.browser.keys import split_keys
from oneiro.worlds.web.browser.server import HEADER, Server
from oneiro.worlds.web.browser.simplified import simplify
from oneiro.worlds.web.browser.styles import Styles
from oneiro.worlds.web.browser.text import date_value
from oneiro.worlds.web.page import IGNORED_PROPERTIES, Node, Page, is_printed, number
from oneiro.worlds.web.sites import Web

Result = TypeVar("Result")
WORLD = "oneiro"
"""The isolated JavaScript world of ours in every page: pages cannot see or change it."""
VIEWPORT = {"width": 1280, "height": 720}
MOST_DIALOGS = 20
"""Dialogs answered during one action before the page's script is stopped."""
START_SECONDS = 60.0
STARTED_SECONDS = 0.5
"""How long a navigation that was asked for may take to begin."""
SWITCHES = (
    "--proxy-bypass-list=<-loopback>",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
    "--force-webrtc-ip-handling-policy=disable_non_proxied_udp",
    "--webrtc-ip-handling-policy=disable_non_proxied_udp",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-domain-reliability",
    "--disable-quic",
    "--disable-sync",
    "--dns-prefetch-disable",
    "--no-pings",
    "--disable-gpu",
    "--mute-audio",
)
LISTEN = """addEventListener("invalid", event => {
  if (!globalThis.oneiroComplaint) globalThis.oneiroComplaint = event.target.validationMessage;
}, true)"""
HOME = """
  let element = this.nodeType === 1 ? this : this.parentElement;
  const around = element && element.getRootNode();
  if (around instanceof ShadowRoot && around.host.tagName === "INPUT") element = around.host;
"""
"""The element that is meant: that of a text, and the input whose inner part was named."""
POINT = (
    "function() {"
    + HOME
    + """
  if (!element) return null;
  const tag = element.tagName.toLowerCase();
  if (tag === "option" || tag === "select") return {tag};
  if (element.type === "date") return {tag: "select"};
  element.scrollIntoViewIfNeeded();
  let box = element.getBoundingClientRect();
  if (this.nodeType === 3 && element.contains(this)) {
    const range = document.createRange();
    range.selectNodeContents(this);
    box = range.getBoundingClientRect();
  }
  const x = box.x + box.width / 2, y = box.y + box.height / 2;
  const hit = document.elementFromPoint(x, y);
  return {tag, x, y, hit: !!hit && (element.contains(hit) || hit.contains(element))};
}"""
)
PICK = """function(wanted) {
  let select = this.closest("select"), option = this.closest("option");
  if (!select && this.tagName === "LABEL" && this.control && this.control.tagName === "SELECT") select = this.control;
  if (!select || select.disabled) return "not a select";
  if (wanted !== null) {
    const names = [...select.options].filter(o => !o.disabled);
    const clean = text => text.replace(/\\s+/g, " ").trim().toLowerCase();
    wanted = clean(wanted);
    option = names.find(o => clean(o.label) === wanted) || names.find(o => clean(o.label).includes(wanted));
    if (!option) return "no option";
    select.focus();
  }
  if (option.disabled) return "";
  option.selected = select.multiple ? !option.selected : true;
  select.dispatchEvent(new Event("input", {bubbles: true}));
  select.dispatchEvent(new Event("change", {bubbles: true}));
  return "";
}"""
FIELD = (
    "function(clear) {"
    + HOME
    + """
  let field = element;
  if (field && field.tagName === "LABEL" && field.control) field = field.control;
  const kinds = ["checkbox", "radio", "submit", "reset", "button", "image", "file", "hidden", "range", "color"];
  const text = field && (field.tagName === "TEXTAREA" || field.isContentEditable ||
    (field.tagName === "INPUT" && !kinds.includes(field.type)));
  if (!text || field.readOnly || field.disabled || field.matches(":disabled")) return "";
  field.scrollIntoViewIfNeeded();
  field.focus();
  if (field.type === "date") return "date";
  if (clear) field.select ? field.select() : document.execCommand("selectAll");
  else if (field.setSelectionRange) {
    const end = field.value.length;
    try { field.setSelectionRange(end, end); } catch { field.select(); getSelection().collapseToEnd(); }
  }
  return field.type || "text";
}"""
)
SET_DATE = (
    "function(value) {"
    + HOME
    + """
  const field = element;
  field.value = value;
  field.dispatchEvent(new Event("input", {bubbles: true}));
  field.dispatchEvent(new Event("change", {bubbles: true}));
}"""
)
SETTLE = """new Promise(done => setTimeout(() => {
  const complaint = globalThis.oneiroComplaint || "";
  globalThis.oneiroComplaint = "";
  done(complaint);
}, 0))"""
FORGET = """for (const control of document.querySelectorAll("input, textarea, select")) {
  if (control.tagName === "SELECT") {
    const options = [...control.options];
    options.forEach(option => option.selected = option.defaultSelected);
    if (!control.multiple && control.selectedIndex < 0) control.selectedIndex = options.findIndex(o => !o.disabled);
  } else if (["checkbox", "radio"].includes(control.type)) control.checked = control.defaultChecked;
  else if (control.type !== "file" && control.value !== control.defaultValue) control.value = control.defaultValue;
}"""
"""On the way back, what was typed into a page is forgotten."""
MARKED = """(() => {
  const kept = [...document.documentElement.getElementsByTagName("*")];
  const copy = document.documentElement.cloneNode(true);
  const copies = copy.getElementsByTagName("*");
  kept.forEach((element, index) => {
    const mark = copies[index];
    mark.setAttribute("INDEX", index);
    if (element.checkVisibility && !element.checkVisibility() && !element.closest("head, select, details"))
      mark.setAttribute("hidden", "");
    if (element.tagName === "INPUT") {
      mark.setAttribute("value", element.value);
      element.checked ? mark.setAttribute("checked", "") : mark.removeAttribute("checked");
    }
    if (element.tagName === "TEXTAREA") mark.textContent = element.value;
    if (element.tagName === "OPTION")
      element.selected ? mark.setAttribute("selected", "") : mark.removeAttribute("selected");
    if (element.tagName === "DETAILS")
      element.open ? mark.setAttribute("open", "") : mark.removeAttribute("open");
  });
  globalThis.oneiroElements = kept;
  return copy.outerHTML.slice(0, LIMIT);
})()""".replace("INDEX", INDEX)


class Failed(Exception):
    """An action that cannot be carried out; its text is for the agent."""


@dataclass(eq=False)
class Tab:
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


class ChromiumBrowser(Browser):
    """One Chromium for all sessions."""

    name = "chromium"

    def __init__(self, limits: Limits | None = None, executable: str | None = None, headed: bool = False) -> None:
        super().__init__(limits)
        self.executable = executable or shutil.which("chromium")
        self.headed = headed
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, name="chromium", daemon=True)
        self.thread.start()
        self.server = Server(self.limits)
        self.playwright: Playwright | None = None
        self.process: Process | None = None
        try:
            self.wait(self._start(), START_SECONDS)
        except (PlaywrightError, BrowserDied) as error:
            self.close()
            reason = str(error).strip().splitlines()[0] if str(error).strip() else "it does not answer"
            raise OneiroError(
                f"Chromium does not start ({reason}); "
                "install it (`apt install chromium` or `playwright install chromium`)"
            ) from None

    async def _start(self) -> None:
        if self.playwright is None:
            self.playwright = await async_playwright().start()
            await self.server.start()
        switches = [f"--proxy-server=http://127.0.0.1:{self.server.port}", *SWITCHES]
        if hasattr(os, "geteuid") and os.geteuid() == 0:
            switches.append("--no-sandbox")
        self.process = await self.playwright.chromium.launch(
            executable_path=self.executable,
            headless=not self.headed,
            args=switches,
            ignore_default_args=["--disable-popup-blocking"],
            timeout=START_SECONDS * 1000,
        )

    def wait(self, work: Coroutine[Any, Any, Result], seconds: float | None = None) -> Result:
        """Run something in the browser's thread. A browser that does not answer at all is dead."""
        bound = seconds if seconds is not None else 4 * self.limits.seconds + 10
        future = asyncio.run_coroutine_threadsafe(work, self.loop)
        try:
            return future.result(bound)
        except concurrent.futures.TimeoutError:
            future.cancel()
            raise BrowserDied("Chromium does not answer") from None
        except PlaywrightError as error:
            raise BrowserDied(f"Chromium: {str(error).splitlines()[0]}") from None

    def open(self, web: Web, urls: Sequence[str], cookies: Mapping[str, Mapping[str, str]] | None = None) -> Session:
        if self.process is None or not self.process.is_connected():
            self.count("restart")
            self.wait(self._start(), START_SECONDS)
        session = ChromiumSession(self, web)
        self.wait(session._open(urls, cookies or {}))
        return session

    def count(self, event: str) -> None:
        """One more of an event."""
        self.counts[event] = self.counts.get(event, 0) + 1

    def act_many(self, sessions: Sequence[Session], actions: Sequence[Action]) -> list[Outcome]:
        return self._at_once([(one, one._act(action)) for one, action in zip(sessions, actions, strict=True)])  # type: ignore[attr-defined]

    def observe_many(self, sessions: Sequence[Session]) -> list[Page]:
        return self._at_once([(one, one._observe()) for one in sessions])  # type: ignore[attr-defined]

    def _at_once(self, work: list[tuple[Session, Coroutine[Any, Any, Result]]]) -> list[Result]:
        async def together() -> list[Result]:
            return list(await asyncio.gather(*[coroutine for _, coroutine in work]))

        return self.wait(together(), 4 * self.limits.seconds + 10 + len(work))

    def close(self) -> None:
        async def stop() -> None:
            if self.process is not None:
                await self.process.close()
            if self.playwright is not None:
                await self.playwright.stop()
            await self.server.stop()

        if not self.thread.is_alive():
            return
        try:
            self.wait(stop(), 20.0)
        except BrowserDied:
            pass
        finally:
            self.loop.call_soon_threadsafe(self.loop.stop)
            self.thread.join(5.0)


class ChromiumSession(Session):
    """One context of Chromium. The methods with an underscore run in the browser's thread."""

    def __init__(self, browser: ChromiumBrowser, web: Web) -> None:
        self.browser, self.web = browser, web
        self.limits = browser.limits
        self.events: list[str] = []
        self.tabs: list[Tab] = []
        self.front = 0
        self.beside = False
        """A grader opens a page of its own: it is no tab."""
        self.secret = ""
        self.context: BrowserContext | None = None
        self.shown: dict[int, Node] | list[int] | None = None
        self.dialogs = 0
        self.arrived = asyncio.Event()
        self.setting_up: set[asyncio.Task[None]] = set()

    # What anybody may call

    def observe(self) -> Page:
        return self.browser.wait(self._observe())

    def act(self, action: Action) -> Outcome:
        return self.browser.wait(self._act(action))

    @property
    def url(self) -> str:
        return self.tab.window.url

    def html(self) -> str:
        return self.browser.wait(self._bounded(self.tab.window.content(), ""))

    def simplified_html(self) -> str:
        return self.browser.wait(self._simplified())

    def number_of(self, node: Node) -> int | None:
        return self.browser.wait(self._number_of(node))

    def screenshot(self) -> bytes | None:
        return self.browser.wait(self._bounded(self.tab.window.screenshot(), None))

    def visit(self, url: str) -> Visited:
        return self.browser.wait(self._visit(url, None))[0]

    def locate(self, locator: str, url: str | None = None) -> str:
        if url is not None:
            return self.browser.wait(self._visit(url, locator))[1]
        return self.browser.wait(self._evaluated(self.tab, locator))

    def close(self) -> None:
        async def end() -> None:
            self.browser.server.forget(self.secret)
            if self.context is not None:
                await asyncio.wait_for(self.context.close(), self.limits.seconds)

        with contextlib.suppress(BrowserDied, TimeoutError):
            self.browser.wait(end())

    # Opening

    @property
    def tab(self) -> Tab:
        """The tab in front."""
        return self.tabs[self.front]

    def event(self, name: str) -> None:
        """Count what happened besides."""
        self.events.append(name)
        self.browser.count(name)

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
        self.context.set_default_timeout(self.limits.seconds * 1000)
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
                    await tab.window.goto(target, wait_until="load")
                except PlaywrightError:
                    self.event("blocked")
                tab.first = await self._place(tab)
        self.front = 0

    async def _new_tab(self) -> Tab:
        """A blank tab in front."""
        assert self.context is not None
        count = len(self.tabs)
        await self.context.new_page()
        while len(self.tabs) == count:
            self.arrived.clear()
            await asyncio.wait_for(self.arrived.wait(), self.limits.seconds)
        self.front = len(self.tabs) - 1
        return self.tab

    def _arrive(self, window: Window) -> None:
        """A new page: made by us, opened by a page, or beside the tabs for a grader."""
        if self.beside:
            return
        task = asyncio.ensure_future(self._set_up(window))
        self.setting_up.add(task)
        task.add_done_callback(self.setting_up.discard)

    async def _set_up(self, window: Window) -> None:
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
        if opener is not None:
            self.event("new tab")
            try:
                await window.wait_for_load_state("load")
                tab.first = await self._place(tab)
            except PlaywrightError:
                pass
        self.arrived.set()

    async def _tab_of(self, window: Window) -> Tab:
        assert self.context is not None
        tab = Tab(window, await self.context.new_cdp_session(window))
        window.on("dialog", lambda dialog: asyncio.ensure_future(self._answer(tab, dialog)))
        window.on("download", lambda _: self.event("download"))
        window.on("crash", lambda _: asyncio.ensure_future(self._crashed(tab)))
        window.on("close", lambda _: self._closed(tab))
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

    async def _answer(self, tab: Tab, dialog: Dialog) -> None:
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

    async def _crashed(self, tab: Tab) -> None:
        """A blank tab takes the place of one whose page died."""
        self.event("crash")
        await self._replace(tab)

    async def _replace(self, tab: Tab) -> None:
        if tab not in self.tabs:
            return
        place, front = self.tabs.index(tab), self.front
        try:
            fresh = await self._new_tab()
            self.tabs.remove(fresh)
            if tab in self.tabs:
                self.tabs.remove(tab)
            self.tabs.insert(place, fresh)
            self.front = front
            await asyncio.wait_for(tab.window.close(), self.limits.seconds)
        except (PlaywrightError, TimeoutError):
            pass

    def _closed(self, tab: Tab) -> None:
        """A tab is gone."""
        if tab in self.tabs:
            self.tabs.remove(tab)
            self.front = max(0, min(self.front, len(self.tabs) - 1))

    # Reading

    async def _bounded(self, work: Coroutine[Any, Any, Result], otherwise: Result) -> Result:
        """Something that a page may never answer."""
        try:
            return await asyncio.wait_for(work, self.limits.seconds)
        except (PlaywrightError, TimeoutError):
            self._check()
            self.event("timeout")
            return otherwise

    def _check(self) -> None:
        if self.browser.process is None or not self.browser.process.is_connected():
            raise BrowserDied("Chromium is gone")

    async def _world(self, tab: Tab) -> int:
        """Our isolated world in the page that the tab shows now."""
        if tab.world is None:
            frame = (await tab.protocol.send("Page.getFrameTree"))["frameTree"]["frame"]["id"]
            made = await tab.protocol.send("Page.createIsolatedWorld", {"frameId": frame, "worldName": WORLD})
            tab.world = made["executionContextId"]
        return tab.world

    async def _run(self, tab: Tab, script: str) -> Any:
        """The value of an expression in our world."""
        asked = {"expression": script, "contextId": await self._world(tab), "returnByValue": True, "awaitPromise": True}
        answer = await tab.protocol.send("Runtime.evaluate", asked)
        return None if "exceptionDetails" in answer else answer["result"].get("value")

    async def _observe(self) -> Page:
        self._check()
        for _ in range(2):
            tab = self.tab
            try:
                async with asyncio.timeout(self.limits.seconds):
                    return await self._read(tab)
            except (PlaywrightError, TimeoutError):
                self._check()
                self.event("timeout")
                await self._interrupt(tab)
        await self._replace(self.tab)
        async with asyncio.timeout(self.limits.seconds):
            return await self._read(self.tab)

    async def _interrupt(self, tab: Tab) -> None:
        """Stop whatever script a page runs."""
        with contextlib.suppress(PlaywrightError, TimeoutError):
            await asyncio.wait_for(tab.protocol.send("Runtime.terminateExecution"), 1.0)
        tab.world = None

    async def _read(self, tab: Tab) -> Page:
        size = await self._run(tab, "document.getElementsByTagName('*').length")
        if (size or 0) > self.limits.nodes:
            limit = self.limits.page_bytes
            html = await self._run(tab, f"document.documentElement.outerHTML.slice(0, {limit})") or ""
            document = Document(html, self.limits.nodes)
            root = tree(document, State(), Styles(document.styles))
            for node in _all(root):
                node.handle = None
        else:
            root = converted((await tab.protocol.send("Accessibility.getFullAXTree"))["nodes"])
        nodes, cut = number(root, self.limits.nodes)
        self.shown = nodes
        titles = tuple([await self._title(one) if one is not tab else root.name for one in self.tabs])
        return Page(tab.window.url, root.name, root, nodes, titles, self.front, cut or (size or 0) > self.limits.nodes)

    async def _title(self, tab: Tab) -> str:
        try:
            return " ".join((await asyncio.wait_for(tab.window.title(), 1.0)).split())
        except (PlaywrightError, TimeoutError):
            return ""

    async def _simplified(self) -> str:
        tab = self.tab
        limit = str(self.limits.page_bytes)
        html = await self._bounded(self._run(tab, MARKED.replace("LIMIT", limit)), None) or ""
        document = Document(html, self.limits.nodes)
        text, numbered = simplify(document, State(), Styles(()))
        self.shown = [int(element.attributes.get(INDEX, "-1")) for element in numbered]
        return text

    async def _number_of(self, node: Node) -> int | None:
        asked = {"backendNodeId": node.handle, "executionContextId": await self._world(self.tab)}
        try:
            found = (await self.tab.protocol.send("DOM.resolveNode", asked))["object"]
            place = await self._call(str(found["objectId"]), "function () { return oneiroElements.indexOf(this) }")
        except (PlaywrightError, KeyError):
            return None
        given = self.shown if isinstance(self.shown, list) else []
        return given.index(place) if place in given else None

    async def _evaluated(self, tab: Tab, locator: str) -> str:
        """A locator as JavaScript in our world of the page; what goes wrong in it is nothing found."""
        value = await self._bounded(self._run(tab, f"(() => {{ try {{ return ({locator}) }} catch {{ }} }})()"), None)
        if isinstance(value, bool):
            return "true" if value else "false"
        return "" if value is None else str(value)

    async def _visit(self, url: str, locator: str | None) -> tuple[Visited, str]:
        """A page of its own for a grader."""
        assert self.context is not None
        target = address(url)
        kept, counts = list(self.events), dict(self.browser.counts)
        self.beside = True
        try:
            window = await self.context.new_page()
        finally:
            self.beside = False
        status, html, found = 0, "", ""
        try:
            answer = await window.goto(target or "about:blank", wait_until="load")
            status = answer.status if answer is not None else 0
            html = await self._bounded(window.content(), "")
            if locator is not None:
                tab = Tab(window, await self.context.new_cdp_session(window))
                found = await self._evaluated(tab, locator)
        except PlaywrightError:
            pass
        reached = window.url
        await self._bounded(window.close(), None)
        self.events, self.browser.counts = kept, counts
        return Visited(reached, status, html), found

    # Acting

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

    async def _settle(self, tab: Tab) -> str | None:
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
                await asyncio.wait_for(self.arrived.wait(), STARTED_SECONDS)
            except TimeoutError:
                tab.popups = 0
                break
        return f"The form was not sent: {complaint}" if complaint else None

    async def _target(self, action: Action) -> str:
        """The element that an action names, as a remote object."""
        tab = self.tab
        missing = Failed(f"There is no element [{action.element}] on this page.")
        try:
            if isinstance(self.shown, list):
                if action.element is None or not 0 <= action.element < len(self.shown):
                    raise missing
                asked = {
                    "expression": f"globalThis.oneiroElements?.[{self.shown[action.element]}]",
                    "contextId": await self._world(tab),
                }
                found = (await tab.protocol.send("Runtime.evaluate", asked))["result"]
            else:
                node = (self.shown or {}).get(action.element or 0)
                if node is None or node.handle is None:
                    raise missing
                asked = {"backendNodeId": node.handle, "executionContextId": await self._world(tab)}
                found = (await tab.protocol.send("DOM.resolveNode", asked))["object"]
        except PlaywrightError:
            raise missing from None
        if "objectId" not in found:
            raise missing
        return str(found["objectId"])

    async def _call(self, target: str, function: str, *arguments: Any, gesture: bool = False) -> Any:
        """A function of ours with an element as `this`."""
        asked = {
            "objectId": target, "functionDeclaration": function, "returnByValue": True, "userGesture": gesture,
            "arguments": [{"value": argument} for argument in arguments],
        }  # fmt: skip
        answer = await self.tab.protocol.send("Runtime.callFunctionOn", asked)
        return None if "exceptionDetails" in answer else answer["result"].get("value")

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
            self._closed(closing)
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
            asked = {"expression": "document.activeElement", "contextId": await self._world(self.tab)}
            target = (await self.tab.protocol.send("Runtime.evaluate", asked))["result"]["objectId"]
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
            raise Failed(f"Addresses that begin with '{url.strip().split(':')[0].lower()}:' are blocked.")
        try:
            await self.tab.window.goto(target, wait_until="load")
        except PlaywrightError as error:
            text = str(error)
            if "ERR_TOO_MANY_REDIRECTS" in text:
                raise Failed("The page sends on from address to address without end.") from None
            if "Download" not in text and "ERR_ABORTED" not in text:
                raise

    async def _place(self, tab: Tab) -> int:
        """Where in its history a tab is; 0 while a page that hangs keeps it."""
        try:
            history = await tab.protocol.send("Page.getNavigationHistory")
        except PlaywrightError:
            return 0
        return int(history["currentIndex"])

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


def _all(root: Node) -> list[Node]:
    found = [root]
    for node in found:
        found.extend(node.children)
    return found


def is_bubble(given: Mapping[str, Any]) -> bool:
    """The bubble at a field of a form that was not sent: it goes by itself, and the outcome says it already."""
    relevant = [item["value"].get("value") for item in given.get("properties", ()) if item["name"] == "relevant"]
    return relevant == ["additions"] and not given.get("childIds")


def converted(nodes: Sequence[Mapping[str, Any]]) -> Node:
    """Chromium's accessibility nodes as our tree; what is never printed is left out."""
    known = {node["nodeId"]: node for node in nodes}
    roots: list[Node] = []
    stack: list[tuple[Mapping[str, Any], list[Node]]] = [(nodes[0], roots)]
    while stack:
        given, out = stack.pop()
        role = given.get("role", {}).get("value", "")
        if role == "InlineTextBox" or (
            role == "alert" and given.get("parentId") == nodes[0]["nodeId"] and is_bubble(given)
        ):
            continue
        if not given.get("ignored") and "name" in given:
            name = given["name"].get("value", "")
            properties = {
                item["name"]: item["value"]["value"]
                for item in given.get("properties", ())
                if item["value"].get("value", "") != "" or (item["name"] == "valuetext" and "value" in item["value"])
                if item["name"] not in IGNORED_PROPERTIES
            }
            if is_printed(role, name, properties):
                node = Node(role, name, properties, [], given.get("backendDOMNodeId"))
                out.append(node)
                out = node.children
        stack.extend([(known[child], out) for child in reversed(given.get("childIds", ())) if child in known])
    return roots[0] if roots else Node("RootWebArea", "")
