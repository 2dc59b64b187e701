"""HTML as a light tree of elements: parsed by Lexbor, then read from its normal form, which is quick to walk in Python."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import escape, unescape

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
TOKEN = re.compile(r"<(/?)([a-zA-Z][^\s/>]*)([^>\"]*(?:\"[^\"]*\"[^>\"]*)*)>([^<]*)")
"""A tag of the normal form and the text after it."""
ATTRIBUTE = re.compile(r'([^\s="/>]+)(?:="([^"]*)")?')
INDEX = "data-oneiro-index"


class Element:
    """An element of a page. It is never changed: what a person does to it is kept in a `State`."""

    __slots__ = ("attributes", "children", "order", "parent", "tag")

    def __init__(self, tag: str, attributes: dict[str, str], parent: Element | None, order: int) -> None:
        self.tag = tag
        self.attributes = attributes
        self.children: list[Element | str] = []
        self.parent = parent
        self.order = order

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
        self._read(LexborHTMLParser(html).html or "", most_elements)
        self.links = [
            element
            for element in self.elements
            if element.tag == "link" and "stylesheet" in element.attributes.get("rel", "").lower()
        ]
        self.title = ""
        for element in self.elements:
            if element.tag == "title" and element.closest("svg") is None:
                self.title = " ".join(element.text().split())
                break

    def _read(self, html: str, most_elements: int) -> None:
        self.styles = [found[3] for found in RAW.finditer(html) if found[1] == "style"]
        here, depth, count = self.root, 0, 1
        elements, ids = self.elements, self.ids
        for closing, tag, written, text in TOKEN.findall(RAW.sub(_empty, html)):
            if closing:
                if depth <= DEEPEST:
                    here = here.parent or here
                depth -= 1
            else:
                attributes = {}
                if written:
                    for key, value in ATTRIBUTE.findall(written):
                        attributes[key] = unescape(value) if "&" in value else value
                element = Element(tag, attributes, here, count)
                elements.append(element)
                here.children.append(element)
                count += 1
                if "id" in attributes:
                    ids.setdefault(attributes["id"], element)
                if tag not in VOID:
                    depth += 1
                    if depth <= DEEPEST:
                        here = element
                if count > most_elements:
                    self.cut = True
                    return
            if text:
                here.children.append(unescape(text) if "&" in text else text)

    def find(self, *tags: str) -> list[Element]:
        """All elements with one of the tags."""
        return [element for element in self.elements if element.tag in tags]


def _empty(found: re.Match[str]) -> str:
    """A raw element without its text; nothing of a comment."""
    return f"<{found[1]}{found[2]}></{found[1]}>" if found[1] else ""


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
