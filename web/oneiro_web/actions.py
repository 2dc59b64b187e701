"""What an agent can do in a browser, as one type, and its texts in WebArena's grammar.

WebRL's grammar is in `oneiro_web.webrl_actions`.

Every text gives an `Action` or a `Malformed`, never an exception; nothing of a text is ever run.

WebArena's texts (`click [12]`) are read by its own rules: the word before the first bracket chooses, brackets are
matched greedily, text behind them is ignored. What its parser loses is kept here: `type [12] [0]` types a nought, a
`stop` answer may hold newlines, any character may be typed, and key names are put right (`Ctrl+v`). `none`, the word of
its histories, waits.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from oneiro_web.errors import WebError
from oneiro_web.page import Node, Page

MAX_ACTION_CHARS = 1 << 16
"""Characters of an action's text; a longer one is malformed."""


class Kind(StrEnum):
    """Every action that every browser carries out; `STOP` is for the world and `NOTHING` is a wait."""

    CLICK = "click"
    RIGHT_CLICK = "right_click"
    HOVER = "hover"
    TYPE = "type"
    SELECT = "select"
    PRESS = "press"
    SCROLL = "scroll"
    NEW_TAB = "new_tab"
    FOCUS_TAB = "tab_focus"
    CLOSE_TAB = "close_tab"
    GOTO = "goto"
    BACK = "go_back"
    FORWARD = "go_forward"
    NOTHING = "wait"
    STOP = "stop"


@dataclass(frozen=True)
class Action:
    """One parsed action. Fields that a kind does not use keep their defaults."""

    kind: Kind
    element: int | None = None
    """The id of a node of the page as it was last observed."""
    text: str = ""
    """What is typed, the option's text, the key combination (`Control+a`), the URL, or the answer."""
    clear: bool = False
    """TYPE: empty the field first (WebRL); without, the text is added at the end (WebArena)."""
    enter: bool = False
    """TYPE: press Enter after it."""
    tab: int = 0
    """FOCUS_TAB: the index of the tab."""
    pages: float = 0.0
    """SCROLL: viewports to move, negative for up (WebArena 1, WebRL 2/3)."""


@dataclass(frozen=True)
class Malformed:
    """A text that is no action."""

    reason: str
    """One line for the agent: what is wrong and how it is written."""


# Keys ----------------------------------------------------------------------------------------------------------------

MODIFIERS = {
    "control": "Control", "ctrl": "Control", "meta": "Control", "cmd": "Control", "command": "Control",
    "shift": "Shift", "alt": "Alt", "option": "Alt",
}  # fmt: skip
NAMED_KEYS = {
    name.lower(): name
    for name in (
        "Enter", "Tab", "Escape", "Backspace", "Delete", "Insert", "Space", "Home", "End", "PageUp", "PageDown",
        "ArrowUp", "ArrowDown", "ArrowLeft", "ArrowRight", *(f"F{number}" for number in range(1, 13)),
    )
} | {
    "return": "Enter", "esc": "Escape", "del": "Delete", "ins": "Insert", "spacebar": "Space", "pgup": "PageUp",
    "pgdn": "PageDown", "page_up": "PageUp", "page_down": "PageDown",
    "up": "ArrowUp", "down": "ArrowDown", "left": "ArrowLeft", "right": "ArrowRight",
    "arrow_up": "ArrowUp", "arrow_down": "ArrowDown", "arrow_left": "ArrowLeft", "arrow_right": "ArrowRight",
}  # fmt: skip


def normal_keys(combination: str) -> str | None:
    """`ctrl+A` -> `Control+a`: a key combination by the names that browsers know; None if a key is unknown.

    Meta means Control, as WebArena has it off macOS. A letter with Control or Alt is a lower-case one.
    """
    keys = re.fullmatch(r"(?:(.+)\+)?(\+|[^+]+)", combination.strip() or combination[:1])
    if keys is None:
        return None
    held, last = [part.strip() for part in (keys[1] or "").split("+") if keys[1]], keys[2].strip() or keys[2]
    if any(part.lower() not in MODIFIERS for part in held):
        return None
    names = list(dict.fromkeys(MODIFIERS[part.lower()] for part in held))
    if len(last) == 1 and last.isprintable():
        key = (
            "Space" if last == " " else last.lower() if {"Control", "Alt"} & {*names} and "Shift" not in names else last
        )
    else:
        key = NAMED_KEYS.get(last.lower()) or MODIFIERS.get(last.lower(), "")
    return "+".join([name for name in names if name != key] + [key]) if key else None


# Texts ---------------------------------------------------------------------------------------------------------------


def unreadable(text: str) -> str | None:
    """Why no grammar reads a text; None if they may try."""
    if not text:
        return "The action is empty."
    if len(text) > MAX_ACTION_CHARS:
        return f"The action is longer than {MAX_ACTION_CHARS:,} characters."
    return unprintable(text)


def unprintable(text: str) -> str | None:
    """Why a text cannot be typed anywhere; None if it can."""
    return "The action holds half a character." if any("\ud800" <= char <= "\udfff" for char in text) else None


def short(text: str) -> str:
    """A text as a message quotes it."""
    return text if len(text) <= 60 else text[:57] + "..."


# WebArena ------------------------------------------------------------------------------------------------------------

_NUMBER = "([0-9]{1,9})"
_WEBARENA: Mapping[str, tuple[str, str]] = {
    "click": (rf"click ?\[{_NUMBER}\]", "click [id]"),
    "hover": (rf"hover ?\[{_NUMBER}\]", "hover [id]"),
    "type": (rf"type ?\[{_NUMBER}\] ?\[(.*)\] ?\[([01])\]", "type [id] [text] [0 or 1]"),
    "press": (r"press ?\[(.+)\]", "press [key combination]"),
    "scroll": (r"scroll ?\[?(up|down)\]?", "scroll [up] or scroll [down]"),
    "new_tab": ("", "new_tab"),
    "tab_focus": (rf"tab_focus ?\[{_NUMBER}\]", "tab_focus [number]"),
    "close_tab": ("", "close_tab"),
    "goto": (r"goto ?\[(.+)\]", "goto [url]"),
    "go_back": ("", "go_back"),
    "go_forward": ("", "go_forward"),
    "stop": (r"stop ?(?:\[(.*)\]|(?=[^\[]*\Z))", "stop [answer]"),
    "none": ("", "none"),
}
"""By first word: how the text is read, and how it is written."""
_FLAGGED = re.compile(r"type ?\[[0-9]+\] ?\[.*\] ?\[[01]\]\Z", re.DOTALL)


def parse_webarena(text: str) -> Action | Malformed:
    """An action of WebArena's id grammar."""
    text = text.strip()
    if problem := unreadable(text):
        return Malformed(problem)
    word = text.split("[")[0].strip() if "[" in text else text.split()[0]
    if word not in _WEBARENA:
        return Malformed(f"{short(word)!r} is no action. Actions: {', '.join(form for _, form in _WEBARENA.values())}.")
    if word == "type" and not _FLAGGED.search(text):
        text += " [1]"
    pattern, form = _WEBARENA[word]
    match = re.search(pattern, text, re.DOTALL if word in ("type", "stop") else 0)
    if match is None:
        return Malformed(f"{short(text)!r} is not written as {form}.")
    match word:
        case "click" | "hover":
            return Action(Kind(word), element=int(match[1]))
        case "type":
            return Action(Kind.TYPE, element=int(match[1]), text=match[2], enter=match[3] == "1")
        case "press":
            keys = normal_keys(match[1])
            return Action(Kind.PRESS, text=keys) if keys else Malformed(f"{short(match[1])!r} is no key combination.")
        case "scroll":
            return Action(Kind.SCROLL, pages=-1.0 if match[1] == "up" else 1.0)
        case "tab_focus":
            return Action(Kind.FOCUS_TAB, tab=int(match[1]))
        case "goto":
            url = match[1].strip()
            return Action(Kind.GOTO, text=url) if url else Malformed("goto needs an address: goto [url].")
        case "stop":
            return Action(Kind.STOP, text=match[1] or "")
        case "none":
            return Action(Kind.NOTHING)
        case _:
            return Action(Kind(word))


def to_webarena(action: Action) -> str:
    """The text of an action in WebArena's grammar; `parse_webarena` gives the same action back."""
    match action.kind:
        case Kind.CLICK | Kind.HOVER:
            return f"{action.kind} [{action.element}]"
        case Kind.TYPE if not action.clear:
            return f"type [{action.element}] [{action.text}] [{int(action.enter)}]"
        case Kind.PRESS | Kind.GOTO | Kind.STOP:
            return f"{action.kind} [{action.text}]"
        case Kind.SCROLL:
            return f"scroll [{'up' if action.pages < 0 else 'down'}]"
        case Kind.FOCUS_TAB:
            return f"tab_focus [{action.tab}]"
        case Kind.NEW_TAB | Kind.CLOSE_TAB | Kind.BACK | Kind.FORWARD:
            return str(action.kind)
        case Kind.NOTHING:
            return "none"
        case _:
            what = "type into an emptied field" if action.kind is Kind.TYPE else action.kind.value.replace("_", " ")
            raise WebError(f"WebArena's grammar cannot say {what!r}; use WebRL's, or other actions")


def format_webarena(action: Action, page: Page | None) -> str:
    """An action as WebArena's histories tell it: `click [601] where [601] is link 'Reply'`."""
    if action.kind is Kind.FOCUS_TAB:
        return f"page_focus [{action.tab}]"
    if action.element is None:
        return to_webarena(action)
    node = page.nodes.get(action.element) if page else None
    name = f"[{action.element}]"
    if node is None:
        return (
            f'Attempt to perform "{action.kind}" on element "{name}" but no matching element found. Look at the page.'
        )
    text = (action.text + "\n" * action.enter).replace("\n", " ")
    typed = f" [{text}]" if action.kind in (Kind.TYPE, Kind.SELECT) else ""
    return f"{action.kind} {name}{typed} where {name} is {_told(node)}"


def _told(node: Node) -> str:
    properties = [f"{key}: {value}" for key, value in node.properties.items()]
    return " ".join(" ".join([node.role, repr(node.name), *properties]).split())
