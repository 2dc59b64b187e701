"""Values in answers, read by type: numbers, money, durations, distances, dates, yes or no, names, N/A.

This is what grades free answers where no judge is at hand. It is strict: an answer that names two different values
where one is asked for is wrong, so that listing guesses does not pay.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import date
from typing import Any

MAX_ANSWER_CHARS = 20_000
"""Characters of an answer that are read."""

_SECONDS = {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0}
_METRES = {"km": 1000.0, "mi": 1609.344, "m": 1.0, "ft": 0.3048}
_DIGITS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
_TEENS = (
    "ten", "eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen",
)  # fmt: skip
_TENS = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
_WORDS: dict[str, float] = {
    word: number
    for number, word in enumerate(
        (
            *_DIGITS,
            *_TEENS,
            *(f"{ten}-{digit}" if digit != "zero" else ten for ten in _TENS for digit in _DIGITS),
        )
    )
}
_MONTHS = {
    "jan": 1, "feb": 2, "mar": 3, "apr": 4, "may": 5, "jun": 6, "jul": 7, "aug": 8, "sep": 9, "oct": 10, "nov": 11,
    "dec": 12,
}  # fmt: skip
_BARE_FIGURE = r"(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?"
_FIGURE = rf"(?<!\d)(?<!\d[.,]){_BARE_FIGURE}"
"""Not the end of another one, as in `1,5 km`."""
_DURATION = re.compile(rf"({_FIGURE})\s*(?:(days?|d)|(hours?|hrs?|h)|(minutes?|mins?|m)|(seconds?|secs?|s))(?![a-z])")
_CLOCK = re.compile(r"(?<![\d:])(\d{1,3}):([0-5]\d)(?::([0-5]\d))?(?![\d:])")
_DISTANCE = re.compile(
    rf"({_FIGURE})\s*(?:(km|kilomet(?:er|re)s?)|(mi|miles?)|(m|met(?:er|re)s?)|(ft|feet|foot))(?![a-z])"
)
_MONEY = re.compile(
    rf"(-?)\s?(?:[$€£]\s?({_FIGURE})|({_FIGURE})\s?(?:[$€£]|dollars?|usd|euros?|eur|pounds?|gbp)(?![a-z]))"
)
_NUMBER = re.compile(rf"(?<![\w.])-?(?:{_BARE_FIGURE}|\.\d+)(?!\.?\d)")
_WORD_NUMBER = re.compile(
    rf"\b(?:(?:{'|'.join(_TENS)})(?:[- ](?:{'|'.join(_DIGITS[1:])}))?|{'|'.join((*_DIGITS, *_TEENS))})\b"
)
_DATES = (
    (re.compile(r"(?<!\d)(\d{4})[-/](\d{1,2})[-/](\d{1,2})(?!\d)"), "ymd"),
    (re.compile(r"(?<!\d)(\d{1,2})/(\d{1,2})/(\d{4}|\d{2})(?!\d)"), "mdy"),
    (re.compile(r"\b([a-z]{3,9})\.? (\d{1,2})(?:st|nd|rd|th)?,? (\d{4})(?!\d)"), "mdy"),
    (re.compile(r"(?<!\d)(\d{1,2})(?:st|nd|rd|th)? (?:of )?([a-z]{3,9})\.?,? (\d{4})(?!\d)"), "dmy"),
)
_AND = re.compile(r"[\s,]*(?:and)?[\s,]*")
_NA = re.compile(r"n\s?/?\s?a(?![a-z])|not (?:achievable|applicable|available|possible)\b")

_NA_AND_VALUE = re.compile(rf"(?:{_NA.pattern})\W*(?:or )?\W*(?:\d|(?:yes|no)$)")


def _plain(text: str) -> str:
    return " ".join(text[:MAX_ANSWER_CHARS].strip().lower().split())


def _figure(text: str) -> float:
    return float(text.replace(",", ""))


def durations(text: str) -> list[float]:
    """Durations in seconds: `1h 35min`, `95 minutes`, `1:35`, `1:35:00`. Parts that follow each other are one."""
    lengths: list[float] = []
    text, end = _plain(text), -1
    for match in _DURATION.finditer(text):
        unit = next(unit for unit, name in zip("dhms", match.groups()[1:], strict=True) if name)
        joined = end >= 0 and _AND.fullmatch(text, end, match.start()) is not None
        if match[4] == "m" and not joined:
            continue  # metres, if anything
        seconds = _figure(match[1]) * _SECONDS[unit]
        if joined:
            lengths[-1] += seconds
        else:
            lengths.append(seconds)
        end = match.end()
    return lengths or [
        int(match[1]) * 3600.0 + int(match[2]) * 60.0 + int(match[3] or 0) for match in _CLOCK.finditer(text)
    ]


def distances(text: str) -> list[float]:
    """Distances in metres."""
    units = ("km", "mi", "m", "ft")
    return [
        _figure(match[1]) * _METRES[next(unit for unit, name in zip(units, match.groups()[1:], strict=True) if name)]
        for match in _DISTANCE.finditer(_plain(text))
    ]


def money(text: str) -> list[float]:
    """Sums of money; a bare number counts where no sign or currency is written at all."""
    amounts = [_figure(match[2] or match[3]) * (-1 if match[1] else 1) for match in _MONEY.finditer(_plain(text))]
    return amounts or numbers(text)


def numbers(text: str) -> list[float]:
    """Numbers in figures; in words, below a hundred, where there are none in figures."""
    text = _plain(text)
    figures = [_figure(match[0]) for match in _NUMBER.finditer(text)]
    return figures or [_WORDS[match[0].replace(" ", "-")] for match in _WORD_NUMBER.finditer(text)]


def counts(text: str) -> list[float]:
    """Numbers that are neither money nor part of a date; all of them where there are no others."""
    bare = _MONEY.sub(" ", _plain(text))
    for pattern, _ in _DATES:
        bare = pattern.sub(" ", bare)
    return numbers(bare) or numbers(text)


def dates(text: str) -> list[date]:
    """Dates; `3/2/22` is the second of March."""
    days: list[tuple[int, date]] = []
    text = _plain(text)
    for pattern, order in _DATES:
        for match in pattern.finditer(text):
            parts = dict(zip(order, match.groups(), strict=True))
            month = int(parts["m"]) if parts["m"].isdigit() else _MONTHS.get(parts["m"][:3], 0)
            year = int(parts["y"]) + (2000 if len(parts["y"]) == 2 else 0)
            try:
                days.append((match.start(), date(year, month, int(parts["d"]))))
            except ValueError:
                continue
    return [day for _, day in sorted(days)]


def yes_or_no(text: str) -> list[bool]:
    """Whether an answer begins with yes or with no."""
    match = re.match(r"(yes|no|true|false)\b", _plain(text))
    return [match[1] in ("yes", "true")] if match else []


def begins_na(text: str) -> bool:
    """Whether an answer begins by saying that the task cannot be done, whatever follows."""
    return _NA.match(_plain(text).strip("'\".")) is not None


def is_na(text: str) -> bool:
    """Whether an answer says that the task cannot be done, and does not go on with a value."""
    return begins_na(text) and not _NA_AND_VALUE.match(_plain(text).strip("'\"."))


def names(text: str) -> list[str]:
    """The items of an enumeration, without case, quotes and full stops."""
    parts = re.split(r"\s*(?:[,;\n•]|\band\b|&)\s*", text[:MAX_ANSWER_CHARS].strip().lower())
    plain = (" ".join(re.sub(r"^\s*(?:[-*]|\d+[.)])\s+", "", part).split()).strip(" .'\"") for part in parts)
    return [part for part in plain if part]


READERS: dict[str, Callable[[str], Sequence[Any]]] = {
    "number": counts, "money": money, "duration": durations, "distance": distances, "date": dates,
    "yes_no": yes_or_no,
}  # fmt: skip
"""The types of which an answer holds one value."""


def read_one(kind: str, text: str) -> Any:
    """The one value of this type in `text`; None without one, or with several that differ."""
    values = READERS[kind](text)
    return values[0] if values and all(value == values[0] for value in values) else None


def close(one: Any, other: Any, tolerance: float = 0.0) -> bool:
    """Whether two values are equal, numbers within a tolerance."""
    if isinstance(one, int | float) and isinstance(other, int | float):
        return abs(one - other) <= tolerance + 1e-9 * max(1.0, abs(other))
    return bool(one == other)


# Free texts ----------------------------------------------------------------------------------------------------------

_LABELLED = re.compile(r"([^:]*[^\W\d][^:]*):\s*(.*\S)", re.DOTALL)
_WHOLE = {
    "date": re.compile(r".*\d{2,4}"),
    "duration": re.compile(rf"(?:less than )?(?:{_FIGURE} ?(?:hours?|hrs?|h|minutes?|mins?) ?)+\.?"),
    "distance": re.compile(rf"{_FIGURE} ?(?:km|m|mi|miles?|meters?|metres?)"),
    "money": re.compile(rf"[$€£] ?{_FIGURE}(?: [a-z ]+)?"),
    "number": re.compile(rf"-?{_FIGURE}(?: [a-z]+)?"),
    "yes_no": re.compile(r"(?:yes|no)\b.*"),
}
_LITTLE = frozenset((
    "a", "an", "the", "is", "are", "was", "were", "be", "it", "its", "of", "in", "on", "at", "to", "for", "and", "or",
    "that", "this", "there", "with", "by", "has", "have",
))  # fmt: skip


def kind_of(reference: str) -> str:
    """The type of a reference text: one of `READERS`, or `text`."""
    plain = _plain(reference)
    for kind in ("yes_no", "date", "duration", "distance", "money", "number"):
        if _WHOLE[kind].fullmatch(plain) and READERS[kind](plain) and (kind != "date" or len(plain) < 25):
            return kind
    return "text"


def agrees(references: Sequence[str], answer: str) -> list[bool]:
    """For each reference, whether a free answer gives what it says, by type; in place of a judge.

    Where the reference is a value, every value of its type in the answer must be one of the references'.
    `driving: 2min` needs the label and the value in one part of the answer. A reference that is a text needs all of its
    words in their order, in an answer that is not much longer than all references.
    """
    longest = 4 * sum(len(words_of(reference)) for reference in references) + 20
    return [_agrees(reference, answer, references, longest) for reference in references]


def _agrees(reference: str, answer: str, references: Sequence[str], longest: int) -> bool:
    if begins_na(reference) or begins_na(answer):
        return is_na(reference) and is_na(answer)
    match = _LABELLED.fullmatch(reference.strip())
    kind = kind_of(match[2]) if match else "text"
    if match and kind != "text":
        return any(_holds(kind, match[2], part, [match[2]]) for part in _parts_about(match[1], answer))
    kind = kind_of(reference)
    if kind != "text":
        return _holds(kind, reference, answer, references)
    wanted, given = words_of(reference), words_of(answer)
    following = iter(given)
    return bool(wanted) and len(given) <= longest and all(word in following for word in wanted)


def _parts_about(label: str, answer: str) -> list[str]:
    """The parts of an answer that begin with a label and end before the next part."""
    text, words = _plain(answer), _plain(label)[:40]
    starts = [match.start() for match in re.finditer(re.escape(words), text)]
    starts = starts or [match.start() for match in re.finditer(rf"\b{re.escape(words[:3])}", text)]
    ends = [re.search(r"[,;]\s(?!\d{4}\b)|\sand\s|$", text[start:]) for start in starts]
    return [text[start : start + (end.start() if end else 0)] for start, end in zip(starts, ends, strict=True)]


def _holds(kind: str, value: str, answer: str, references: Sequence[str]) -> bool:
    wanted = READERS[kind](value)[0]
    unit = re.fullmatch(rf".*{_FIGURE} ([a-z]+)", _plain(value)) if kind == "number" else None
    if unit:
        counted = re.findall(rf"({_FIGURE}|{'|'.join(_WORDS)}) (?:[a-z]+ )?{re.escape(unit[1][:4])}", _plain(answer))
        if counted:
            return all(close(numbers(count)[0], wanted) for count in counted)
    known = [read for reference in references for read in READERS[kind](reference)]
    values = READERS[kind](answer)
    return wanted in values and all(any(close(one, other) for other in known) for one in values)


def words_of(text: str) -> list[str]:
    """The words that carry meaning."""
    return [word for word in re.findall(r"[^\W_]+(?:['’.][^\W_]+)*", _plain(text)) if word not in _LITTLE]
