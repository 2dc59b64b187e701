"""WebRL's grammar of actions: one call (`do`, `exit`, `go_backward`, `go_forward`) with keyword arguments.

Arguments are constants. Comment lines may stand before, and the last call of a text counts. All actions that WebRL's
prompt advertises are there.

Every text gives an `Action` or a `Malformed`, never an exception; nothing of a text is ever run.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from oneiro_web.actions import Action, Kind, Malformed, short, unprintable, unreadable
from oneiro_web.errors import WebError

WEBRL_SCROLL = 2 / 3
"""Viewports that WebRL scrolls by; WebArena scrolls by one."""
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
    if problem := unreadable(text.strip()):
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
            latest, closed = _read_call(text, match.start(1), end)
            if closed:
                call, end = latest, closed
            elif isinstance(call, Malformed):
                call = latest
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
        return Malformed(f"{short(source)!r} is not a call.")
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
        return Malformed(f"{short(source)!r} is not a call.")
    values = {keyword.arg: keyword.value.value for keyword in call.keywords if isinstance(keyword.value, ast.Constant)}
    if call.args or len(values) < len(call.keywords) or None in values:
        return Malformed("Arguments are named constants, like element='12'.")
    return call.func.id, {str(name): value for name, value in values.items()}


def _do(values: Mapping[str, Any]) -> Action | Malformed:
    name = " ".join(str(values.get("action", "")).lower().split())
    if name not in _DO:
        return Malformed(f"{short(name)!r} is no action. Actions: {', '.join(known.title() for known in _DO)}.")
    kind, needs, fields = _DO[name]
    unknown = [key for key in values if key not in ("action", "argument", "element")]
    if unknown:
        return Malformed(f"do() takes action, argument and element, not {short(unknown[0])!r}.")
    missing = [need for need in needs if values.get(need) is None]
    if missing:
        return Malformed(f"{name.title()} needs {' and '.join(missing)}.")
    given: dict[str, Any] = dict(fields)
    if "element" in needs:
        given["element"] = _number(values["element"])
        if given["element"] is None:
            return Malformed(f"{short(str(values['element']))!r} is no element. Name one by its number.")
    if "argument" in needs:
        argument = str(values["argument"])
        if problem := unprintable(argument):
            return Malformed(problem)
        if kind is Kind.FOCUS_TAB:
            given["tab"] = _number(argument)
            if given["tab"] is None:
                return Malformed(f"{short(argument)!r} is no tab. Name one by its number, from 0.")
        else:
            given["text"] = argument
    return Action(kind, **given)


def _exit(values: Mapping[str, Any]) -> Action | Malformed:
    if not {*values} <= {"message"}:
        return Malformed('exit() takes a message only: exit(message="...").')
    message = values.get("message")
    answer = "" if message is None else str(message)
    problem = unprintable(answer)
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
            raise WebError(f"WebRL's grammar cannot say {what!r}; use WebArena's, or other actions")


def _number(value: object) -> int | None:
    text = str(value).strip().strip("[]")
    return int(text) if re.fullmatch("[0-9]{1,9}", text) else None
