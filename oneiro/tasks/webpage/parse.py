"""Reads a predicted change out of any text, in bounded time.

The answer is what follows the end of the thinking; of several answers the last one counts. It needs each of the three
headings once, alone on its line. `None` is no item. A line in a block that is no item is kept as a false one, so that
prose costs precision and never an exception.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

from oneiro.tasks.base import Flaw, Malformed
from oneiro.tasks.webpage.prompt import DELETED, HEADINGS, NEW, NONE, OUTCOME, UPDATED
from oneiro_web.diff import Diff, Item

MAX_CHARACTERS = 262_144
"""25 times the longest published answer. A longer text is no answer."""
MAX_LINES = 4096
MAX_PROPERTIES = 64
"""Of an item; what follows is the value of the last."""
THINKING = "</think>"
_ITEM = re.compile(r"\[([0-9]{1,9})\] ?(.*)\Z", re.DOTALL)
_RECORD = re.compile(
    r"""(?P<role>[^\s'"]{1,80})\ (?P<name>'(?:[^'\\]|\\.)*+'|"(?:[^"\\]|\\.)*+")(?P<rest>(?:\ .*)?)\Z""",
    re.VERBOSE | re.DOTALL,
)
_PROPERTY = re.compile(r" ([A-Za-z][\w-]{0,60}): ")
NO_PROPERTIES: frozenset[tuple[str, str]] = frozenset()


class Record(NamedTuple):
    """An item taken apart; the order of its properties does not count."""

    id: int
    role: str
    name: str
    """In its quotes."""
    properties: frozenset[tuple[str, str]]


@dataclass(frozen=True)
class PagePrediction:
    """A change as somebody wrote it."""

    change: Diff
    false: tuple[int, int, int] = (0, 0, 0)
    """Lines of each block that are no items of it."""
    outcome: Mapping[str, str] = field(default_factory=dict)
    """Heads by name."""


def parse(text: str, page: Mapping[int, Item] | None = None) -> PagePrediction | Malformed:
    """The change that a text predicts. With `page` a deleted item may be written as its id alone."""
    if len(text) > MAX_CHARACTERS:
        return Malformed(Flaw.SHAPE, "too long")
    text = text.rpartition(THINKING)[2]
    if text.count("\n") > MAX_LINES:
        return Malformed(Flaw.SHAPE, "too many lines")
    lines = [line.strip() for line in text.split("\n")]
    starts = [place for place, line in enumerate(lines) if line == NEW]
    if not starts:
        return Malformed(Flaw.EMPTY if not text.strip() else Flaw.SHAPE, f"no line '{NEW}'")
    blocks: dict[str, list[str]] = {}
    heading = NEW
    for line in lines[starts[-1] :]:
        if line in HEADINGS or line == OUTCOME:
            if line in blocks:
                return Malformed(Flaw.CONFLICT, f"'{line}' stands twice")
            blocks[line] = []
            heading = line
        elif line and line != NONE:
            blocks[heading].append(line)
    if missing := [name for name in HEADINGS if name not in blocks]:
        return Malformed(Flaw.SHAPE, f"no line '{missing[0]}'")
    sections = [_items(blocks[name], page if name == DELETED else None) for name in (NEW, DELETED, UPDATED)]
    (new, bad_new), (deleted, bad_deleted), (updated, bad_updated) = sections
    heads = dict(line.split(": ", 1) for line in blocks.get(OUTCOME, []) if ": " in line)
    return PagePrediction(Diff(new, deleted, updated), (bad_new, bad_deleted, bad_updated), heads)


def _items(lines: list[str], page: Mapping[int, Item] | None) -> tuple[tuple[Item, ...], int]:
    """The distinct items of a block, and how many distinct lines are none."""
    items: list[Item] = []
    false = 0
    for line in dict.fromkeys(lines):
        read = _ITEM.match(line)
        if read is None:
            false += 1
        elif not read[2] and page is not None and int(read[1]) in page:
            items.append(page[int(read[1])])
        elif _RECORD.match(read[2]) is None:
            false += 1
        else:
            items.append(Item(int(read[1]), read[2]))
    return tuple(items), false


def record(item: Item) -> Record:
    """An item taken apart; a line in no known form is all name."""
    read = _RECORD.match(item.line.strip())
    if read is None:
        return Record(item.id, "", item.line.strip(), frozenset())
    role, name, rest = read.groups()
    return Record(item.id, role, name, _properties(rest) if rest else NO_PROPERTIES)


@lru_cache(MAX_LINES)
def _properties(text: str) -> frozenset[tuple[str, str]]:
    """Names and values; many items of a page have the same ones."""
    first, *parts = _PROPERTY.split(text, MAX_PROPERTIES)
    pairs = [(key, value.strip()) for key, value in zip(parts[::2], parts[1::2], strict=True)]
    return frozenset([("", first.strip()), *pairs] if first.strip() else pairs)
