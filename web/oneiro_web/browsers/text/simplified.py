"""WebRL's observation: the page as short XML-like text, with a number on every element that can be acted on."""

from __future__ import annotations

from functools import lru_cache
from html import escape

from oneiro_web.browsers.text.document import Document, Element
from oneiro_web.browsers.text.state import State, is_disabled, is_hidden, labelled
from oneiro_web.browsers.text.styles import NEVER_SHOWN, Styles

MAX_TEXT_CHARS = 500  # of a text or an attribute; the rest is left out
CLICKABLE_TAGS = frozenset(
    ("input", "textarea", "select", "button", "a", "iframe", "video", "object", "embed", "summary")
)
CLICKABLE_ROLES = frozenset(
    ("button", "tab", "link", "checkbox", "menuitem", "menuitemcheckbox", "menuitemradio", "radio")
)
KEPT = ("title", "value", "type", "placeholder", "selected", "data-value", "data-testid", "data-label", "data-status")
"""Attributes in the order in which they are written. WebRL's `data-text` and `data-bbox` are left out."""


def is_clickable(element: Element, document: Document) -> bool:
    """Whether WebRL counts the element as one to act on, by itself."""
    attributes = element.attributes
    if element.tag in CLICKABLE_TAGS or attributes.get("role") in CLICKABLE_ROLES or "onclick" in attributes:
        return True
    if element.tag == "label":
        control = labelled(element, document)
        return control is not None and not is_disabled(control)
    if "button" in attributes.get("class", "") or "contenteditable" in attributes:
        return True
    index = attributes.get("tabindex", "")
    return index.isdigit()


def simplify(document: Document, state: State, styles: Styles) -> tuple[str, list[Element]]:
    """The text, and the elements by their numbers."""
    shown = [element for element in document.elements if element.tag in ("html", "body")]
    body = shown[-1] if shown else document.root
    clickable: set[Element] = set()
    _mark(body, document, styles, clickable)
    writer = _Writer(state, styles, clickable)
    inside = writer.element(body)
    return f"<html> {inside} </html>" if inside else "<html> </html>", writer.numbered


def _mark(element: Element, document: Document, styles: Styles, clickable: set[Element]) -> bool:
    """Find the innermost clickable elements; whether there is one at or below this one."""
    if element.tag in NEVER_SHOWN or is_hidden(element, styles.of(element)):
        return False
    below = False
    if element.tag != "select":
        for child in element.children:
            if isinstance(child, Element) and _mark(child, document, styles, clickable):
                below = True
    if not below and is_clickable(element, document):
        clickable.add(element)
        return True
    return below


class _Writer:
    def __init__(self, state: State, styles: Styles, clickable: set[Element]) -> None:
        self.state, self.styles, self.clickable = state, styles, clickable
        self.numbered: list[Element] = []
        self.options = lru_cache(maxsize=64)(state.options)
        """Every option of a list asks for the chosen ones."""

    def element(self, element: Element) -> str:
        """The element as text; only its contents where it says nothing itself; '' where there is nothing to say."""
        if element.tag in NEVER_SHOWN or element.attributes.get("aria-hidden") == "true":
            return ""
        if is_hidden(element, self.styles.of(element)):
            return ""
        number = None
        if element in self.clickable:
            number = len(self.numbered)
            self.numbered.append(element)
        attributes = self.attributes(element)
        parts: list[str] = []
        texts = False
        closed = element.tag == "details" and not self.state.is_open(element)
        for child in element.children:
            if isinstance(child, str):
                text = " ".join(child.split())[:MAX_TEXT_CHARS]
                if text and not closed and element.tag != "textarea":
                    texts = True
                    parts.append(escape(text, quote=False))
            elif not closed or child.tag == "summary":
                inside = self.element(child)
                if inside:
                    parts.append(inside)
        if number is None and not attributes and not texts and len(parts) <= 1:
            return parts[0] if parts else ""
        label = f' id="{number}"' if number is not None else ""
        contents = f" {' '.join(parts)} " if parts else " "
        return f"<{element.tag}{label}{attributes}>{contents}</{element.tag}>"

    def attributes(self, element: Element) -> str:
        """Kept attributes with what a person did to the element; a value is written once."""
        tag = element.tag
        attributes: dict[str, str] = {key: element.attributes[key] for key in KEPT if element.attributes.get(key)}
        kind = attributes.get("type", "")
        if tag == "textarea" or (tag == "input" and kind not in ("checkbox", "radio", "submit", "button", "reset")):
            attributes.pop("value", None)
            value = self.state.value(element)
            if value:
                attributes["data-value"] = value
        if tag == "input" and kind in ("checkbox", "radio"):
            attributes["data-status"] = "checked" if self.state.is_checked(element) else "not-checked"
        if tag == "select":
            chosen = self.options(element)
            names = [" ".join(option.text().split()) for option in element.elements() if option in chosen]
            if names:
                attributes["data-value"] = names[0]
        if tag == "option":
            attributes.pop("value", None)
            attributes.pop("selected", None)
            select = element.closest("select")
            if select is not None and element in self.options(select):
                attributes["data-status"] = "selected"
        written: list[str] = []
        for key in KEPT:
            value = attributes.get(key, "")[:MAX_TEXT_CHARS]
            if value and value not in written:
                written.append(value)
            else:
                attributes.pop(key, None)
        return "".join(f' {key}="{escape(attributes[key][:MAX_TEXT_CHARS])}"' for key in KEPT if key in attributes)
