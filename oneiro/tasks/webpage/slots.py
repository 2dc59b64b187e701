"""Steps on web pages rewritten with slots: what was typed, what was clicked, what fields hold and lists show.

`click [59]` on `link 'Mill Park'` that leads to a page titled `Mill Park` says: clicking x leads to a page titled x.
What such a step does can be carried over to pages with other names (`oneiro.tasks.webpage.slot_model`).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from oneiro.tasks.webpage.parse import record
from oneiro.tasks.webpage.state import PageSituation
from oneiro_web.actions import Action, Kind, parse_webarena
from oneiro_web.diff import Item

UNKNOWN = "?"
"""A name that nothing on the page before tells."""
FIELDS = ("textbox", "searchbox")
SHORTEST = 3
"""Characters of a value that is looked for in other texts."""
Sources = Mapping[str, str]
"""Slot -> its value on a page."""


class Line(NamedTuple):
    """A line of a page without its number; its name may hold slots."""

    depth: int
    role: str
    name: str
    properties: str

    @classmethod
    def of(cls, item: Item) -> Line:
        return cls(item.depth, *_take_apart(item.line))

    def item(self, number: int, sources: Sources) -> Item:
        """The line on a page whose slots have these values."""
        if not self.role:
            return Item(number, self.name, self.depth)
        return Item(number, f"{self.role} {fill_template(self.name, sources)!r}{self.properties}", self.depth)


@lru_cache(maxsize=65536)
def _take_apart(line: str) -> tuple[str, str, str]:
    """Role, name and properties; lines occur again on page after page."""
    read = record(Item(0, line))
    if not read.role:
        return "", line, ""
    rest = line.strip()[len(read.role) + 1 + len(read.name) :]
    return read.role, read.name[1:-1].replace("\\'", "'"), rest


def sources_of(case: PageSituation) -> dict[str, str]:
    """What can be copied into the next page, as it is once the action has been carried out."""
    parsed = parse_webarena(case.action)
    parts = urlsplit(case.state.url)
    sources = {f"part {place}": unquote(piece) for place, piece in enumerate(parts.path.split("/")) if piece}
    sources["query"] = parts.query
    holder, inside = "", False
    for item in case.state.items:
        line = Line.of(item)
        acted_on = item.id == case.element
        if inside and line.role == "StaticText":
            sources[f"field {holder}"] = line.name
        inside = line.role in FIELDS
        if inside or line.role == "combobox":
            holder = line.name
            sources.setdefault(f"field {holder}", "")
        if line.role == "heading":
            sources.setdefault("heading", line.name)
        if line.role == "option" and "selected: True" in line.properties and "option" not in sources:
            sources[f"field {holder}"] = line.name
        if acted_on:
            sources["element"] = line.name
            if line.role == "option":
                sources[f"field {holder}"] = line.name
                sources["option"] = holder  # its list is decided, whatever was selected before
        elif "option" in sources and sources["option"] != holder:
            del sources["option"]
    sources.pop("option", None)
    if isinstance(parsed, Action) and parsed.kind is Kind.TYPE and "element" in sources:
        field = f"field {sources['element']}"
        sources["typed"], sources[field] = (
            parsed.text,
            sources.get(field, "") + parsed.text,
        )  # typing does not clear a field
    elif "element" in sources:
        sources["element in lower case"] = sources["element"].lower()
    return sources


def to_template(text: str, sources: Sources) -> str:
    """A text in which the values of sources are replaced by their slots; the longest value counts first."""
    # The longest first: a title that holds the whole name of a product is about that, and not about one word of it.
    ordered = sorted(sources.items(), key=lambda pair: (-len(pair[1]), _rank(pair[0])))
    for slot, value in ordered:
        if text == value and len(value) >= SHORTEST:
            return f"{{{slot}}}"
    for slot, value in ordered:
        if len(value) > SHORTEST and value in text:
            return text.replace(value, f"{{{slot}}}", 1)
    return text


def _rank(slot: str) -> tuple[int, str]:
    """Of equal values a field explains more than what was typed into it."""
    return 0 if slot.startswith("field") else 1 if slot.startswith("element") else 2, slot


def fill_template(text: str, sources: Sources) -> str:
    """A slotted text with values; a text that needs a slot the page does not have is unknown."""
    if "{" not in text:
        return text
    for slot, value in sources.items():
        text = text.replace(f"{{{slot}}}", value)
    return text if "{" not in text else UNKNOWN


def slotted_url(url: str, sources: Sources) -> str:
    """An address with slots; numbers in its path become 0."""
    parts = urlsplit(url)
    # Ids differ from content to content, so that they say nothing of the kind of page.
    path = ["0" if piece.isdigit() else to_template(unquote(piece), sources) for piece in parts.path.split("/")]
    pairs, kept = _pairs(parts.query), _pairs(sources.get("query", ""))
    query = [f"{key}={to_template(value, sources)}" for key, value in pairs]
    if kept and kept == pairs[: len(kept)]:
        query[: len(kept)] = ["{query}"]  # what was asked so far is asked again
    return f"{parts.scheme}://{parts.netloc}{'/'.join(path)}" + (f"?{'&'.join(query)}" if query else "")


def filled_url(address: str, sources: Sources) -> str:
    """The address that a slotted one means on a page."""
    front, _, query = address.partition("?")
    path = "/".join(quote(fill_template(piece, sources), safe=":") for piece in front.split("/"))
    pairs: list[tuple[str, str]] = []
    for one in query.split("&") if query else ():
        key, _, value = one.partition("=")
        pairs += _pairs(sources.get("query", "")) if one == "{query}" else [(key, fill_template(value, sources))]
    return f"{path}?{urlencode(pairs)}" if pairs else path


def _pairs(query: str) -> list[tuple[str, str]]:
    return parse_qsl(query, keep_blank_values=True)
