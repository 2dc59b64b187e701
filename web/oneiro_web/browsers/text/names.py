"""The accessible names of elements: from labels, attributes, or what is in them."""

from __future__ import annotations

import re

from oneiro_web.browsers.text.document import Document, Element
from oneiro_web.browsers.text.state import labelled
from oneiro_web.page import Node

SPACES = re.compile(r"[ \t\n\r\f]+")
FROM_CONTENTS = frozenset(
    (
        "link", "button", "heading", "cell", "columnheader", "rowheader", "LayoutTableCell", "term", "option", "tab",
        "DisclosureTriangle", "menuitem", "treeitem", "checkbox", "radio", "switch", "tooltip", "gridcell",
    )
)  # fmt: skip
"""Roles that are named by what is in them."""
NEVER_CONTRIBUTE = frozenset(
    (
        "form", "navigation", "article", "banner", "complementary", "blockquote", "figure", "status", "alert", "note",
        "main", "search", "table", "dialog", "separator", "log", "Date", "DateTime", "InputTime", "Canvas",
    )
)  # fmt: skip
"""Roles whose contents never become part of another element's name."""
TITLED = frozenset(("input", "select", "textarea", "img", "section", "form", "iframe", "svg", "nav", "a", "button"))
"""Elements that take their `title` as a name when nothing else names them."""
BREAK = ""
"""In what names an element: a place where a space is wanted between two words."""


class Names:
    """The names of one page. Whoever walks over it fills `collected` with what stands in elements that name others."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.labels: dict[Element, list[Element]] = {}
        self.collected: dict[Element, list[Node | str]] = {}
        for label in document.labels:
            control = labelled(label, document)
            if control is not None:
                self.labels.setdefault(control, []).append(label)

    def of(self, node: Node, element: Element, items: list[Node | str] | None) -> str:
        """The accessible name."""
        attributes = element.attributes
        if "aria-labelledby" in attributes:
            parts = [self.text_of(name) for name in attributes["aria-labelledby"].split()]
            if any(parts):
                return " ".join(part for part in parts if part)
        label = attributes.get("aria-label", "").strip()
        if label:
            return attributes["aria-label"]
        tag = element.tag
        if tag in ("input", "select", "textarea", "meter", "progress", "output"):
            named = self.control_name(element)
            if named:
                return named
        elif tag in ("img", "iframe", "svg"):
            named = attributes.get("alt", "") if tag == "img" else ""
            if tag == "svg":
                named = next((e.text().strip() for e in element.elements() if e.tag == "title"), "")
            return named or attributes.get("title", "")
        elif tag == "fieldset" or tag == "table":
            wanted = "legend" if tag == "fieldset" else "caption"
            for child in element.children:
                if isinstance(child, Element) and child.tag == wanted:
                    return join(self.collected.get(child, []))
        elif tag == "optgroup":
            return attributes.get("label", "")
        elif tag == "abbr":
            return attributes.get("title", "")
        if items is not None and node.role in FROM_CONTENTS:
            named = join(items)
            if named.strip():
                return named
        return attributes.get("title", "") if tag in TITLED else ""

    def control_name(self, element: Element) -> str:
        """The name of a control from its labels, its button text, its placeholder or its title."""
        attributes = element.attributes
        kind = attributes.get("type", "text").lower() if element.tag == "input" else element.tag
        labels = self.labels.get(element)
        if labels:
            parts = [join(self.collected.get(label, [])) for label in labels]
            if any(parts):
                return " ".join(part for part in parts if part)
        if kind in ("submit", "reset", "button"):
            default = {"submit": "Submit", "reset": "Reset"}.get(kind, "")
            return attributes.get("value", default) or attributes.get("title", "")
        if kind == "image":
            return attributes.get("alt") or attributes.get("value") or attributes.get("title") or "Submit"
        return attributes.get("title", "") or attributes.get("placeholder", "")

    def text_of(self, name: str) -> str:
        """The text that `aria-labelledby` points at, shown or not."""
        element = self.document.ids.get(name)
        if element is None:
            return ""
        label = element.attributes.get("aria-label", "").strip()
        if label:
            return label
        if element in self.collected:
            return join(self.collected[element]).strip()
        return " ".join(element.text().split())


def join(items: list[Node | str]) -> str:
    """A name from its pieces: words of one line as they stand, a space where boxes meet."""
    if len(items) == 1 and not isinstance(items[0], str) and "\n" not in items[0].name:
        return items[0].name
    name, wanted = "", False
    for item in items:
        text = item if isinstance(item, str) else item.name
        if not text:
            wanted = wanted or item is BREAK
            continue
        if wanted and name and not name[-1].isspace() and not text[0].isspace():
            name += " "
        name += text
        wanted = False
    return SPACES.sub(" ", name)
