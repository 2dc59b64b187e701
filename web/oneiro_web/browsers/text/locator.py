"""WebArena's locators (`document.querySelector(...).outerText`) by a small grammar: nothing in them is executed.

sum    := term ("+" term)*
term   := "(" sum "||" string ")" | string | list | chain
chain  := "document" step+
step   := [?] "." "querySelector(" string ")" | "." "querySelectorAll(" string ")" "[" number "]"
        | "." property | "." "getAttribute(" string ")" | ".toString()"
list   := "[..." chain "].map(" name "=>" alternative ("||" alternative)* ")" ".join(" string ")"
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from selectolax.lexbor import LexborHTMLParser, SelectolaxError

from oneiro_web.browsers.text.document import INDEX, Document, Element, serialise
from oneiro_web.browsers.text.forms import option_value
from oneiro_web.browsers.text.state import State, is_hidden
from oneiro_web.browsers.text.styles import BLOCK, NEVER_SHOWN, Styles

MAX_LOCATOR_CHARS = 2000  # several times as long as those of published tasks
TOKEN = re.compile(
    r"""\s*(?:(?P<string>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")|(?P<name>[A-Za-z_]\w*)|(?P<number>\d+)"""
    r"""|(?P<sign>\.\.\.|=>|\|\||\?\.|[.()\[\]+,]))"""
)
Value = Element | str | int | bool | None | list[Element]


class NotKnown(ValueError):
    """A locator outside the grammar."""


@dataclass
class LocatedPage:
    """A page as a locator sees it: its document, what was typed into it, and a way to ask for selectors."""

    document: Document
    state: State
    styles: Styles
    parsed: LexborHTMLParser | None = None

    def select(self, root: Element, selector: str) -> list[Element]:
        """The elements below `root` that a CSS selector names, in document order."""
        if self.parsed is None:
            self.parsed = LexborHTMLParser(serialise(self.document.root, index=True))
        try:
            nodes = self.parsed.css(balanced(selector))
        except (SelectolaxError, ValueError, RuntimeError):
            return []
        elements = []
        for node in nodes:
            order = node.attributes.get(INDEX)
            if order is not None:
                elements.append(self.document.elements[int(order)])
        if root is not self.document.root:
            elements = [element for element in elements if is_below(element, root)]
        return elements


def is_below(element: Element, root: Element) -> bool:
    """Whether `root` is around the element."""
    around = element.parent
    while around is not None and around is not root:
        around = around.parent
    return around is root


def balanced(selector: str) -> str:
    """A selector with the bracket that WebArena often forgets."""
    bare = re.sub(r"'[^']*'|\"[^\"]*\"", "", selector)
    return selector + "]" * (bare.count("[") - bare.count("]"))


def evaluate(locator: str, document: Document, state: State, styles: Styles) -> str:
    """What the locator gives on a page; '' where JavaScript would raise an error or give nothing."""
    tokens = tokenise(locator)
    try:
        reader = Reader(tokens, LocatedPage(document, state, styles))
        value = reader.sum()
        if reader.place != len(tokens):
            raise NotKnown(locator)
    except (AttributeError, IndexError, TypeError):
        return ""
    return shown(value)


def tokenise(locator: str) -> list[tuple[str, str]]:
    """Kinds and texts of a locator's tokens."""
    if len(locator) > MAX_LOCATOR_CHARS:
        raise NotKnown("a locator is too long")
    tokens, place = [], 0
    locator = locator.strip()
    while place < len(locator):
        match = TOKEN.match(locator, place)
        if match is None:
            raise NotKnown(locator)
        tokens.append((match.lastgroup or "", match[match.lastgroup or 0]))
        place = match.end()
    return tokens


def shown(value: Value) -> str:
    """A value as JavaScript writes it in a string."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, str | int) else ""


class Reader:
    """A recursive-descent reader that evaluates as it goes."""

    def __init__(self, tokens: list[tuple[str, str]], view: LocatedPage) -> None:
        self.tokens, self.view, self.place = tokens, view, 0

    def peek(self, ahead: int = 0) -> str:
        """The text of a coming token."""
        place = self.place + ahead
        return self.tokens[place][1] if place < len(self.tokens) else ""

    def take(self, *wanted: str) -> str:
        """The next token, which must be one of `wanted` if any are named."""
        token = self.peek()
        if not token or (wanted and token not in wanted):
            raise NotKnown(f"not a known locator near '{token}'")
        self.place += 1
        return token

    def string(self) -> str:
        """A quoted text."""
        if self.place >= len(self.tokens) or self.tokens[self.place][0] != "string":
            raise NotKnown("a text in quotes is missing in a locator")
        return re.sub(r"\\(.)", r"\1", self.take()[1:-1])

    def sum(self) -> Value:
        """Terms joined by +."""
        value = self.term()
        while self.peek() == "+":
            self.take()
            value = shown(value) + shown(self.term())
        return value

    def term(self) -> Value:
        """A text, a list of attributes, or what stands at the end of a chain."""
        if self.peek() == "(":
            self.take()
            value = self.sum()
            while self.peek() == "||":
                self.take()
                other = self.sum()
                value = value if value not in (None, "", 0, False) else other
            self.take(")")
            return value
        if self.peek() == "[":
            return self.mapped()
        if self.tokens[self.place : self.place + 1] and self.tokens[self.place][0] == "string":
            return self.string()
        self.take("document")
        return self.chain(self.view.document.root)

    def chain(self, value: Value) -> Value:
        """Steps from a value to the next."""
        while self.peek() in (".", "?.", "["):
            if self.peek() == "[":
                self.take()
                index = int(self.take())
                self.take("]")
                value = value[index] if isinstance(value, list) and index < len(value) else None
                continue
            optional = self.take() == "?."
            name = self.take()
            arguments = self.arguments()
            if value is None:
                if not optional:
                    raise AttributeError(name)
                continue
            value = self.step(value, name, arguments)
        return value

    def arguments(self) -> list[str] | None:
        """The texts between brackets, or None without brackets."""
        if self.peek() != "(":
            return None
        self.take()
        values = []
        while self.peek() != ")":
            values.append(self.string())
            if self.peek() == ",":
                self.take()
        self.take()
        return values

    def step(self, value: Value, name: str, arguments: list[str] | None) -> Value:
        """One property or call."""
        if name == "toString" and arguments == []:
            return shown(value)
        if not isinstance(value, Element):
            raise NotKnown(f"not a known locator near '{name}'")
        if arguments is not None and len(arguments) == 1:
            if name in ("querySelector", "querySelectorAll"):
                elements = self.view.select(value, arguments[0])
                return elements if name == "querySelectorAll" else next(iter(elements), None)
            if name == "getAttribute":
                return value.attributes.get(arguments[0].lower())
        if arguments is None and name in PROPERTIES:
            return PROPERTIES[name](value, self.view)
        raise NotKnown(f"not a known locator near '{name}'")

    def mapped(self) -> str:
        """Attributes of a list of elements, joined."""
        for sign in ("[", "..."):
            self.take(sign)
        self.take("document")
        elements = self.chain(self.view.document.root)
        for sign in ("]", ".", "map", "("):
            self.take(sign)
        name = self.take()
        self.take("=>")
        attributes = []
        while True:
            for sign in (name, ".", "getAttribute", "("):
                self.take(sign)
            attributes.append(self.string())
            self.take(")")
            if self.take("||", ")") == ")":
                break
        for sign in (".", "join", "("):
            self.take(sign)
        joint = self.string()
        self.take(")")
        if not isinstance(elements, list):
            raise TypeError("no list")
        return joint.join(next((e.attributes[a] for a in attributes if e.attributes.get(a)), "") for e in elements)


def inner_text(element: Element, view: LocatedPage) -> str:
    """The text as it is shown: a line for every block, a tab between cells."""
    parts: list[str] = []

    def add(here: Element, preformatted: bool) -> None:
        for child in here.children:
            if isinstance(child, str):
                parts.append(child if preformatted else re.sub(r"[ \t\r\n\f]+", " ", child))
                continue
            style = view.styles.of(child)
            if child.tag in NEVER_SHOWN or is_hidden(child, style) or child.tag in ("select", "textarea", "input"):
                continue
            if child.tag == "br":
                parts.append("\n")
                continue
            block = style.get("display", "block" if child.tag in BLOCK else "") in ("block", "flex", "grid")
            cell = child.tag in ("td", "th")
            if block and not cell:
                parts.append("\0" * (2 if child.tag == "p" else 1))
            add(child, preformatted or child.tag == "pre")
            if cell:
                parts.append("\t")
            elif block:
                parts.append("\0" * (2 if child.tag == "p" else 1))

    add(element, element.tag == "pre")
    text = re.sub(r"\t(?= *\0)", "", "".join(parts))
    text = re.sub(r" *(\0+) *", r"\1", text).strip("\0 \n\t")
    text = re.sub(r"\0+", lambda match: "\n\n" if "\0\0" in match[0] else "\n", text)
    return re.sub(r" {2,}", " ", text) if element.tag != "pre" else text


def value_of(element: Element, view: LocatedPage) -> Value:
    """The `value` of a control."""
    if element.tag == "select":
        chosen = view.state.options(element)
        return next((option_value(option) for option in element.elements() if option in chosen), "")
    if element.tag == "option":
        return option_value(element)
    if element.tag in ("input", "textarea", "button"):
        value = view.state.value(element)
        boxes = element.attributes.get("type", "").lower() in ("checkbox", "radio")
        return "on" if boxes and "value" not in element.attributes else value
    return None


def selected_index(element: Element, view: LocatedPage) -> Value:
    """Which option of a select is chosen."""
    options = [option for option in element.elements() if option.tag == "option"]
    chosen = view.state.options(element)
    return next((index for index, option in enumerate(options) if option in chosen), -1)


def child_element(element: Element, last: bool) -> Element | None:
    """The first or last element in another."""
    inside = [child for child in element.children if isinstance(child, Element)]
    return inside[-1 if last else 0] if inside else None


def last_child(element: Element, view: LocatedPage) -> Value:
    """The last child, an element or (as an element that holds it) a text."""
    if not element.children:
        return None
    last = element.children[-1]
    if isinstance(last, Element):
        return last
    text = Element("#text", {}, element, 0)
    text.children.append(last)
    return text


PROPERTIES: dict[str, Callable[[Element, LocatedPage], Value]] = {
    "outerText": inner_text,
    "innerText": inner_text,
    "textContent": lambda element, view: element.text(),
    "value": value_of,
    "checked": lambda element, view: view.state.is_checked(element),
    "selectedIndex": selected_index,
    "firstElementChild": lambda element, view: child_element(element, last=False),
    "lastElementChild": lambda element, view: child_element(element, last=True),
    "lastChild": last_child,
    "href": lambda element, view: element.attributes.get("href"),
    "id": lambda element, view: element.attributes.get("id", ""),
    "className": lambda element, view: element.attributes.get("class", ""),
    "innerHTML": lambda element, view: "".join(
        serialise(child) if isinstance(child, Element) else child for child in element.children
    ),
    "outerHTML": lambda element, view: serialise(element),
}
