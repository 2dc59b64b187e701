"""Lightpanda behind the browser interface: JavaScript without drawing, several times as fast as Chromium.

    with LightpandaBrowser() as browser:
        session = browser.open(Web(), ["http://onestopmarket.com/"])

Its binary is a separate process from the package `lightpanda`. It has no layout, so an element is clicked by a script
of ours, and the tree of a page is built by our own walker from the document as it is now. A tab is one connection. A
page that hangs loses its connection, not the process: an empty tab takes its place.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import json
import os
import shutil
import socket
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urljoin

from oneiro.errors import OneiroError
from oneiro.worlds.web.actions import Action, Kind
from oneiro.worlds.web.browser import forms
from oneiro.worlds.web.browser.accessibility import State, tree
from oneiro.worlds.web.browser.base import Browser, BrowserDied, Limits, Outcome, Session, Visited, address
from oneiro.worlds.web.browser.chromium import FIELD, HOME, PICK, SET_DATE
from oneiro.worlds.web.browser.devtools import Connection, ProtocolError
from oneiro.worlds.web.browser.document import INDEX, Document
from oneiro.worlds.web.browser.keys import split_keys
from oneiro.worlds.web.browser.server import HEADER, Server
from oneiro.worlds.web.browser.simplified import simplify
from oneiro.worlds.web.browser.styles import Styles
from oneiro.worlds.web.browser.text import date_value, decode
from oneiro.worlds.web.browser.thread import LoopThread
from oneiro.worlds.web.page import Node, Page, number
from oneiro.worlds.web.sites import Web

Result = TypeVar("Result")
START_SECONDS = 20.0
STARTED_SECONDS = 0.5
"""How long a navigation that was asked for may take to begin."""
MOST_TABS = 512
"""Connections of one process."""
HEAP_MEGABYTES = 512
MOST_SHEETS = 8
FLAW = """form => form && !form.noValidate &&
  [...form.elements].find(part => part.willValidate && !part.validity.valid)"""
"""The first control that keeps a form from being sent."""
CLICK = (
    "function() {"
    + HOME
    + """
  if (!element || element.matches(":disabled")) return "";
  if (element.closest("option")) return "option";
  if (element.closest("select") || element.type === "date") { element.focus(); return ""; }
  let popup = "";
  const follow = event => {
    const link = event.composedPath().find(part => part.tagName === "A" && part.target === "_blank");
    if (link && !event.defaultPrevented) { event.preventDefault(); popup = link.href; }
  };
  addEventListener("click", follow);
  for (const name of ["mousedown", "mouseup"]) element.dispatchEvent(new MouseEvent(name, {bubbles: true}));
  const focused = element.closest("a[href], button, input, textarea, summary, [tabindex]");
  const bare = focused && focused.tagName === "SUMMARY" && !focused.hasAttribute("tabindex");
  if (bare) focused.setAttribute("tabindex", "0");  // Lightpanda gives a summary no focus
  focused ? focused.focus() : document.activeElement.blur();
  if (bare) focused.removeAttribute("tabindex");
  const more = element.closest("summary")?.parentElement, open = more?.open;
  element.click();
  if (more && more.open === open) more.open = !open;
  removeEventListener("click", follow);
  const invalid = focused && focused.type === "submit" && (FLAW)(focused.form);
  if (invalid) invalid.focus();
  return popup ? "popup " + popup : invalid ? "invalid " + invalid.validationMessage : "";
}""".replace("FLAW", FLAW)
)
ENTERED = """(() => {
  const field = document.activeElement;
  const invalid = field && field.tagName === "INPUT" && (FLAW)(field.form);
  if (invalid) invalid.focus();
  return invalid ? invalid.validationMessage : "";
})()""".replace("FLAW", FLAW)
"""What kept the form of the focused field from being sent by Enter."""
HOVER = (
    "function() {"
    + HOME
    + """
  for (const name of ["mouseover", "mouseenter", "mousemove"])
    element && element.dispatchEvent(new MouseEvent(name, {bubbles: name !== "mouseenter"}));
}"""
)
INSERT = (
    "function(clear, text) {"
    + HOME
    + """
  const field = element.tagName === "LABEL" && element.control ? element.control : element;
  if (field.type === "number") text = text.replace(/[^0-9+.eE-]/g, "");
  field.value = (clear ? "" : field.value) + text;
  field.dispatchEvent(new Event("input", {bubbles: true}));
  field.dispatchEvent(new Event("change", {bubbles: true}));
}"""
)
ELEMENTS = 'globalThis[Symbol.for("oneiro")]'
LIVE = """(() => {
  const kept = [...document.documentElement.getElementsByTagName("*")].slice(0, NODES);
  const copy = document.documentElement.cloneNode(true);
  const copies = copy.getElementsByTagName("*");
  kept.forEach((element, index) => {
    const mark = copies[index], tag = element.tagName;
    mark.setAttribute("INDEX", index);
    const note = (name, on) => on ? mark.setAttribute(name, "") : mark.removeAttribute(name);
    if (tag === "INPUT") {
      if (element.value !== (element.getAttribute("value") || "")) mark.setAttribute("value", element.value);
      note("checked", element.checked);
    }
    if (tag === "TEXTAREA") mark.textContent = element.value;
    if (tag === "OPTION") note("selected", element.selected);
  });
  globalThis[Symbol.for("oneiro")] = kept;
  const html = copy.outerHTML;
  return {html: html.slice(0, BYTES), cut: html.length > BYTES || copies.length > NODES,
          url: location.href, focus: kept.indexOf(document.activeElement)};
})()""".replace("INDEX", INDEX)
"""The document as it is now; its elements are kept in `ELEMENTS`."""


ACCEPT = """(() => {
  const confirmed = confirm, prompted = prompt;
  confirm = text => (confirmed(text), true);
  prompt = (text, otherwise) => (prompted(text), otherwise || "");
})()"""
"""Lightpanda dismisses dialogs; here every browser accepts them."""


class Failed(Exception):
    """An action that cannot be carried out; its text is for the agent."""


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


class LightpandaBrowser(Browser):
    """One process for all sessions."""

    name = "lightpanda"

    def __init__(self, limits: Limits | None = None, executable: str | None = None) -> None:
        super().__init__(limits)
        self.executable = executable or find_executable()
        self.thread = LoopThread("lightpanda")
        self.server = Server(self.limits)
        self.process: asyncio.subprocess.Process | None = None
        self.url = ""
        try:
            self.wait(self._start(), START_SECONDS)
        except (BrowserDied, OSError) as error:
            self.close()
            raise OneiroError(f"Lightpanda does not start ({error}): {self.executable}") from None

    async def _start(self) -> None:
        if not self.server.port:
            await self.server.start()
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        options = {
            "protocol": "cdp", "host": "127.0.0.1", "port": port, "cdp-max-connections": MOST_TABS,
            "http-proxy": f"http://127.0.0.1:{self.server.port}", "http-max-response-size": self.limits.page_bytes,
            "http-timeout": int(1000 * self.limits.seconds), "watchdog-ms": int(1000 * self.limits.seconds / 2),
            "v8-max-heap-mb": HEAP_MEGABYTES, "timezone": "UTC", "ws-max-concurrent": 0, "log-level": "fatal",
        }  # fmt: skip
        self.process = await asyncio.create_subprocess_exec(
            self.executable,
            "serve",
            *[part for name, value in options.items() for part in (f"--{name}", str(value))],
            "--disable-metrics",
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
            env={"LIGHTPANDA_DISABLE_TELEMETRY": "true", "PATH": os.environ.get("PATH", "")},
        )
        self.url = f"ws://127.0.0.1:{port}/"
        while True:  # until it listens; the caller's deadline ends a process that never does
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                if self.process.returncode is not None:
                    raise BrowserDied(f"exit code {self.process.returncode}") from None
                await asyncio.sleep(0.02)
            else:
                writer.close()
                return

    @property
    def alive(self) -> bool:
        """Whether the process runs."""
        return self.process is not None and self.process.returncode is None

    def wait(self, work: Coroutine[Any, Any, Result], seconds: float | None = None) -> Result:
        """Run something in the browser's thread. A browser that does not answer at all is dead."""
        try:
            return self.thread.wait(work, seconds if seconds is not None else 4 * self.limits.seconds + 10)
        except TimeoutError:
            self.kill()
            raise BrowserDied("Lightpanda does not answer") from None
        except ProtocolError as error:
            raise BrowserDied(f"Lightpanda: {error}") from None

    def open(self, web: Web, urls: Sequence[str], cookies: Mapping[str, Mapping[str, str]] | None = None) -> Session:
        if not self.alive:
            self.count("restart")
            self.wait(self._start(), START_SECONDS)
        session = LightpandaSession(self, web)
        self.wait(session._open(urls, cookies or {}))
        return session

    def act_many(self, sessions: Sequence[Session], actions: Sequence[Action]) -> list[Outcome]:
        return self._at_once([one._act(action) for one, action in zip(sessions, actions, strict=True)])  # type: ignore[attr-defined]

    def observe_many(self, sessions: Sequence[Session]) -> list[Page]:
        return self._at_once([one._observe() for one in sessions])  # type: ignore[attr-defined]

    def _at_once(self, work: list[Coroutine[Any, Any, Result]]) -> list[Result]:
        async def together() -> list[Result]:
            return list(await asyncio.gather(*work))

        return self.wait(together(), 4 * self.limits.seconds + 10 + len(work))

    def count(self, event: str) -> None:
        """One more of an event."""
        self.counts[event] = self.counts.get(event, 0) + 1

    def kill(self) -> None:
        """End the process at once."""
        if self.alive:
            assert self.process is not None
            with contextlib.suppress(ProcessLookupError):
                self.process.kill()

    def close(self) -> None:
        async def stop() -> None:
            await self.server.stop()
            if self.process is not None:
                self.kill()
                await self.process.wait()

        if self.thread.alive:
            with contextlib.suppress(BrowserDied):
                self.wait(stop(), 10.0)
            self.thread.stop()


class LightpandaSession(Session):
    """The tabs of one episode. The methods with an underscore run in the browser's thread."""

    def __init__(self, browser: LightpandaBrowser, web: Web) -> None:
        self.browser, self.web, self.limits = browser, web, browser.limits
        self.events: list[str] = []
        self.tabs: list[Tab] = []
        self.front = 0
        self.secret = ""
        self.sheets: dict[str, str] = {}
        self.shown: dict[int, Node] | list[int] | None = None
        """What the last observation numbered: nodes of the tree, or places in `ELEMENTS`."""

    # What anybody may call

    def observe(self) -> Page:
        return self.browser.wait(self._observe())

    def act(self, action: Action) -> Outcome:
        return self.browser.wait(self._act(action))

    @property
    def url(self) -> str:
        return self.tab.url

    def html(self) -> str:
        shown = f"document.documentElement.outerHTML.slice(0, {self.limits.page_bytes})"
        return self.browser.wait(self._bounded(self.tab.run(shown))) or ""

    def simplified_html(self) -> str:
        return self.browser.wait(self._simplified())

    def number_of(self, node: Node) -> int | None:
        given = self.shown if isinstance(self.shown, list) else []
        return given.index(node.handle) if node.handle in given else None

    def screenshot(self) -> bytes | None:
        return None

    def visit(self, url: str) -> Visited:
        return self.browser.wait(self._visit(url, None))[0]

    def locate(self, locator: str, url: str | None = None) -> str:
        if url is not None:
            return self.browser.wait(self._visit(url, locator))[1]
        return self.browser.wait(self._evaluated(self.tab, locator))

    def close(self) -> None:
        async def end() -> None:
            self.browser.server.forget(self.secret)
            await asyncio.gather(*[tab.connection.close() for tab in self.tabs])

        with contextlib.suppress(BrowserDied):
            self.browser.wait(end())

    # Tabs

    @property
    def tab(self) -> Tab:
        """The tab in front."""
        return self.tabs[self.front]

    def event(self, name: str) -> None:
        """Count what happened besides."""
        self.events.append(name)
        self.browser.count(name)

    async def _open(self, urls: Sequence[str], cookies: Mapping[str, Mapping[str, str]]) -> None:
        self.secret = self.browser.server.admit(self.web, self.event)
        jar = [
            {"name": name, "value": value, "domain": host, "path": "/"}
            for host, values in cookies.items()
            for name, value in values.items()
        ]
        for url in urls or ["about:blank"]:
            self.tabs.append(await self._connected(jar))
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

    async def _connected(self, cookies: Sequence[Mapping[str, Any]]) -> Tab:
        """A blank tab with these cookies."""
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
        if cookies:
            await tab.send("Network.setCookies", cookies=list(cookies))
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

    async def _beside(self) -> Tab:
        """A blank tab that has the cookies of the tab in front."""
        jar: Sequence[Mapping[str, Any]] = ()
        if self.tabs:
            with contextlib.suppress(ProtocolError, TimeoutError):
                jar = (await self.tab.send("Network.getAllCookies")).get("cookies", ())
        return await self._connected(jar)

    async def _replace(self, tab: Tab) -> None:
        """A blank tab takes the place of one whose page hangs or died."""
        if not self.browser.alive:
            raise BrowserDied("Lightpanda is gone")
        if tab in self.tabs:
            await tab.connection.close()
            others = [one for one in self.tabs if one is not tab]
            jar: Sequence[Mapping[str, Any]] = ()
            if others:
                with contextlib.suppress(ProtocolError, TimeoutError):
                    jar = (await others[0].send("Network.getAllCookies")).get("cookies", ())
            self.tabs[self.tabs.index(tab)] = await self._connected(jar)

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
        sheets = []
        for element in document.links[:MOST_SHEETS]:
            target = address(urljoin(url, element.attributes.get("href", "")))
            if target is not None and target not in self.sheets:
                reply = self.web.request("GET", target)
                fine = reply.status == 200 and "css" in reply.header("content-type")
                self.sheets[target] = decode(reply.body, "text/css") if fine else ""
            sheets.append(self.sheets.get(target or "", ""))
        return Styles((*document.styles, *sheets))

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

    async def _evaluated(self, tab: Tab, locator: str) -> str:
        """A locator as JavaScript in our world of the page; what goes wrong in it is nothing found."""
        try:
            value = await tab.run(f"(() => {{ try {{ return ({locator}) }} catch {{ }} }})()")
        except (ProtocolError, TimeoutError):
            return ""
        if isinstance(value, bool):
            return "true" if value else "false"
        return "" if value is None else str(value)

    async def _visit(self, url: str, locator: str | None) -> tuple[Visited, str]:
        """A page of its own for a grader."""
        kept, counts = list(self.events), dict(self.browser.counts)
        tab = await self._beside()
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

    async def _click(self, tab: Tab, element: int) -> None:
        told = await tab.call(element, CLICK) or ""
        kind, _, detail = str(told).partition(" ")
        if kind == "option":
            await tab.call(element, PICK, None)
        elif kind == "popup":
            if len(self.tabs) >= self.limits.tabs:
                self.event("blocked")
                return
            fresh = await self._beside()
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

    async def _change_tab(self, action: Action) -> None:
        if action.kind is Kind.NEW_TAB:
            if len(self.tabs) >= self.limits.tabs:
                raise Failed(f"No more than {self.limits.tabs} tabs can be open.")
            self.tabs.append(await self._beside())
            self.front = len(self.tabs) - 1
        elif action.kind is Kind.FOCUS_TAB:
            if not 0 <= action.tab < len(self.tabs):
                raise Failed(f"There is no tab {action.tab}; the tabs are 0 to {len(self.tabs) - 1}.")
            jar = (await self.tab.send("Network.getAllCookies")).get("cookies", ())
            self.front = action.tab
            if jar:
                await self.tab.send("Network.setCookies", cookies=jar)
        else:
            closing = self.tabs.pop(self.front)
            if not self.tabs:
                jar = (await closing.send("Network.getAllCookies")).get("cookies", ())
                self.tabs.append(await self._connected(jar))
            await closing.connection.close()
            self.front = len(self.tabs) - 1


def find_executable() -> str:
    """The binary inside the package `lightpanda`, or on the path."""
    package = importlib.util.find_spec("lightpanda")
    inside = [Path(place) / "lightpanda" for place in (package.submodule_search_locations or ())] if package else []
    found = next((str(path) for path in inside if path.is_file()), None) or shutil.which("lightpanda")
    if found is None:
        raise OneiroError("Lightpanda is not installed; install it with `pip install 'oneiro[lightpanda]'`")
    return found
