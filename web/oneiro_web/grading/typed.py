"""Values compared by the JSON schema that WebArena-Verified gives for their place."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from oneiro_web.grading.values import close, dates, distances, durations, money, yes_or_no

MOST_ITEMS = 200
MAX_TEXT_CHARS = 1 << 16  # of a value that a pattern is held against
DEGREES = 1e-4
"""How far two coordinates may lie apart."""


def is_pattern(text: str) -> bool:
    """Whether a wanted text is a regular expression."""
    return len(text) > 1 and text.startswith("^") and text.endswith("$")


def same(wanted: Any, given: Any, schema: Mapping[str, Any], ordered: bool = False) -> bool:
    """Whether a value is the wanted one, read by the JSON schema of its place. Order counts where it is said."""
    if schema.get("type") == "array" and isinstance(wanted, list):
        given = given if isinstance(given, list) else [given]
        if len(given) != len(wanted) or len(given) > MOST_ITEMS:
            return False
        items = schema.get("items") or {}
        fits = [[_one_of(want, item, items, ordered) for item in given] for want in wanted]
        return all(row[place] for place, row in enumerate(fits)) if ordered else _pairs_up(fits)
    if isinstance(wanted, dict):
        kinds = schema.get("properties") or {}
        if not isinstance(given, dict):
            return False
        within = DEGREES if schema.get("format") == "coordinates" else 0.0
        return all(
            _near(wanted[key], given.get(key), within)
            if within
            else _one_of(wanted[key], given.get(key), kinds.get(key, {}), ordered)
            for key in wanted
        )
    return _same_value(wanted, given, schema)


def _one_of(wanted: Any, given: Any, schema: Mapping[str, Any], ordered: bool) -> bool:
    """A list where a single value belongs holds alternatives."""
    if isinstance(wanted, list) and schema.get("type") != "array":
        return any(same(one, given, schema, ordered) for one in wanted)
    return same(wanted, given, schema, ordered)


def _near(wanted: Any, given: Any, within: float) -> bool:
    try:
        return abs(float(wanted) - float(given)) <= within
    except (TypeError, ValueError):
        return False


def _same_value(wanted: Any, given: Any, schema: Mapping[str, Any]) -> bool:
    if wanted is None or given is None:
        return wanted is given
    if isinstance(given, list | dict):
        return False
    kind, form = schema.get("type"), schema.get("format")
    if kind is None and isinstance(wanted, int | float) and not isinstance(wanted, bool):
        kind = "number"
    if isinstance(wanted, str) and is_pattern(wanted):
        return re.fullmatch(wanted, str(given)[:MAX_TEXT_CHARS], re.IGNORECASE) is not None
    readers: dict[str, Callable[[str], list[Any]]] = {"duration": durations, "distance": distances, "date": dates}
    if isinstance(form, str) and form in readers:
        one, other = readers[form](str(wanted)), readers[form](str(given))
        return len(other) == 1 and one[:1] == other
    if kind in ("number", "integer"):
        numbers = [money(str(value)) for value in (wanted, given) if not isinstance(value, bool)]
        return len(numbers) == 2 and len(numbers[1]) == 1 and close(numbers[1][0], numbers[0][0])
    if kind == "boolean":
        return yes_or_no(str(wanted)) == yes_or_no(str(given))
    if isinstance(form, str) and form in SPELLED:
        return SPELLED[form](str(wanted)) == SPELLED[form](str(given))
    if form == "month":
        return _plain(wanted)[:3] == _plain(given)[:3]
    return _plain(wanted) == _plain(given)


def _plain(value: Any) -> str:
    return " ".join(str(value).casefold().split()).strip(" .'\"").removesuffix("/")


def _pairs_up(fits: Sequence[Sequence[bool]]) -> bool:
    """Whether each row can have a column of its own in which it is true."""
    taken: dict[int, int] = {}

    def place(row: int, tried: set[int]) -> bool:
        for column, fit in enumerate(fits[row]):
            if fit and column not in tried:
                tried.add(column)
                if column not in taken or place(taken[column], tried):
                    taken[column] = row
                    return True
        return False

    return all(place(row, set()) for row in range(len(fits)))


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _markdown(text: str) -> str:
    """Markdown without what differs between two ways to write the same."""
    lines = [re.sub(r"^(\s*)[*+] ", r"\1- ", line.rstrip()) for line in text.strip().splitlines()]
    lines = [re.sub(r"^(#+)\s*", r"\1 ", line) for line in lines]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines))


SPELLED: Mapping[str, Callable[[str], Any]] = {
    "string_list": lambda text: sorted(item.strip() for item in text.split(",") if item.strip()),
    "json": _parsed,
    "markdown": _markdown,
}
"""Formats of texts that can be spelt in more than one way."""
