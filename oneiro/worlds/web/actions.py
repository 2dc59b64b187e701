"""What an agent can do in a browser, as one type. Texts in WebArena's and WebRL's grammars are parsed to it.

Every text gives an `Action` or a `Malformed`, never an exception; nothing of a text is ever run.

WebArena's texts (`click [12]`) are read by its own rules: the word before the first bracket chooses, brackets are
matched greedily, text behind them is ignored. What its parser loses is kept here: `type [12] [0]` types a nought, a
`stop` answer may hold newlines, any character may be typed, and key names are put right (`Ctrl+v`). `none`, the word of
its histories, waits.

WebRL's texts are one call (`do`, `exit`, `go_backward`, `go_forward`) with keyword arguments that are constants, after
any comment lines; the last such call of a text counts. All actions that its prompt advertises are there.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

from oneiro.errors import OneiroError
from oneiro.worlds.web.page import Node, Page

LONGEST = 1 << 16
"""Characters of an action's text; a longer one is malformed."""
WEBRL_SCROLL = 2 / 3
"""Viewports that WebRL scrolls by; WebArena scrolls by one."""


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
    found = re.fullmatch(r"(?:(.+)\+)?(\+|[^+]+)", combination.strip() or combination[:1])
    if found is None:
        return None
    held, last = [part.strip() for part in (found[1] or "").split("+") if found[1]], found[2].strip() or found[2]
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
    if problem := _unreadable(text):
        return Malformed(problem)
    word = text.split("[")[0].strip() if "[" in text else text.split()[0]
    if word not in _WEBARENA:
        return Malformed(
            f"{_short(word)!r} is no action. Actions: {', '.join(form for _, form in _WEBARENA.values())}."
        )
    if word == "type" and not _FLAGGED.search(text):
        text += " [1]"
    pattern, form = _WEBARENA[word]
    match = re.search(pattern, text, re.DOTALL if word in ("type", "stop") else 0)
    if match is None:
        return Malformed(f"{_short(text)!r} is not written as {form}.")
    match word:
        case "click" | "hover":
            return Action(Kind(word), element=int(match[1]))
        case "type":
            return Action(Kind.TYPE, element=int(match[1]), text=match[2], enter=match[3] == "1")
        case "press":
            keys = normal_keys(match[1])
            return Action(Kind.PRESS, text=keys) if keys else Malformed(f"{_short(match[1])!r} is no key combination.")
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
            raise OneiroError(f"WebArena's grammar cannot say {what!r}; use WebRL's, or other actions")


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


# WebRL ---------------------------------------------------------------------------------------------------------------

_CALL = re.compile(r"^[ \t]*#[^\n]*|\b(do|exit|go_backward|go_forward)[ \t]*\(", re.MULTILINE)
_CALLS = 200
"""How many openings of a call are looked at."""
_CODE = 400
"""Characters of a call outside its strings."""
_ESCAPES = frozenset("\\'\"nrtabfvxuUN")


class _Form(NamedTuple):
    kind: Kind
    needs: tuple[str, ...] = ()
    fields: Mapping[str, Any] = {}


_DO = {
    "click": _Form(Kind.CLICK, ("element",)),
    "right click": _Form(Kind.RIGHT_CLICK, ("element",)),
    "type": _Form(Kind.TYPE, ("argument", "element"), {"clear": True}),
    "search": _Form(Kind.TYPE, ("argument", "element"), {"clear": True, "enter": True}),
    "hover": _Form(Kind.HOVER, ("element",)),
    "scroll up": _Form(Kind.SCROLL, (), {"pages": -WEBRL_SCROLL}),
    "scroll down": _Form(Kind.SCROLL, (), {"pages": WEBRL_SCROLL}),
    "press enter": _Form(Kind.PRESS, (), {"text": "Enter"}),
    "switch tab": _Form(Kind.FOCUS_TAB, ("argument",)),
    "select dropdown option": _Form(Kind.SELECT, ("argument", "element")),
    "wait": _Form(Kind.NOTHING),
    "go backward": _Form(Kind.BACK),
    "go forward": _Form(Kind.FORWARD),
}
"""WebRL's actions in lower case, with the arguments each needs."""


def parse_webrl(text: str) -> Action | Malformed:
    """An action of WebRL's grammar: the last call in a text."""
    if problem := _unreadable(text.strip()):
        return Malformed(problem)
    call: tuple[str, dict[str, Any]] | Malformed = Malformed(
        'No call found. Write do(action="...", argument="...", element="..."), exit(message="...") or go_backward().'
    )
    end = 0
    for _ in range(_CALLS):
        match = _CALL.search(text, end)
        if match is None:
            break
        end = match.end()
        if match[1]:
            found, closed = _read_call(text, match.start(1), end)
            if closed:
                call, end = found, closed
            elif isinstance(call, Malformed):
                call = found
    if isinstance(call, Malformed):
        return call
    name, values = call
    return _OTHER_CALLS[name](values) if name in _OTHER_CALLS else _do(values)


def _read_call(text: str, start: int, opened: int) -> tuple[tuple[str, dict[str, Any]] | Malformed, int]:
    """Name and arguments of the call at `start`, and where it ends; 0 if it is none."""
    source, quote, code, at = [text[start:opened]], "", 0, opened
    while at < len(text):
        char = text[at]
        if quote:
            if char == "\\" and at + 1 < len(text):
                at += 1
                source.append("\\" + text[at] if text[at] in _ESCAPES else "\\\\" + _plain(text[at]))
            else:
                quote = "" if char == quote else quote
                source.append(_plain(char))
        elif char in "\"'":
            if source[-1][-1].isalnum() or (source[-1][-1] == char and text[at - 1] == char):
                return Malformed("Write strings in plain quotes."), 0
            quote = char
            source.append(char)
        elif char == ")":
            source.append(char)
            return _constants("".join(source)), at + 1
        else:
            code += 1
            if char in "([{" or code > _CODE:
                return Malformed("Arguments are constants, like element='12'."), 0
            source.append(char if char not in "\r\n\0" else " ")
        at += 1
    return Malformed("The call is not closed."), 0


def _plain(char: str) -> str:
    return f"\\x{ord(char):02x}" if char < " " else char


def _constants(source: str) -> tuple[str, dict[str, Any]] | Malformed:
    try:
        call = ast.parse(source.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return Malformed(f"{_short(source)!r} is not a call.")
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
        return Malformed(f"{_short(source)!r} is not a call.")
    values = {keyword.arg: keyword.value.value for keyword in call.keywords if isinstance(keyword.value, ast.Constant)}
    if call.args or len(values) < len(call.keywords) or None in values:
        return Malformed("Arguments are named constants, like element='12'.")
    return call.func.id, {str(name): value for name, value in values.items()}


def _do(values: Mapping[str, Any]) -> Action | Malformed:
    name = " ".join(str(values.get("action", "")).lower().split())
    if name not in _DO:
        return Malformed(f"{_short(name)!r} is no action. Actions: {', '.join(known.title() for known in _DO)}.")
    kind, needs, fields = _DO[name]
    unknown = [key for key in values if key not in ("action", "argument", "element")]
    if unknown:
        return Malformed(f"do() takes action, argument and element, not {_short(unknown[0])!r}.")
    missing = [need for need in needs if values.get(need) is None]
    if missing:
        return Malformed(f"{name.title()} needs {' and '.join(missing)}.")
    given: dict[str, Any] = dict(fields)
    if "element" in needs:
        given["element"] = _number(values["element"])
        if given["element"] is None:
            return Malformed(f"{_short(str(values['element']))!r} is no element. Name one by its number.")
    if "argument" in needs:
        argument = str(values["argument"])
        if problem := _unprintable(argument):
            return Malformed(problem)
        if kind is Kind.FOCUS_TAB:
            given["tab"] = _number(argument)
            if given["tab"] is None:
                return Malformed(f"{_short(argument)!r} is no tab. Name one by its number, from 0.")
        else:
            given["text"] = argument
    return Action(kind, **given)


def _exit(values: Mapping[str, Any]) -> Action | Malformed:
    if not {*values} <= {"message"}:
        return Malformed('exit() takes a message only: exit(message="...").')
    message = values.get("message")
    answer = "" if message is None else str(message)
    problem = _unprintable(answer)
    return Malformed(problem) if problem else Action(Kind.STOP, text=answer)


def _move(kind: Kind) -> Any:
    return lambda values: Malformed("go_backward() and go_forward() take nothing.") if values else Action(kind)


_OTHER_CALLS = {"exit": _exit, "go_backward": _move(Kind.BACK), "go_forward": _move(Kind.FORWARD)}
"""The calls besides `do`."""


def to_webrl(action: Action) -> str:
    """The text of an action in WebRL's grammar; `parse_webrl` gives the same action back."""

    def do(name: str, **values: object) -> str:
        given = {"action": name, **values}
        return f"do({', '.join(f'{key}={json.dumps(str(value), ensure_ascii=False)}' for key, value in given.items())})"

    match action.kind:
        case Kind.CLICK | Kind.RIGHT_CLICK | Kind.HOVER:
            return do(action.kind.value.replace("_", " ").title(), element=action.element)
        case Kind.TYPE if action.clear:
            return do("Search" if action.enter else "Type", argument=action.text, element=action.element)
        case Kind.SELECT:
            return do("Select Dropdown Option", argument=action.text, element=action.element)
        case Kind.PRESS if action.text == "Enter":
            return do("Press Enter")
        case Kind.SCROLL:
            return do("Scroll Up" if action.pages < 0 else "Scroll Down")
        case Kind.FOCUS_TAB:
            return do("Switch Tab", argument=action.tab)
        case Kind.BACK:
            return "go_backward()"
        case Kind.FORWARD:
            return "go_forward()"
        case Kind.NOTHING:
            return do("Wait")
        case Kind.STOP:
            return f"exit(message={json.dumps(action.text, ensure_ascii=False)})"
        case _:
            what = {Kind.TYPE: "type behind what is there", Kind.PRESS: f"press {action.text}"}.get(
                action.kind, action.kind.value.replace("_", " ")
            )
            raise OneiroError(f"WebRL's grammar cannot say {what!r}; use WebArena's, or other actions")


# Both ----------------------------------------------------------------------------------------------------------------


def _number(value: object) -> int | None:
    text = str(value).strip().strip("[]")
    return int(text) if re.fullmatch("[0-9]{1,9}", text) else None


def _unreadable(text: str) -> str | None:
    if not text:
        return "The action is empty."
    if len(text) > LONGEST:
        return f"The action is longer than {LONGEST:,} characters."
    return _unprintable(text)


def _unprintable(text: str) -> str | None:
    return "The action holds half a character." if any("\ud800" <= char <= "\udfff" for char in text) else None


def _short(text: str) -> str:
    return text if len(text) <= 60 else text[:57] + "..."
