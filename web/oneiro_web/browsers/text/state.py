"""What a person did to a page, and which of its elements are shown, disabled and labelled."""

from __future__ import annotations

from dataclasses import dataclass, field

from oneiro_web.browsers.text.document import Document, Element


@dataclass
class State:
    """What a person did to a page: it lies over the document, which stays as it is."""

    values: dict[Element, str] = field(default_factory=dict)
    checked: dict[Element, bool] = field(default_factory=dict)
    chosen: dict[Element, frozenset[Element]] = field(default_factory=dict)
    """The chosen options of a select."""
    opened: dict[Element, bool] = field(default_factory=dict)
    focus: Element | None = None

    def value(self, element: Element) -> str:
        """What stands in an input or a text area."""
        if element in self.values:
            return self.values[element]
        if element.tag == "textarea":
            return element.text()
        return element.attributes.get("value", "")

    def is_checked(self, element: Element) -> bool:
        """Whether a checkbox or radio button is on."""
        return self.checked.get(element, "checked" in element.attributes)

    def is_open(self, element: Element) -> bool:
        """Whether a `details` shows its contents."""
        return self.opened.get(element, "open" in element.attributes)

    def options(self, select: Element) -> frozenset[Element]:
        """The chosen options of a select, as a browser begins."""
        if select in self.chosen:
            return self.chosen[select]
        options = [element for element in select.elements() if element.tag == "option"]
        chosen = [option for option in options if "selected" in option.attributes]
        if "multiple" in select.attributes:
            return frozenset(chosen)
        if not chosen and options and not int_or(select.attributes.get("size", ""), 1) > 1:
            chosen = [next((option for option in options if "disabled" not in option.attributes), options[0])]
        return frozenset(chosen[-1:])


def int_or(text: str, default: int) -> int:
    """A whole number from an attribute."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 9 else default


def is_disabled(element: Element) -> bool:
    """Whether a control takes no input: its own attribute, or a fieldset around it (not its legend)."""
    if "disabled" in element.attributes:
        return element.tag in ("input", "button", "select", "textarea", "option", "optgroup", "fieldset")
    inside, around = element, element.parent
    while around is not None:
        if around.tag == "fieldset" and "disabled" in around.attributes and inside.tag != "legend":
            return True
        if around.tag in ("optgroup", "select") and "disabled" in around.attributes:
            return True
        inside, around = around, around.parent
    return False


LABELABLE = frozenset(("button", "input", "meter", "output", "progress", "select", "textarea"))


def labelled(label: Element, document: Document) -> Element | None:
    """The control of a label."""
    name = label.attributes.get("for")
    if name is not None:
        control = document.ids.get(name)
        return control if control is not None and control.tag in LABELABLE else None
    return next((element for element in label.elements() if element.tag in LABELABLE), None)


def is_hidden(element: Element, style: dict[str, str]) -> bool:
    """Whether the element and all in it are neither drawn nor in the tree."""
    attributes = element.attributes
    return (
        ("hidden" in attributes and style.get("display") is None)
        or style.get("display") == "none"
        or style.get("visibility") == "hidden"
        or (element.tag == "input" and attributes.get("type", "").lower() == "hidden")
        or (element.tag == "dialog" and "open" not in attributes)
    )
