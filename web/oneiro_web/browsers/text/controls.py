"""Nodes of controls and images: inputs with their values, menus with their options, dates with their parts."""

from __future__ import annotations

import re
from typing import Any

from oneiro_web.browsers.text.document import Element
from oneiro_web.browsers.text.names import BREAK
from oneiro_web.browsers.text.roles import ROLES, add_properties
from oneiro_web.browsers.text.state import State, int_or
from oneiro_web.page import Node

INPUTS = {
    "checkbox": "checkbox", "radio": "radio", "search": "searchbox", "number": "spinbutton", "range": "slider",
    "submit": "button", "reset": "button", "button": "button", "image": "button", "file": "button", "date": "Date",
    "month": "DateTime", "week": "DateTime", "datetime-local": "DateTime", "time": "InputTime", "color": "ColorWell",
}  # fmt: skip


def control(element: Element, state: State, disabled: bool, is_labelled: bool) -> Node | None:
    """The node of an element that is drawn as a whole: a control, an image, a frame; None if it has none.

    `disabled`: by a fieldset around it. `is_labelled`: a label names it.
    """
    tag = element.tag
    if tag == "input":
        kind = element.attributes.get("type", "text").lower()
        node = Node(element.attributes.get("role") or INPUTS.get(kind, "textbox"), "", {}, [], element)
        if "list" in element.attributes and node.role == "textbox":
            node.role = "combobox"
        fill_input(node, element, kind, state, disabled, is_labelled)
    elif tag == "select":
        node = select(element, state, disabled)
    elif tag == "textarea":
        node = Node("textbox", "", {}, [], element)
        add_properties(node, element, state, disabled)
        node.properties["required"] = "required" in element.attributes
        lines(state.value(element), element, node.children)
    else:
        role = element.attributes.get("role", "")
        if (tag == "img" and element.attributes.get("alt") == "") or role in ("presentation", "none"):
            return None
        node = Node("image" if role == "img" else role or ROLES.get(tag, ""), "", {}, [], element)
        add_properties(node, element, state, disabled)
        if tag in ("progress", "meter"):
            node.properties.update(valuemin=0, valuemax=number_or(element.attributes.get("max", ""), 1), valuetext="")
    return node


def contribution(node: Node, element: Element, state: State, is_labelled: bool) -> Node | str:
    """What a control adds to a name around it: its value, or else its name."""
    if element.tag == "select":
        chosen = state.options(element)
        return " ".join(option_name(o) for o in element.elements() if o in chosen)
    if element.tag in ("progress", "meter"):
        return element.attributes.get("value", "")
    if node.role in ("textbox", "searchbox", "spinbutton", "combobox"):
        value = state.value(element)
        return value or (BREAK if is_labelled else node)
    if node.role in ("Date", "DateTime", "InputTime", "Canvas", "slider"):
        return BREAK
    return BREAK if is_labelled else node


def fill_input(node: Node, element: Element, kind: str, state: State, disabled: bool, is_labelled: bool) -> None:
    """The properties and inner texts of an input."""
    attributes, value = element.attributes, state.value(element)
    add_properties(node, element, state, disabled)
    properties = node.properties
    if "list" in attributes and node.role == "combobox":
        properties.pop("hasPopup", None)
        properties.update(autocomplete="list", hasPopup="listbox")
    if node.role in ("checkbox", "radio"):
        properties["checked"] = "true" if state.is_checked(element) else "false"
    elif node.role == "button":
        if kind in ("submit", "reset", "button"):
            text = attributes.get("value", {"submit": "Submit", "reset": "Reset"}.get(kind, ""))
            if text:
                node.children.append(Node("StaticText", text, {}, [], element))
    elif node.role == "spinbutton":
        properties["required"] = "required" in attributes
        properties["valuemin"] = number_or(attributes.get("min", ""), 0)
        properties["valuemax"] = number_or(attributes.get("max", ""), 0)
        properties["valuetext"] = value
    elif node.role == "slider":
        properties.update(orientation="horizontal", valuemin=number_or(attributes.get("min", ""), 0))
        properties.update(valuemax=number_or(attributes.get("max", ""), 100), valuetext="")
    elif node.role == "Date":
        named = is_labelled or any(key in attributes for key in ("aria-label", "aria-labelledby", "title"))
        date_parts(node, value, named)
        return
    elif node.role in ("textbox", "combobox"):
        properties["required"] = "required" in attributes
    if node.role in ("textbox", "searchbox", "spinbutton", "combobox") and value:
        shown = "•" * len(value) if kind == "password" else value
        node.children.append(Node("StaticText", shown, {}, [], element))
    described = properties.pop("describedby", None)
    if described is not None:
        properties["describedby"] = described


def select(element: Element, state: State, disabled: bool) -> Node:
    """A menu or a list of options."""
    attributes = element.attributes
    chosen = state.options(element)
    size = int_or(attributes.get("size", ""), 0)
    if "multiple" in attributes or size > 1:
        node = Node("listbox", "", {}, [], element)
        add_properties(node, element, state, disabled)
        if "multiple" in attributes:
            node.properties["multiselectable"] = True
        node.properties.update(orientation="vertical", required="required" in attributes)
        options = node.children
    else:
        node = Node("combobox", "", {}, [], element)
        add_properties(node, element, state, disabled)
        described = node.properties.pop("describedby", None)
        node.properties.update(hasPopup="menu", expanded=False)
        if described is not None:
            node.properties["describedby"] = described
        popup = Node("MenuListPopup", "", {}, [], element)
        node.children.append(popup)
        options = popup.children
    add_options(element, options, chosen, "disabled" in node.properties)
    return node


def add_options(around: Element, out: list[Node], chosen: frozenset[Element], disabled: bool) -> None:
    """Options and their groups."""
    for child in around.children:
        if not isinstance(child, Element) or "hidden" in child.attributes:
            continue
        if child.tag == "optgroup":
            group = Node("group", child.attributes.get("label", ""), {}, [], child)
            out.append(group)
            add_options(child, group.children, chosen, disabled or "disabled" in child.attributes)
        elif child.tag == "option":
            off = disabled or "disabled" in child.attributes
            properties: dict[str, Any] = {"disabled": True} if off else {"selected": child in chosen}
            out.append(Node("option", option_name(child), properties, [], child))


def option_name(option: Element) -> str:
    """What an option shows."""
    return option.attributes.get("label") or " ".join(option.text().split())


def lines(value: str, element: Element, out: list[Node]) -> None:
    """The text of a text area: a text for every line, a break between them, one more after a last empty line."""
    if not value:
        return
    parts = value.split("\n")
    for index, part in enumerate(parts):
        if part:
            out.append(Node("StaticText", part, {}, [], element))
        if index < len(parts) - 1 or not part:
            out.append(Node("LineBreak", "\n", {}, [], element))


DATE = re.compile(r"(\d{4,6})-(\d\d)-(\d\d)")


def date_parts(node: Node, value: str, named: bool) -> None:
    """The three fields in which Chromium shows a date, and its button."""
    parts = DATE.fullmatch(value)
    year, month, day = (parts[1], parts[2], parts[3]) if parts else ("", "", "")
    focused = node.properties.pop("focused", False)
    off = {"disabled": True} if "disabled" in node.properties else {}
    for name, most, text, empty in (("Month", 12, month, "mm"), ("Day", 31, day, "dd"), ("Year", 275760, year, "yyyy")):
        held = {"focused": True} if name == "Month" and focused else {}
        properties = {**off, **held, "required": False, "valuemin": 1, "valuemax": most, "valuetext": text}
        part = Node("spinbutton", f"{name} {name}" if named else name, properties, [], node.handle)
        part.children.append(Node("StaticText", text or empty, {}, [], node.handle))
        node.children.append(part)
        if name != "Year":
            node.children.append(Node("StaticText", "/", {}, [], node.handle))
    if not off:
        node.children.append(Node("button", "Show date picker", {"hasPopup": "menu"}, [], node.handle))


def number_or(text: str, default: float) -> float:
    """A number of an attribute, whole where it is."""
    try:
        value = float(text)
    except ValueError:
        return default
    return int(value) if value == int(value) else value
