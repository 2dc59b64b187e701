"""A browser in this process, without JavaScript: for our sites and any page that a server renders.

with TextBrowser() as browser:
    session = browser.open(Web(), ["http://onestopmarket.com/"])
    print(session.observe().text())
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from urllib.parse import urldefrag

from oneiro_web.actions import Action, Kind
from oneiro_web.browsers.base import (
    Browser,
    Failed,
    Limits,
    Outcome,
    Session,
    Visited,
    address,
    joined,
    refused,
    resolved,
)
from oneiro_web.browsers.text import fields, forms
from oneiro_web.browsers.text.document import Element, serialise
from oneiro_web.browsers.text.keys import split_keys
from oneiro_web.browsers.text.loading import BLANK, Loaded, Loader
from oneiro_web.browsers.text.locator import NotKnown, evaluate
from oneiro_web.browsers.text.simplified import simplify
from oneiro_web.browsers.text.state import State, is_disabled, labelled
from oneiro_web.page import Node, Page
from oneiro_web.sites import Web

DONE = Outcome()
ACTIVE = ("a", "button", "input", "label", "summary", "select", "option", "textarea")


@dataclass
class TextTab:
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
        self.loader = Loader(web, browser.limits, cookies, self.event)
        self.events: list[str] = []
        self.shown: dict[int, Node] | list[Element] | None = None
        """What the last observation numbered: nodes of the tree, or elements of the simplified HTML."""
        self.select_all = False
        self.tabs: list[TextTab] = []
        self.front = 0
        for url in urls or [BLANK]:
            self.tabs.append(TextTab([self.loader.open(url)]))

    @property
    def tab(self) -> TextTab:
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

    def screenshot(self, small: bool = False) -> bytes | None:
        return None

    def visit(self, url: str) -> Visited:
        page = self.beside(url)
        return Visited(page.url, page.status, page.html)

    def beside(self, url: str) -> Loaded:
        """A page opened with the session's cookies, without leaving a trace in it."""
        kept = (
            {host: dict(values) for host, values in self.loader.cookies.items()},
            list(self.events),
            dict(self.browser.counts),
        )
        page = self.loader.open(url)
        self.loader.cookies, self.events, self.browser.counts = kept
        return page

    def locate(self, locator: str, url: str | None = None) -> str:
        page = self.page if url is None else self.beside(url)
        try:
            return evaluate(locator, page.rendering.document, page.state, page.rendering.styles)
        except NotKnown:
            return ""

    def close(self) -> None:
        self.tabs = [TextTab([self.loader.blank()])]
        self.front = 0

    def event(self, name: str) -> None:
        """Count what happened besides."""
        self.events.append(name)
        self.browser.counts[name] = self.browser.counts.get(name, 0) + 1

    def navigate(self, url: str, method: str = "GET", body: bytes = b"", new_tab: bool = False) -> None:
        """Follow an address from the page in front."""
        here = self.page.url
        base, url = self.page.base if here != BLANK else "", url.strip()
        target = resolved(base, url)
        if target is None:
            self.event("blocked")
            raise refused(joined(base, url))
        bare, fragment = urldefrag(target)
        if method == "GET" and not new_tab and (fragment or "#" in target) and bare == urldefrag(here)[0]:
            self.tab.go(replace(self.page, url=target))
            return
        page_there = self.loader.fetch(target, method, body, here)
        if page_there is None:
            return
        if new_tab:
            if len(self.tabs) >= self.limits.tabs:
                self.event("blocked")
                raise Failed(f"No more than {self.limits.tabs} tabs can be open.")
            self.tabs.append(TextTab([page_there]))
            self.front = len(self.tabs) - 1
            self.event("new tab")
        else:
            self.tab.go(page_there)

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
                fields.choose(self.page, self.target(action), action.text)
            case Kind.PRESS:
                self.press(action.text)
            case Kind.SCROLL:
                self.tab.scroll = max(0.0, self.tab.scroll + action.pages)
            case Kind.NEW_TAB:
                if len(self.tabs) >= self.limits.tabs:
                    raise Failed(f"No more than {self.limits.tabs} tabs can be open.")
                self.tabs.append(TextTab([self.loader.blank()]))
                self.front = len(self.tabs) - 1
            case Kind.FOCUS_TAB:
                if not 0 <= action.tab < len(self.tabs):
                    raise Failed(f"There is no tab {action.tab}; the tabs are 0 to {len(self.tabs) - 1}.")
                self.front = action.tab
            case Kind.CLOSE_TAB:
                self.tabs.pop(self.front)
                if not self.tabs:
                    self.tabs.append(TextTab([self.loader.blank()]))
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
            there = self.loader.fetch(there.url) or there
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
                fields.pick(self.page, select, element)
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
            fields.turn_on(self.page, element)
        elif what in ("submit", "image") and tag in ("input", "button"):
            form = forms.owner(element, document)
            if form is not None:
                self.submit(form, element)
        elif what == "reset":
            form = forms.owner(element, document)
            for control in forms.controls(form, document) if form is not None else []:
                for kept in (state.values, state.checked, state.chosen):
                    kept.pop(control, None)

    def submit(self, form: Element, button: Element | None) -> None:
        """Send a form as a browser does, if it is filled in as it asks."""
        document, state = self.page.rendering.document, self.page.state
        overrides = button.attributes if button is not None else {}
        if "novalidate" not in form.attributes and "formnovalidate" not in overrides:
            wrong = forms.refusal(form, document, state)
            if wrong is not None:
                state.focus = wrong[0]
                raise Failed(f"The form was not sent: {wrong[1]}")
        pairs = forms.entries(form, document, state, button)
        action = overrides.get("formaction") or form.attributes.get("action") or self.page.url
        method = (overrides.get("formmethod") or form.attributes.get("method") or "get").lower()
        target = overrides.get("formtarget") or form.attributes.get("target", "")
        if method == "dialog":
            return
        encoded, place = forms.encode(pairs), action.partition("#")[0]
        if method == "post":
            self.navigate(place, "POST", encoded.encode("ascii"), target == "_blank")
        else:
            self.navigate(f"{place.partition('?')[0]}?{encoded}", new_tab=target == "_blank")

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
        fields.write(self.page, focus, action.text, clear=action.clear or self.select_all)
        if action.enter:
            self.press("Enter")

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
            fields.move_focus(self.page, -1 if modifiers else 1)
        elif key == " " and not modifiers and focus is not None and not forms.is_editable(focus):
            if focus.tag != "a":
                self.click(focus)
        elif key in ("ArrowUp", "ArrowDown") and not modifiers and focus is not None:
            fields.arrow(self.page, focus, 1 if key == "ArrowDown" else -1)
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
                fields.write(self.page, focus, key, clear=self.select_all)

    def enter(self, focus: Element | None) -> None:
        """Enter follows links, presses buttons, sends forms and breaks lines."""
        if focus is None:
            return
        document = self.page.rendering.document
        if focus.tag == "textarea":
            if forms.is_editable(focus):
                fields.write(self.page, focus, "\n", clear=self.select_all)
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
