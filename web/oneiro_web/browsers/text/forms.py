"""HTML forms without a browser: which controls are sent, what stops them, and where they go."""

from __future__ import annotations

import re
from urllib.parse import quote_plus

from oneiro_web.browsers.text.document import Document, Element
from oneiro_web.browsers.text.state import State, int_or, is_disabled

CONTROLS = ("input", "select", "textarea", "button")
TEXT_TYPES = frozenset(("text", "search", "email", "url", "tel", "password", "number", "date", "month", "week", "time"))
"""Inputs that are typed into; Enter in one of them sends the form."""
EMAIL = re.compile(r"[a-zA-Z0-9.!#$%&'*+/=?^_`{|}~-]+@[a-zA-Z0-9-]+(\.[a-zA-Z0-9-]+)*")
MAX_PATTERN_CHARS = 200
MAX_MATCHED_CHARS = 1000
REPEATED_GROUP = re.compile(r"\)[*+{?]")


def kind(element: Element) -> str:
    """The type of an input; the tag of other elements."""
    if element.tag == "input":
        return element.attributes.get("type", "text").lower() or "text"
    if element.tag == "button":
        given = element.attributes.get("type", "submit").lower()
        return given if given in ("button", "reset") else "submit"
    return element.tag


def is_text(element: Element) -> bool:
    """Whether text can be typed into it."""
    if element.tag == "textarea":
        return True
    kind_of_field = kind(element)
    return element.tag == "input" and (kind_of_field in TEXT_TYPES or kind_of_field not in OTHER_TYPES)


OTHER_TYPES = frozenset(("checkbox", "radio", "submit", "reset", "button", "image", "file", "hidden", "range", "color"))


def is_editable(element: Element) -> bool:
    """Whether a person can change its text."""
    return is_text(element) and "readonly" not in element.attributes and not is_disabled(element)


def owner(control: Element, document: Document) -> Element | None:
    """The form a control belongs to."""
    name = control.attributes.get("form")
    if name is not None:
        form = document.ids.get(name)
        return form if form is not None and form.tag == "form" else None
    return control.closest("form")


def controls(form: Element, document: Document) -> list[Element]:
    """The controls of a form in document order."""
    return [element for element in document.elements if element.tag in CONTROLS and owner(element, document) is form]


def default_button(form: Element, document: Document) -> Element | None:
    """The button that Enter presses."""
    for element in controls(form, document):
        if element.tag in ("input", "button") and kind(element) in ("submit", "image"):
            return element
    return None


def entries(form: Element, document: Document, state: State, button: Element | None) -> list[tuple[str, str]]:
    """Names and values that are sent."""
    pairs: list[tuple[str, str]] = []
    for element in controls(form, document):
        name, what = element.attributes.get("name", ""), kind(element)
        if not name or is_disabled(element) or element.closest("datalist") is not None:
            continue
        if what in ("submit", "image") or element.tag == "button":
            if element is button and what != "image":
                pairs.append((name, element.attributes.get("value", "")))
        elif what in ("checkbox", "radio"):
            if state.is_checked(element):
                pairs.append((name, element.attributes.get("value", "on")))
        elif what == "select":
            chosen = state.options(element)
            for option in element.elements():
                if option in chosen and not is_disabled(option):
                    pairs.append((name, option_value(option)))
        elif what not in ("reset", "button", "file"):
            pairs.append((name, re.sub(r"\r\n|\r|\n", "\r\n", state.value(element))))
    return pairs


def option_value(option: Element) -> str:
    """What choosing the option sends."""
    value = option.attributes.get("value")
    return " ".join(option.text().split()) if value is None else value


def encode(pairs: list[tuple[str, str]]) -> str:
    """`application/x-www-form-urlencoded` as browsers write it."""
    return "&".join(f"{_quote(key)}={_quote(value)}" for key, value in pairs)


def _quote(text: str) -> str:
    return quote_plus(text, safe="*").replace("~", "%7E")


def refusal(form: Element, document: Document, state: State) -> tuple[Element, str] | None:
    """The first control that a browser would not send, and what it says there."""
    groups: dict[str, list[Element]] = {}
    members = controls(form, document)
    for element in members:
        if kind(element) == "radio":
            groups.setdefault(element.attributes.get("name", ""), []).append(element)
    for element in members:
        if is_disabled(element) or "readonly" in element.attributes or element.tag == "button":
            continue
        message = complaint(element, state, groups)
        if message:
            return element, message
    return None


def complaint(element: Element, state: State, groups: dict[str, list[Element]]) -> str:
    """Chromium's words for what is wrong with a control, or ''."""
    attributes, what = element.attributes, kind(element)
    required = "required" in attributes
    if what == "checkbox":
        missing = required and not state.is_checked(element)
        return "Please check this box if you want to proceed." if missing else ""
    if what == "radio":
        group = groups.get(attributes.get("name", ""), [element])
        wanted = any("required" in one.attributes for one in group)
        return "" if not wanted or any(map(state.is_checked, group)) else "Please select one of these options."
    if what == "select":
        chosen = [option_value(option) for option in state.options(element)]
        return "Please select an item in the list." if required and not any(chosen) else ""
    if not is_text(element):
        return ""
    value = state.value(element)
    if not value:
        return "Please fill out this field." if required else ""
    return shape(element, what, value, edited=element in state.values)


def shape(element: Element, what: str, value: str, edited: bool) -> str:
    """What is wrong with a text that is not empty."""
    attributes = element.attributes
    if what == "email" and not EMAIL.fullmatch(value):
        if "@" not in value:
            return f"Please include an '@' in the email address. '{value}' is missing an '@'."
        if value.endswith("@"):
            return f"Please enter a part following '@'. '{value}' is incomplete."
        if value.startswith("@"):
            return f"Please enter a part followed by '@'. '{value}' is incomplete."
        return "Please enter an email address."
    if what == "url" and not re.match(r"[a-zA-Z][a-zA-Z0-9+.-]*:\S", value):
        return "Please enter a URL."
    if what == "number":
        return number_complaint(attributes, value)
    least = int_or(attributes.get("minlength", ""), 0)
    if edited and len(value) < least:
        plural = "" if len(value) == 1 else "s"
        using = f"(you are currently using {len(value)} character{plural})"
        return f"Please lengthen this text to {least} characters or more {using}."
    pattern = attributes.get("pattern", "")
    if pattern and not fits(pattern, value):
        return "Please match the requested format."
    return ""


def number_complaint(attributes: dict[str, str], value: str) -> str:
    """What is wrong with a number."""
    try:
        number = float(value)
    except ValueError:
        return "Please enter a number."
    limits = {}
    for name in ("min", "max"):
        try:
            limits[name] = float(attributes.get(name, ""))
        except ValueError:
            continue
    if "min" in limits and number < limits["min"]:
        return f"Value must be greater than or equal to {attributes['min']}."
    if "max" in limits and number > limits["max"]:
        return f"Value must be less than or equal to {attributes['max']}."
    step = attributes.get("step", "1")
    if step == "any":
        return ""
    try:
        size = float(step)
    except ValueError:
        size = 1.0
    base = limits.get("min", 0.0)
    ratio = (number - base) / size if size > 0 else 0.0
    if abs(ratio - round(ratio)) > 1e-6:
        low, high = base + size * int(ratio // 1), base + size * (int(ratio // 1) + 1)
        return f"Please enter a valid value. The two nearest valid values are {low:g} and {high:g}."
    return ""


def fits(pattern: str, value: str) -> bool:
    """Whether a text has the form a page asks for. Patterns that could take for ever are not asked."""
    if len(pattern) > MAX_PATTERN_CHARS or len(value) > MAX_MATCHED_CHARS or REPEATED_GROUP.search(pattern):
        return True
    try:
        return re.fullmatch(pattern, value) is not None
    except (re.error, OverflowError):
        return True
