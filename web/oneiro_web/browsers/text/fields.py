"""What typing, choosing, arrow keys and Tab do to the controls of a page in the text browser."""

from __future__ import annotations

import re

from oneiro_web.browsers.base import Failed
from oneiro_web.browsers.text import forms
from oneiro_web.browsers.text.controls import option_name
from oneiro_web.browsers.text.document import Element
from oneiro_web.browsers.text.loading import Loaded
from oneiro_web.browsers.text.state import is_disabled, labelled

NUMBER_KEYS = frozenset("0123456789+-.eE")


def write(page: Loaded, element: Element, text: str, clear: bool) -> None:
    """Put text at the end of a field, or in place of what was there."""
    state, what = page.state, forms.kind(element)
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


def choose(page: Loaded, element: Element, text: str) -> None:
    """Pick an option by its words."""
    if element.tag == "option":
        element = element.closest("select") or element
    elif element.tag == "label":
        element = labelled(element, page.rendering.document) or element
    if element.tag != "select" or is_disabled(element):
        raise Failed("That element is not a list of options to choose from.")
    wanted = " ".join(text.split()).casefold()
    options = [option for option in element.elements() if option.tag == "option" and not is_disabled(option)]
    named = [(option, option_name(option).casefold()) for option in options]
    option_named = next((option for option, name in named if name == wanted), None)
    option_named = option_named or next((option for option, name in named if wanted in name), None)
    if option_named is None:
        raise Failed(f"No option contains '{text}'.")
    page.state.focus = element
    pick(page, element, option_named)


def pick(page: Loaded, select: Element, option: Element) -> None:
    """Choose an option; in a list of several, it is added or taken away."""
    state = page.state
    if is_disabled(option) or is_disabled(select):
        return
    several = "multiple" in select.attributes
    state.chosen[select] = state.options(select) ^ {option} if several else frozenset([option])


def turn_on(page: Loaded, radio: Element) -> None:
    """A radio button goes on and the others of its group go off."""
    document, state = page.rendering.document, page.state
    name, form = radio.attributes.get("name", ""), forms.owner(radio, document)
    for other in document.find("input"):
        same = other.attributes.get("name", "") == name and forms.owner(other, document) is form
        if forms.kind(other) == "radio" and (other is radio or (name and same)):
            state.checked[other] = other is radio


def arrow(page: Loaded, focus: Element, step: int) -> None:
    """Up and down move through options, radio buttons and numbers."""
    state = page.state
    if focus.tag == "select" and "multiple" not in focus.attributes:
        options = [e for e in focus.elements() if e.tag == "option" and not is_disabled(e)]
        known = state.options(focus)
        chosen = next((index for index, e in enumerate(options) if e in known), -1)
        if 0 <= chosen + step < len(options):
            state.chosen[focus] = frozenset([options[chosen + step]])
    elif forms.kind(focus) == "radio":
        name = focus.attributes.get("name")
        group = [e for e in page.rendering.document.find("input") if e.attributes.get("name") == name]
        group = [e for e in group if forms.kind(e) == "radio" and not is_disabled(e)]
        state.focus = group[(group.index(focus) + step) % len(group)]
        turn_on(page, state.focus)
    elif forms.kind(focus) == "number" and forms.is_editable(focus):
        value = state.value(focus)
        base = float(value) if re.fullmatch(r"-?\d{1,15}(\.\d{1,15})?", value) else 0.0
        state.values[focus] = f"{base - step:g}"


def move_focus(page: Loaded, step: int) -> None:
    """To the next thing that takes keys."""
    document, state = page.rendering.document, page.state
    order = [element for element in document.elements if takes_focus(page, element)]
    if not order:
        return
    if state.focus in order:
        place = order.index(state.focus) + step
        state.focus = order[place] if 0 <= place < len(order) else None
    else:
        state.focus = order[0 if step > 0 else -1]


def takes_focus(page: Loaded, element: Element) -> bool:
    """Whether Tab stops here."""
    attributes = element.attributes
    if attributes.get("tabindex", "").startswith("-") or element.closest("head", "template") is not None:
        return False
    if element.tag in ("input", "select", "textarea", "button"):
        if is_disabled(element) or forms.kind(element) == "hidden":
            return False
        if forms.kind(element) == "radio" and not page.state.is_checked(element):
            group = [e for e in page.rendering.document.find("input") if forms.kind(e) == "radio"]
            same = [e for e in group if e.attributes.get("name") == attributes.get("name")]
            return not any(map(page.state.is_checked, same))
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
        if closed and around.parent is not None and not page.state.is_open(around.parent):
            return False
        around = around.parent
    return True


def date_value(text: str) -> str:
    """A date as inputs keep it, from `2026-06-15` or `06/15/2026`; '' for anything else."""
    match = re.fullmatch(r"\s*(\d{4})-(\d\d?)-(\d\d?)\s*", text)
    if match is None:
        american = re.fullmatch(r"\s*(\d\d?)/(\d\d?)/(\d{4})\s*", text)
        if american is None:
            return ""
        year, month, day = american[3], american[1], american[2]
    else:
        year, month, day = match[1], match[2], match[3]
    return f"{year}-{int(month):02}-{int(day):02}" if 1 <= int(month) <= 12 and 1 <= int(day) <= 31 else ""
