"""HTML as a light tree of elements: parsed by Lexbor, then read from its normal form, which is quick in Python."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from html import escape, unescape
from typing import NamedTuple

from selectolax.lexbor import LexborHTMLParser

DEEPEST = 150
"""Elements nested deeper become children of the deepest one (Chromium does so at 512)."""

VOID = frozenset(
    ("area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "param", "source", "track", "wbr")
)
RAW = re.compile(
    r"<(script|style|xmp|iframe|noembed|noframes|noscript|plaintext|template)\b"
    r"([^>\"]*(?:\"[^\"]*\"[^>\"]*)*)>(.*?)</\1>|<!--.*?-->",
    re.DOTALL,
)
"""What holds no elements of the page: it is taken out first."""
TOKEN = re.compile(r"<(/?[a-zA-Z][^\s/>]*[^>\"]*(?:\"[^\"]*\"[^>\"]*)*)>([^<]*)")
"""A tag of the normal form and the text after it."""
NAMED = re.compile(r"(/?)([a-zA-Z][^\s/>]*)(.*)", re.DOTALL)
"""What stands between its brackets: perhaps a slash, its name, its attributes."""
LARGE = 1 << 16
"""Larger pages are looked over before they are parsed: the parser's time grows with the square of some things."""
MAX_TAG_CHARS = 1 << 14  # longer tags lose their attributes
MOST_OPEN = 2000
WRITTEN_TAG = re.compile(r"<(/?)([a-zA-Z][a-zA-Z0-9]*)(?:[^>\"']|\"[^\"]*\"|'[^']*')*>")
NOT_NESTED = frozenset(
    ("dd", "dt", "li", "option", "optgroup", "p", "rb", "rp", "rt", "tbody", "td", "tfoot", "th", "thead", "tr")
)
"""Elements that end by themselves where the next one begins."""
ATTRIBUTE = re.compile(r'([^\s="/>]+)(?:="([^"]*)")?')
NOT_PLAIN = re.compile(r"\b(?:aria-|role|hidden|style=|title=|disabled)")
MARKS = ("id", "autofocus", "aria-labelledby")
"""Attributes by which elements are found later."""
NOTED = frozenset(("base", "label", "link", "title"))
"""Elements that are found later by their tag."""
INDEX = "data-oneiro-index"
MOST_TAGS = 20_000  # different ones that a process remembers, about 300 bytes each


Key = tuple[str, str, str]
"""Tag, class and id: all that a selector reads of an element."""


class Tag(NamedTuple):
    """A tag as it is written, without its place."""

    closing: bool
    name: str
    attributes: dict[str, str]
    plain: bool
    key: Key
    noted: bool
    """Its element is looked for later."""
    void: bool


class Element:
    """An element of a page. It is never changed: what a person does to it is kept in a `State`."""

    __slots__ = ("attributes", "children", "key", "order", "parent", "plain", "tag")

    def __init__(
        self,
        tag: str,
        attributes: dict[str, str],
        parent: Element | None,
        order: int,
        plain: bool = False,
        key: Key = ("", "", ""),
    ) -> None:
        self.tag = tag
        self.attributes = attributes
        self.children: list[Element | str] = []
        self.parent = parent
        self.order = order
        self.plain = plain
        """None of its attributes changes its role, its name or whether it is shown."""
        self.key = key

    def elements(self) -> Iterator[Element]:
        """The elements below this one in document order."""
        stack = [child for child in reversed(self.children) if isinstance(child, Element)]
        while stack:
            element = stack.pop()
            yield element
            stack.extend([child for child in reversed(element.children) if isinstance(child, Element)])

    def closest(self, *tags: str) -> Element | None:
        """This element or the nearest one around it with one of the tags."""
        element: Element | None = self
        while element is not None and element.tag not in tags:
            element = element.parent
        return element

    def text(self) -> str:
        """All text in it, as it is written."""
        parts: list[str] = []
        stack: list[Element | str] = [self]
        while stack:
            item = stack.pop()
            if isinstance(item, str):
                parts.append(item)
            else:
                stack.extend(reversed(item.children))
        return "".join(parts)


class Document:
    """A parsed page."""

    def __init__(self, html: str, most_elements: int) -> None:
        self.root = Element("#document", {}, None, 0)
        self.elements = [self.root]
        self.ids: dict[str, Element] = {}
        self.cut = False
        self.labels: list[Element] = []
        self.links: list[Element] = []
        """Those to style sheets."""
        self.autofocus: Element | None = None
        self.referenced: set[str] = set()
        """Ids that `aria-labelledby` points at."""
        self.title, self._titled = "", False
        self.base = ""
        """What its first `base` says that links are relative to."""
        self._read(LexborHTMLParser(html if len(html) < LARGE else tame(html)).html or "", most_elements)

    def _read(self, html: str, most_elements: int) -> None:
        self.styles = [match[3] for match in RAW.finditer(html) if match[1] == "style"]
        here, depth, count = self.root, 0, 1
        elements, noted = self.elements, list[Element]()
        for (closing, tag, attributes, plain, key, is_noted, is_void), text in tokens(RAW.sub(_empty, html)):
            if closing:
                if depth <= DEEPEST:
                    here = here.parent or here
                depth -= 1
            else:
                element = Element(tag, attributes, here, count, plain, key)
                elements.append(element)
                here.children.append(element)
                count += 1
                if is_noted:
                    noted.append(element)
                if not is_void:
                    depth += 1
                    if depth <= DEEPEST:
                        here = element
                if count > most_elements:
                    self.cut = True
                    break
            if text:
                here.children.append(unescape(text) if "&" in text else text)
        for element in noted:
            self._note(element)

    def _note(self, element: Element) -> None:
        """Keep an element that is looked for later."""
        tag, attributes = element.tag, element.attributes
        if "id" in attributes:
            self.ids.setdefault(attributes["id"], element)
        if "autofocus" in attributes and self.autofocus is None:
            self.autofocus = element
        if tag == "label":
            self.labels.append(element)
        elif "aria-labelledby" in attributes:
            self.referenced.update(attributes["aria-labelledby"].split())
        if tag == "link" and "stylesheet" in attributes.get("rel", "").lower():
            self.links.append(element)
        elif tag == "base":
            self.base = self.base or attributes.get("href", "")
        elif tag == "title" and not self._titled and element.closest("svg") is None:
            self.title, self._titled = " ".join(element.text().split()), True

    def find(self, *tags: str) -> list[Element]:
        """All elements with one of the tags."""
        return [element for element in self.elements if element.tag in tags]


def tame(html: str) -> str:
    """A large page without endless tags and endless nesting."""
    depth = 0

    def check(match: re.Match[str]) -> str:
        nonlocal depth
        tag = match[2].lower()
        if tag in VOID or tag in NOT_NESTED:
            pass
        elif match[1]:
            depth = max(0, depth - 1)
        elif depth >= MOST_OPEN:
            return ""
        else:
            depth += 1
        return match[0] if len(match[0]) <= MAX_TAG_CHARS else f"<{match[1]}{tag}>"

    return WRITTEN_TAG.sub(check, html)


def tokens(html: str) -> Iterable[tuple[Tag, str]]:
    """The tags of the normal form, each with the text after it."""
    if len(html) < LARGE:
        pairs: list[tuple[Tag, str]] = []
        for piece in html.split("<")[1:]:
            written, bracket, text = piece.partition(">")
            tag = read_whole_tag(written)
            if tag is not None and bracket:
                pairs.append((tag, text))
            elif not written.startswith("!"):
                break
        else:
            return pairs
    # A bracket stands in a name, or in an attribute where the parser does not escape it: only the whole expression
    # tells where such a tag ends. Large pages are read bit by bit, since they may be cut.
    return ((read_tag(match[1]), match[2]) for match in TOKEN.finditer(html))


@lru_cache(maxsize=MOST_TAGS)
def read_tag(written: str) -> Tag:
    """What stands between the brackets of a tag. Pages repeat their tags, so each is read once."""
    match = NAMED.match(written)
    assert match is not None
    slash, tag, rest = match.groups()
    attributes = {key: unescape(value) if "&" in value else value for key, value in ATTRIBUTE.findall(rest)}
    is_noted = tag in NOTED or any(mark in attributes for mark in MARKS)
    key = tag, attributes.get("class", ""), attributes.get("id", "")
    return Tag(bool(slash), tag, attributes, NOT_PLAIN.search(rest) is None, key, is_noted, tag in VOID)


@lru_cache(maxsize=MOST_TAGS)
def read_whole_tag(written: str) -> Tag | None:
    """The same of what stands before the first `>`; None where the tag does not end there, or is none."""
    is_whole = written.count('"') % 2 == 0 and NAMED.match(written) is not None
    return read_tag(written) if is_whole else None


def _empty(match: re.Match[str]) -> str:
    """A raw element without its text; nothing of a comment."""
    return f"<{match[1]}{match[2]}></{match[1]}>" if match[1] else ""


def serialise(root: Element, changed: dict[Element, dict[str, str | None]] | None = None, index: bool = False) -> str:
    """The element as HTML. `changed` overrides attributes (None drops one); `index` adds each element's order."""
    parts: list[str] = []
    stack: list[Element | str | tuple[str]] = [root]
    while stack:
        item = stack.pop()
        if isinstance(item, tuple):
            parts.append(item[0])
            continue
        if isinstance(item, str):
            parts.append(escape(item, quote=False))
            continue
        attributes: dict[str, str | None] = {**item.attributes, **(changed or {}).get(item, {})}
        if index:
            attributes[INDEX] = str(item.order)
        if item.tag != "#document":
            shown = "".join(f' {key}="{escape(value)}"' for key, value in attributes.items() if value is not None)
            parts.append(f"<{item.tag}{shown}>")
            if item.tag not in VOID:
                stack.append((f"</{item.tag}>",))
            if item.tag in ("pre", "textarea") and item.children and str(item.children[0])[:1] == "\n":
                parts.append("\n")
        stack.extend(reversed(item.children))
    return "".join(parts)
