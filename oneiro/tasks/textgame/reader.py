"""Reads the JSON object a model meant, out of anything a model may write, in bounded time.

JSON is read as it is; Python's way of printing the same data (single quotes, True, None, tuples, a comma too many) is
read as well, since prompts in the public layout show it. Nothing is evaluated and nothing is guessed: text that is
neither stays unread. With `repair`, containers left open at the end of the text are closed, as lenient readers do.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, Final

MAX_CHARACTERS = 32_768
"""Seven times the longest whole state of ByteSized32; what lies beyond is not looked at."""
MAX_TOKENS = 6_000
"""Work of the loose reader for one text, over all its attempts: again seven times the longest state."""
MAX_DEPTH = 32
MAX_BRACES = 8
"""Opening braces tried for one place that names the key."""
ATTEMPTS = 32
"""Opening braces tried in all before a text counts as broken."""

_TOKEN = re.compile(
    r"""\s*+(?:
        (?P<mark>[{}\[\]():,])
      | (?P<text>"[^"\\]*+(?:\\.[^"\\]*+)*+"|'[^'\\]*+(?:\\.[^'\\]*+)*+')
      | (?P<number>-?\d{1,400}(?:\.\d{1,400})?(?:[eE][+-]?\d{1,3})?)
      | (?P<word>true|false|null|True|False|None)\b
    )""",
    re.VERBOSE | re.DOTALL,
)
_OPENING = re.compile(r"""\[|\{(?=\s*+["'}])""")
"""Where a list or an object begins; a brace before anything else is prose."""
_WORDS: Final = {"true": True, "True": True, "false": False, "False": False, "null": None, "None": None}
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|x[0-9a-fA-F]{2}|.)", re.DOTALL)
_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "0": "\0"}


class Unreadable(ValueError):
    """The text at this place is no value, or the work allowed is used up."""


def _refuse(word: str) -> None:
    raise Unreadable(word)


_DECODER = json.JSONDecoder(parse_constant=_refuse)  # NaN and Infinity are no JSON


def find_object(text: str, key: str, *, last: bool) -> dict[str, Any] | None:
    """The first or last object in `text` that has `key`, None if none names it; may raise `Unreadable`.

    Only where `key` stands as the key of a member does it count, so prose may speak of it. The last such place must be
    in an object that can be read: what comes before one that was cut off is a draft. Of the first ones, those in
    objects that cannot be read are passed over.
    """
    member = re.compile(rf"""[{{,]\s*+((["']){re.escape(key)}\2)\s*+:""")
    places = [match.start(1) for match in member.finditer(text)]
    if not places:
        return None
    reader = _LooseReader(text)
    for start, place in islice(_openings(text, places[-1:] if last else places), ATTEMPTS):
        value, end = _read(text, start, reader)
        if isinstance(value, dict) and key in value and end > place:
            return value
    raise Unreadable


def only_object(text: str) -> dict[str, Any] | None:
    """The object in a text that has no other list or object, read with `repair`; may raise `Unreadable`."""
    text = text.rstrip()
    opening = _OPENING.search(text)
    if opening is None or opening[0] == "[":
        return None
    part = text[opening.start() : opening.start() + MAX_CHARACTERS]
    value, end = _read(part, 0, _LooseReader(part, repair=True))
    rest = text[opening.start() + end :]
    if not isinstance(value, dict):
        raise Unreadable
    return value if "{" not in rest and "[" not in rest else None


def _openings(text: str, places: Iterable[int]) -> Iterator[tuple[int, int]]:
    """The opening braces left of each place, nearest first: the object that holds a key opens at one of them."""
    for place in places:
        start = place
        for _ in range(MAX_BRACES):
            start = text.rfind("{", 0, start)
            if start < 0:
                break
            yield start, place


def _read(text: str, start: int, loose: _LooseReader) -> tuple[Any, int]:
    """The value at a place and where it ends; None where it cannot be read."""
    try:
        return _DECODER.raw_decode(text, start)
    except (ValueError, RecursionError):
        pass  # not JSON, or nested beyond all reason; the loose reader has its own limit
    try:
        return loose.value_at(start), loose.place
    except Unreadable:
        return None, start


class _LooseReader:
    """A recursive reader of JSON or Python literals that counts its work."""

    def __init__(self, text: str, repair: bool = False) -> None:
        self.text, self.repair = text, repair
        self.place = 0
        self.left = MAX_TOKENS

    def value_at(self, start: int) -> Any:
        self.place = start
        return self._value(*self._next(), depth=0)

    def _next(self) -> tuple[str, str]:
        """The kind and text of the next token; ("end", "") when nothing readable follows."""
        self.left -= 1
        token = _TOKEN.match(self.text, self.place) if self.left > 0 else None
        if token is None:
            if self.repair and self.left > 0 and not self.text[self.place :].strip():
                return "end", ""
            raise Unreadable
        self.place = token.end()
        kind = str(token.lastgroup)
        return kind, token[kind]

    def _value(self, kind: str, token: str, depth: int) -> Any:
        if kind == "text":
            return _unescape(token[1:-1])
        if kind == "number":
            return float(token) if any(mark in token for mark in ".eE") else int(token)
        if kind == "word":
            return _WORDS[token]
        if depth >= MAX_DEPTH:
            raise Unreadable
        if token == "{":
            return self._object(depth + 1)
        if token in ("[", "("):
            return self._list("]" if token == "[" else ")", depth + 1)
        raise Unreadable

    def _list(self, close: str, depth: int) -> list[Any]:
        items: list[Any] = []
        kind, token = self._next()
        while token != close and kind != "end":
            items.append(self._value(kind, token, depth))
            kind, token = self._after_item(close)
        return items

    def _object(self, depth: int) -> dict[str, Any]:
        members: dict[str, Any] = {}
        kind, token = self._next()
        while token != "}" and kind != "end":
            if kind != "text":
                raise Unreadable
            key = _unescape(token[1:-1])
            if self._next()[1] != ":":
                raise Unreadable
            members[key] = self._value(*self._next(), depth)
            kind, token = self._after_item("}")
        return members

    def _after_item(self, close: str) -> tuple[str, str]:
        """The token that starts the next item or closes the container."""
        kind, token = self._next()
        if token == ",":
            return self._next()
        if token != close and kind != "end":
            raise Unreadable
        return kind, token


def _unescape(body: str) -> str:
    return _ESCAPE.sub(_escaped, body) if "\\" in body else body


def _escaped(match: re.Match[str]) -> str:
    code = match[1]
    return chr(int(code[1:], 16)) if len(code) > 1 else _ESCAPES.get(code, code)
