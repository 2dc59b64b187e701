"""A browser in this process, without JavaScript: for our sites and any page that a server renders.

with TextBrowser() as browser:
    session = browser.open(Web(), ["http://onestopmarket.com/"])
    print(session.observe().text())
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from http.cookies import CookieError, SimpleCookie
from urllib.parse import urldefrag, urljoin, urlsplit

from oneiro.worlds.web.actions import Action, Kind
from oneiro.worlds.web.browser import forms
from oneiro.worlds.web.browser.accessibility import State, is_disabled, labelled, option_name, tree
from oneiro.worlds.web.browser.base import Browser, Limits, Outcome, Session, Visited, address, is_download
from oneiro.worlds.web.browser.document import Document, Element, serialise
from oneiro.worlds.web.browser.keys import split_keys
from oneiro.worlds.web.browser.locator import NotKnown, evaluate
from oneiro.worlds.web.browser.simplified import simplify
from oneiro.worlds.web.browser.styles import Styles
from oneiro.worlds.web.page import Node, Page, number
from oneiro.worlds.web.sites import Web
from oneiro.worlds.web.sites.web import NOWHERE, Reply

DONE = Outcome()
BLANK = "about:blank"
MOST_SHEETS = 8
LONGEST_COOKIES = 8192
CHARSET = re.compile(r"charset=[\"']?([\w-]+)", re.IGNORECASE)
META_CHARSET = re.compile(rb"<meta[^>]+charset=[\"']?([\w-]+)", re.IGNORECASE)
NUMBER_KEYS = frozenset("0123456789+-.eE")
ACTIVE = ("a", "button", "input", "label", "summary", "select", "option", "textarea")


class Rendering:
    """A document, its style sheets, and its tree as long as nobody touched it."""

    def __init__(self, html: str, sheets: tuple[str, ...], nodes: int) -> None:
        self.document = read(html, nodes)
        self.styles = styles((*self.document.styles, *sheets))
        self.fresh: tuple[Node, dict[int, Node], bool] | None = None

    def tree(self, state: State, nodes: int) -> tuple[Node, dict[int, Node], bool]:
        """Root, printed nodes, and whether the page was cut."""
        untouched = not (state.focus or state.values or state.checked or state.chosen or state.opened)
        if untouched and self.fresh is not None:
            return self.fresh
        root = tree(self.document, state, self.styles)
        printed, cut = number(root, nodes)
        made = (root, printed, cut or self.document.cut)
        if untouched:
            self.fresh = made
        return made


@lru_cache(maxsize=256)
def read(html: str, nodes: int) -> Document:
    """Equal pages are parsed once."""
    return Document(html, nodes)


@lru_cache(maxsize=256)
def styles(sheets: tuple[str, ...]) -> Styles:
    """Equal style sheets are read once."""
    return Styles(sheets)


@lru_cache(maxsize=256)
def rendering(html: str, sheets: tuple[str, ...], nodes: int) -> Rendering:
    """Equal pages are rendered once."""
    return Rendering(html, sheets, nodes)


@dataclass
class Loaded:
    """A page in a tab."""

    url: str
    status: int
    html: str
    rendering: Rendering
    state: State = field(default_factory=State)
    posted: bool = False


@dataclass
class Tab:
    """A tab: its history and where in it the person is."""

    history: list[Loaded]
    place: int = 0
    scroll: float = 0.0
    """Viewports from the top."""

    @property
    def page(self) -> Loaded:
        """What the tab shows."""
        return self.history[self.place]

    def go(self, page: Loaded) -> None:
        """Show a new page; what lay ahead in the history is lost."""
        self.history[self.place + 1 :] = [page]
        self.place = len(self.history) - 1
        self.scroll = 0.0


class Failed(Exception):
    """An action that cannot be carried out; its text is for the agent."""


class TextBrowser(Browser):
    """The browser in this process."""

    name = "text"

    def open(self, web: Web, urls: Sequence[str], cookies: Mapping[str, Mapping[str, str]] | None = None) -> Session:
        return TextSession(self, web, urls, cookies or {})

    def close(self) -> None:
        """Nothing to end."""


class TextSession(Session):
    """One episode's tabs as data."""

    def __init__(
        self, browser: TextBrowser, web: Web, urls: Sequence[str], cookies: Mapping[str, Mapping[str, str]]
    ) -> None:
        self.browser, self.web = browser, web
        self.limits: Limits = browser.limits
        self.cookies: dict[str, dict[str, str]] = {host: dict(values) for host, values in cookies.items()}
        self.sheets: dict[str, str] = {}
        self.events: list[str] = []
        self.shown: dict[int, Node] | list[Element] | None = None
        """What the last observation numbered: nodes of the tree, or elements of the simplified HTML."""
        self.select_all = False
        self.tabs: list[Tab] = []
        self.front = 0
        for url in urls or [BLANK]:
            self.tabs.append(Tab([self.opened(url)]))

    # Reading

    @property
    def tab(self) -> Tab:
        """The tab in front."""
        return self.tabs[self.front]

    @property
    def page(self) -> Loaded:
        """The page in front."""
        return self.tab.page

    @property
    def url(self) -> str:
        return self.page.url

    def observe(self) -> Page:
        page = self.page
        root, nodes, cut = page.rendering.tree(page.state, self.limits.nodes)
        self.shown = nodes
        titles = tuple([tab.page.rendering.document.title for tab in self.tabs])
        return Page(page.url, titles[self.front], root, nodes, titles, self.front, cut)

    def html(self) -> str:
        return serialise(self.page.rendering.document.root)

    def simplified_html(self) -> str:
        page = self.page
        text, numbered = simplify(page.rendering.document, page.state, page.rendering.styles)
        self.shown = numbered
        return text

    def number_of(self, node: Node) -> int | None:
        given = self.shown if isinstance(self.shown, list) else []
        return next((number for number, element in enumerate(given) if element is node.handle), None)

    def screenshot(self) -> bytes | None:
        return None

    def visit(self, url: str) -> Visited:
        page = self.beside(url)
        return Visited(page.url, page.status, page.html)

    def beside(self, url: str) -> Loaded:
        """A page opened with the session's cookies, without leaving a trace in it."""
        kept = (
            {host: dict(values) for host, values in self.cookies.items()},
            list(self.events),
            dict(self.browser.counts),
        )
        page = self.opened(url)
        self.cookies, self.events, self.browser.counts = kept
        return page

    def locate(self, locator: str, url: str | None = None) -> str:
        page = self.page if url is None else self.beside(url)
        try:
            return evaluate(locator, page.rendering.document, page.state, page.rendering.styles)
        except NotKnown:
            return ""

    def close(self) -> None:
        self.tabs = [Tab([self.blank()])]
        self.front = 0

    # Loading

    def opened(self, url: str) -> Loaded:
        """A page for a tab of its own; an empty one where it cannot be had."""
        target = address(url)
        try:
            page = self.fetch(target) if target and target != BLANK else None
        except Failed:
            page = None
        return page or self.blank()

    def blank(self) -> Loaded:
        """An empty page."""
        return Loaded(BLANK, 200, "", rendering("", (), self.limits.nodes))

    def event(self, name: str) -> None:
        """Count what happened besides."""
        self.events.append(name)
        self.browser.counts[name] = self.browser.counts.get(name, 0) + 1

    def request(self, method: str, url: str, body: bytes, referrer: str) -> Reply:
        """One request with the cookies of its host, and the cookies it sets."""
        host = urlsplit(url).hostname or ""
        headers = {"accept": "text/html", **({"referer": referrer} if referrer.startswith("http") else {})}
        if self.cookies.get(host):
            headers["cookie"] = "; ".join(f"{key}={value}" for key, value in self.cookies[host].items())
        if method == "POST":
            headers["content-type"] = "application/x-www-form-urlencoded"
            headers["content-length"] = str(len(body))
        reply = self.web.request(method, url, headers, body)
        for key, value in reply.headers:
            if key == "set-cookie":
                self.keep_cookie(host, value)
        return reply

    def keep_cookie(self, host: str, header: str) -> None:
        """One `Set-Cookie`; a life of zero forgets the cookie."""
        jar = self.cookies.setdefault(host, {})
        try:
            found = SimpleCookie(header[:LONGEST_COOKIES])
        except CookieError:
            return
        for name, morsel in found.items():
            if morsel["max-age"] == "0" or "01 Jan 1970" in morsel["expires"]:
                jar.pop(name, None)
            elif sum(map(len, jar.values())) < LONGEST_COOKIES:
                jar[name] = morsel.value

    def fetch(self, url: str, method: str = "GET", body: bytes = b"", referrer: str = "") -> Loaded | None:
        """The page at an address after its redirects; None where the tab stays as it is (a download)."""
        posted = method == "POST"
        for _ in range(self.limits.redirects + 1):
            reply = self.request(method, urldefrag(url)[0], body, referrer)
            target = reply.header("location")
            if reply.status not in (301, 302, 303, 307, 308) or not target:
                break
            joined = address(urljoin(url, target))
            if joined is None:
                self.event("blocked")
                reply = NOWHERE
                break
            if reply.status == 303 or (reply.status in (301, 302) and method == "POST"):
                method, body, posted = "GET", b"", False
            url = joined
        else:
            self.event("blocked")
            raise Failed("The page sends on from address to address without end.")
        if reply is NOWHERE:
            self.event("blocked")
        return self.loaded(url, reply, posted)

    def loaded(self, url: str, reply: Reply, posted: bool) -> Loaded | None:
        """An answer as a page."""
        kind = reply.header("content-type").lower() or "text/html"
        if is_download(reply):
            self.event("download")
            return None
        html = decode(reply.body[: self.limits.page_bytes], kind)
        if "html" not in kind:
            html = f"<pre>{html.replace('&', '&amp;').replace('<', '&lt;')}</pre>"
        document = read(html, self.limits.nodes)
        shown = rendering(html, self.sheets_of(document, url), self.limits.nodes)
        page = Loaded(url, reply.status, html, shown, posted=posted)
        page.state.focus = next((e for e in document.elements if "autofocus" in e.attributes), None)
        return page

    def sheets_of(self, document: Document, url: str) -> tuple[str, ...]:
        """The linked style sheets of a page."""
        found = []
        for element in document.links[:MOST_SHEETS]:
            target = address(urljoin(url, element.attributes.get("href", "")))
            if target is None:
                continue
            if target not in self.sheets:
                reply = self.web.request("GET", target)
                fine = reply.status == 200 and "css" in reply.header("content-type")
                self.sheets[target] = decode(reply.body, "text/css") if fine else ""
            found.append(self.sheets[target])
        return tuple(found)

    def navigate(self, url: str, method: str = "GET", body: bytes = b"", new_tab: bool = False) -> None:
        """Follow an address from the page in front."""
        here = self.page.url
        joined = urljoin(here if here != BLANK else "", url.strip())
        scheme = urlsplit(joined).scheme.lower()
        target = address(joined)
        if target is None:
            self.event("blocked")
            raise Failed(f"Addresses that begin with '{scheme}:' are blocked.")
        bare, fragment = urldefrag(target)
        if method == "GET" and not new_tab and (fragment or "#" in target) and bare == urldefrag(here)[0]:
            self.tab.go(replace(self.page, url=target))
            return
        page_there = self.fetch(target, method, body, here)
        if page_there is None:
            return
        if new_tab:
            if len(self.tabs) >= self.limits.tabs:
                self.event("blocked")
                raise Failed(f"No more than {self.limits.tabs} tabs can be open.")
            self.tabs.append(Tab([page_there]))
            self.front = len(self.tabs) - 1
            self.event("new tab")
        else:
            self.tab.go(page_there)

    # Acting

    def act(self, action: Action) -> Outcome:
        self.events = []
        failure = None
        if self.shown is None:
            self.observe()
        try:
            self.carry_out(action)
        except Failed as error:
            failure = str(error)
        if action.kind not in (Kind.NOTHING, Kind.STOP):
            self.select_all = action.kind is Kind.PRESS and action.text.lower() in ("control+a", "meta+a", "ctrl+a")
        return Outcome(failure, tuple(self.events)) if failure or self.events else DONE

    def carry_out(self, action: Action) -> None:
        """One action; raises `Failed` if it cannot be done."""
        match action.kind:
            case Kind.CLICK:
                self.click(self.target(action))
            case Kind.RIGHT_CLICK | Kind.HOVER:
                self.target(action)
            case Kind.TYPE:
                self.type(action)
            case Kind.SELECT:
                self.choose(self.target(action), action.text)
            case Kind.PRESS:
                self.press(action.text)
            case Kind.SCROLL:
                self.tab.scroll = max(0.0, self.tab.scroll + action.pages)
            case Kind.NEW_TAB:
                if len(self.tabs) >= self.limits.tabs:
                    raise Failed(f"No more than {self.limits.tabs} tabs can be open.")
                self.tabs.append(Tab([self.blank()]))
                self.front = len(self.tabs) - 1
            case Kind.FOCUS_TAB:
                if not 0 <= action.tab < len(self.tabs):
                    raise Failed(f"There is no tab {action.tab}; the tabs are 0 to {len(self.tabs) - 1}.")
                self.front = action.tab
            case Kind.CLOSE_TAB:
                self.tabs.pop(self.front)
                if not self.tabs:
                    self.tabs.append(Tab([self.blank()]))
                self.front = len(self.tabs) - 1
            case Kind.GOTO:
                self.navigate(address(action.text) or action.text)
            case Kind.BACK:
                self.travel(-1, "There is no page to go back to.")
            case Kind.FORWARD:
                self.travel(1, "There is no page to go forward to.")

    def target(self, action: Action) -> Element:
        """The element an action names by the id of the last observation."""
        if action.element is None:
            return self.page.state.focus or self.page.rendering.document.root
        element: Element | None = None
        if isinstance(self.shown, dict):
            node = self.shown.get(action.element)
            element = node.handle if node is not None else None
        elif self.shown is not None and 0 <= action.element < len(self.shown):
            element = self.shown[action.element]
        here = self.page.rendering.document.elements
        if element is None or element.order >= len(here) or here[element.order] is not element:
            raise Failed(f"There is no element [{action.element}] on this page.")
        return element

    def travel(self, steps: int, failure: str) -> None:
        """Back or forward; the page is asked for again, so that what was typed into it is gone."""
        tab = self.tab
        place = tab.place + steps
        if not 0 <= place < len(tab.history):
            raise Failed(failure)
        there = tab.history[place]
        if there.posted or there.url == BLANK:
            there.state = State()
        elif urldefrag(there.url)[0] != urldefrag(tab.page.url)[0]:
            there = self.fetch(there.url) or there
        else:
            there = replace(tab.page, url=there.url)
        tab.place, tab.scroll = place, 0.0
        tab.history[place] = there

    def click(self, element: Element) -> None:
        """What a click on an element does, found by walking outwards."""
        state = self.page.state
        here: Element | None = element
        while here is not None and not self.is_active(here):
            if here.attributes.get("tabindex", "").lstrip("-").isdigit():
                state.focus = here
                return
            here = here.parent
        if here is None:
            state.focus = None
            return
        if is_disabled(here):
            return
        self.activate(here)

    @staticmethod
    def is_active(element: Element) -> bool:
        """Whether a click does something at this element."""
        return element.tag in ACTIVE and (element.tag != "a" or "href" in element.attributes)

    def activate(self, element: Element) -> None:
        """A click on an element that does something."""
        document, state = self.page.rendering.document, self.page.state
        tag, what = element.tag, forms.kind(element)
        if tag == "label":
            control = labelled(element, document)
            if control is not None and not is_disabled(control):
                self.activate(control)
            return
        if tag == "option":
            select = element.closest("select")
            if select is not None:
                self.pick(select, element)
            return
        state.focus = element
        if tag == "a":
            new_tab = element.attributes.get("target", "").lower() == "_blank"
            self.navigate(element.attributes["href"], new_tab=new_tab)
        elif tag == "summary":
            if element.parent is not None and element.parent.tag == "details":
                state.opened[element.parent] = not state.is_open(element.parent)
        elif what == "checkbox":
            state.checked[element] = not state.is_checked(element)
        elif what == "radio":
            self.turn_on(element)
        elif what in ("submit", "image") and tag in ("input", "button"):
            form = forms.owner(element, document)
            if form is not None:
                self.submit(form, element)
        elif what == "reset":
            form = forms.owner(element, document)
            for control in forms.controls(form, document) if form is not None else []:
                for kept in (state.values, state.checked, state.chosen):
                    kept.pop(control, None)

    def turn_on(self, radio: Element) -> None:
        """A radio button goes on and the others of its group go off."""
        document, state = self.page.rendering.document, self.page.state
        name, form = radio.attributes.get("name", ""), forms.owner(radio, document)
        for other in document.find("input"):
            same = other.attributes.get("name", "") == name and forms.owner(other, document) is form
            if forms.kind(other) == "radio" and (other is radio or (name and same)):
                state.checked[other] = other is radio

    def submit(self, form: Element, button: Element | None) -> None:
        """Send a form as a browser does, if it is filled in as it asks."""
        document, state = self.page.rendering.document, self.page.state
        said = button.attributes if button is not None else {}
        if "novalidate" not in form.attributes and "formnovalidate" not in said:
            wrong = forms.refusal(form, document, state)
            if wrong is not None:
                state.focus = wrong[0]
                raise Failed(f"The form was not sent: {wrong[1]}")
        pairs = forms.entries(form, document, state, button)
        action = said.get("formaction") or form.attributes.get("action") or self.page.url
        method = (said.get("formmethod") or form.attributes.get("method") or "get").lower()
        target = said.get("formtarget") or form.attributes.get("target", "")
        if method == "dialog":
            return
        encoded = forms.encode(pairs)
        if method == "post":
            self.navigate(urldefrag(action)[0], "POST", encoded.encode("ascii"), target == "_blank")
        else:
            self.navigate(f"{urldefrag(action)[0].split('?')[0]}?{encoded}", new_tab=target == "_blank")

    def type(self, action: Action) -> None:
        """Click a field and write into it."""
        if action.element is not None:
            element = self.target(action)
            field_there = labelled(element, self.page.rendering.document) if element.tag == "label" else element
            if field_there is None or not forms.is_editable(field_there):
                raise Failed(f"Element [{action.element}] is not a field that can be typed into.")
            self.page.state.focus = field_there
        focus = self.page.state.focus
        if focus is None or not forms.is_editable(focus):
            raise Failed("There is no field to type into: click one first.")
        self.write(focus, action.text, clear=action.clear or self.select_all)
        if action.enter:
            self.press("Enter")

    def write(self, element: Element, text: str, clear: bool) -> None:
        """Put text at the end of a field, or in place of what was there."""
        state, what = self.page.state, forms.kind(element)
        text = text.replace("\r", "")
        if element.tag != "textarea":
            text = text.replace("\n", "")
        if what == "number":
            text = "".join(letter for letter in text if letter in NUMBER_KEYS)
        if what == "date":
            state.values[element] = date_value(text)
            return
        value = text if clear else state.value(element) + text
        most = element.attributes.get("maxlength", "")
        state.values[element] = value[: int(most)] if most.isdigit() and len(most) < 9 else value

    def choose(self, element: Element, text: str) -> None:
        """Pick an option by its words."""
        if element.tag == "option":
            element = element.closest("select") or element
        elif element.tag == "label":
            element = labelled(element, self.page.rendering.document) or element
        if element.tag != "select" or is_disabled(element):
            raise Failed("That element is not a list of options to choose from.")
        wanted = " ".join(text.split()).casefold()
        options = [option for option in element.elements() if option.tag == "option" and not is_disabled(option)]
        named = [(option, option_name(option).casefold()) for option in options]
        found = next((option for option, name in named if name == wanted), None)
        found = found or next((option for option, name in named if wanted in name), None)
        if found is None:
            raise Failed(f"No option contains '{text}'.")
        self.page.state.focus = element
        self.pick(element, found)

    def pick(self, select: Element, option: Element) -> None:
        """Choose an option; in a list of several, it is added or taken away."""
        state = self.page.state
        if is_disabled(option) or is_disabled(select):
            return
        several = "multiple" in select.attributes
        state.chosen[select] = state.options(select) ^ {option} if several else frozenset([option])

    # Keys

    def press(self, combination: str) -> None:
        """A key, with modifiers, on what has the focus."""
        keys = split_keys(combination)
        if keys is None:
            raise Failed(f"There is no key named '{combination}'.")
        modifiers, key = keys
        focus = self.page.state.focus
        if key == "Enter" and not modifiers:
            self.enter(focus)
        elif key == "Tab" and modifiers <= {"Shift"}:
            self.move_focus(-1 if modifiers else 1)
        elif key == " " and not modifiers and focus is not None and not forms.is_editable(focus):
            if focus.tag != "a":
                self.click(focus)
        elif key in ("ArrowUp", "ArrowDown") and not modifiers and focus is not None:
            self.arrow(focus, 1 if key == "ArrowDown" else -1)
        elif key in ("PageDown", "PageUp") and (focus is None or not forms.is_editable(focus)):
            self.tab.scroll = max(0.0, self.tab.scroll + (1 if key == "PageDown" else -1))
        elif key in ("ArrowLeft", "ArrowRight") and modifiers == {"Alt"}:
            self.travel(-1 if key == "ArrowLeft" else 1, "There is no page there.")
        elif focus is not None and forms.is_editable(focus) and not modifiers - {"Shift"}:
            if key in ("Backspace", "Delete"):
                value = self.page.state.value(focus)
                kept = "" if self.select_all else value[:-1] if key == "Backspace" else value
                self.page.state.values[focus] = kept
            elif len(key) == 1:
                self.write(focus, key, clear=self.select_all)

    def enter(self, focus: Element | None) -> None:
        """Enter follows links, presses buttons, sends forms and breaks lines."""
        if focus is None:
            return
        document = self.page.rendering.document
        if focus.tag == "textarea":
            if forms.is_editable(focus):
                self.write(focus, "\n", clear=self.select_all)
        elif focus.tag in ("a", "button", "summary") or forms.kind(focus) in ("submit", "reset", "button", "image"):
            self.click(focus)
        elif focus.tag == "input":
            form = forms.owner(focus, document)
            if form is None:
                return
            button = forms.default_button(form, document)
            if button is not None:
                if not is_disabled(button):
                    self.submit(form, button)
            elif sum(forms.is_text(control) for control in forms.controls(form, document)) <= 1:
                self.submit(form, None)

    def move_focus(self, step: int) -> None:
        """To the next thing that takes keys."""
        document, state = self.page.rendering.document, self.page.state
        order = [element for element in document.elements if self.takes_focus(element)]
        if not order:
            return
        if state.focus in order:
            place = order.index(state.focus) + step
            state.focus = order[place] if 0 <= place < len(order) else None
        else:
            state.focus = order[0 if step > 0 else -1]

    def takes_focus(self, element: Element) -> bool:
        """Whether Tab stops here."""
        attributes = element.attributes
        if attributes.get("tabindex", "").startswith("-") or element.closest("head", "template") is not None:
            return False
        if element.tag in ("input", "select", "textarea", "button"):
            if is_disabled(element) or forms.kind(element) == "hidden":
                return False
            if forms.kind(element) == "radio" and not self.page.state.is_checked(element):
                group = [e for e in self.page.rendering.document.find("input") if forms.kind(e) == "radio"]
                same = [e for e in group if e.attributes.get("name") == attributes.get("name")]
                return not any(map(self.page.state.is_checked, same))
        elif element.tag == "a":
            if "href" not in attributes:
                return False
        elif element.tag != "summary" and "tabindex" not in attributes:
            return False
        around: Element | None = element
        while around is not None:
            if "hidden" in around.attributes:
                return False
            closed = around.parent is not None and around.parent.tag == "details" and around.tag != "summary"
            if closed and around.parent is not None and not self.page.state.is_open(around.parent):
                return False
            around = around.parent
        return True

    def arrow(self, focus: Element, step: int) -> None:
        """Up and down move through options, radio buttons and numbers."""
        state = self.page.state
        if focus.tag == "select" and "multiple" not in focus.attributes:
            options = [e for e in focus.elements() if e.tag == "option" and not is_disabled(e)]
            chosen = next((index for index, e in enumerate(options) if e in state.options(focus)), -1)
            if 0 <= chosen + step < len(options):
                state.chosen[focus] = frozenset([options[chosen + step]])
        elif forms.kind(focus) == "radio":
            name = focus.attributes.get("name")
            group = [e for e in self.page.rendering.document.find("input") if e.attributes.get("name") == name]
            group = [e for e in group if forms.kind(e) == "radio" and not is_disabled(e)]
            state.focus = group[(group.index(focus) + step) % len(group)]
            self.turn_on(state.focus)
        elif forms.kind(focus) == "number" and forms.is_editable(focus):
            value = state.value(focus)
            base = float(value) if re.fullmatch(r"-?\d{1,15}(\.\d{1,15})?", value) else 0.0
            state.values[focus] = f"{base - step:g}"


def date_value(text: str) -> str:
    """A date as inputs keep it, from `2026-06-15` or `06/15/2026`; '' for anything else."""
    found = re.fullmatch(r"\s*(\d{4})-(\d\d?)-(\d\d?)\s*", text)
    if found is None:
        american = re.fullmatch(r"\s*(\d\d?)/(\d\d?)/(\d{4})\s*", text)
        if american is None:
            return ""
        year, month, day = american[3], american[1], american[2]
    else:
        year, month, day = found[1], found[2], found[3]
    return f"{year}-{int(month):02}-{int(day):02}" if 1 <= int(month) <= 12 and 1 <= int(day) <= 31 else ""


def decode(body: bytes, kind: str) -> str:
    """Bytes of a page as text, by the header, the page's own word, or what fits."""
    said = CHARSET.search(kind)
    name = said[1] if said else ""
    if not name:
        found = META_CHARSET.search(body[:1024])
        name = found[1].decode("ascii") if found else "utf-8"
    try:
        return body.decode(name, "replace")
    except LookupError:
        return body.decode("utf-8", "replace")
