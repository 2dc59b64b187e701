"""Answers to questions, compared by what they mean: numbers as numbers, everything else as text."""

from __future__ import annotations

import re
from fractions import Fraction

TAIL_CHARS = 2000
"""Characters that are read from the end of a reply: the final answer stands there, and reading stays bounded."""

_WHOLE = r"[0-9]{1,3}(?:,[0-9]{3}){1,5}|[0-9]{1,20}"
_NUMBER = re.compile(
    rf"(?=[-−$€£.\\0-9])(?P<sign>[-−])?\s?[$€£]?\s?(?:"
    rf"(?:(?P<before>{_WHOLE})\s?)?\\[dt]?frac\{{(?P<top>-?[0-9]{{1,12}})\}}\{{(?P<bottom>[0-9]{{1,12}})\}}"
    rf"|(?P<mixed>{_WHOLE})\s(?P<above>[0-9]{{1,12}})\s?/\s?(?P<below>[0-9]{{1,12}})"
    rf"|(?P<whole>{_WHOLE})?(?P<part>\.[0-9]{{1,20}})?(?:\s?/\s?(?P<over>[0-9]{{1,12}}))?)"
)
_BOXED = re.compile(r"\\boxed\{((?:[^{}]|\{[^{}]*\}){1,200})\}")
_STATED = re.compile(r"answer(?: is|:)\s*:?\s*", re.IGNORECASE)


def number(text: str) -> Fraction | None:
    """The number a text is: `1,000`, `-3.50`, `$18`, `3/4`, `\\frac{3}{4}`, `1 1/2`, `50%`; None if it is none."""
    body = text.strip().removesuffix("%").removesuffix("\\").strip().strip("$").strip()
    match = _NUMBER.fullmatch(body) if len(body) <= 100 else None
    return _value(match) if match else None


def final(text: str) -> str:
    """The part of a reply that is its answer: the last box, else what follows the last `answer is`, else all of it."""
    tail = text[-TAIL_CHARS:]
    if boxes := _BOXED.findall(tail):
        return boxes[-1].strip()
    stated = list(_STATED.finditer(tail))
    return tail[stated[-1].end() :].strip().rstrip(".") if stated else tail.strip()


def last_number(text: str) -> Fraction | None:
    """The answer of a reply as a number: the answer itself if it is one, else the last number in it.

    Nothing is computed: the last number of `15 - 7` is 7.
    """
    answer = final(text)
    if (whole := number(answer.rstrip("."))) is not None:
        return whole
    last = None
    for match in _NUMBER.finditer(answer):
        value = _value(match)
        if value is None and match["mixed"] and int(match["below"]):  # two numbers side by side, as in `12 15/3`
            value = Fraction(int(match["above"]), int(match["below"]))
        if value is not None:
            last = abs(value) if match["sign"] and not _is_sign(answer, match) else value
    return last


def right(reply: str, label: str) -> bool:
    """Whether a reply gives the labelled answer: as a number if the label is one, else without case and space."""
    expected = number(label)
    if expected is not None:
        return last_number(reply) == expected
    return _squeeze(final(reply)) == _squeeze(label)


def has_answer(reply: str, label: str) -> bool:
    """Whether a reply gives any answer of the label's kind."""
    return last_number(reply) is not None if number(label) is not None else bool(_squeeze(final(reply)))


def _is_sign(text: str, match: re.Match[str]) -> bool:
    """Whether the minus before a number belongs to it, and is neither a subtraction, a range, nor a dash."""
    at = match.start("sign")
    near = text[:at].rstrip()[-1:]
    if near.isdigit() or near in (")", "}", "]", "%"):
        return False
    adjoins = text[at - 1 : at] if at else ""
    spaced = text[at + 1 : at + 2].isspace()
    return not (near if spaced else adjoins).isalnum()


def _value(match: re.Match[str]) -> Fraction | None:
    sign = -1 if match["sign"] else 1
    for whole, top, bottom in (("before", "top", "bottom"), ("mixed", "above", "below")):
        if match[top]:
            return _fraction(sign, match[whole], int(match[top]), int(match[bottom]))
    if not match["whole"] and not match["part"]:
        return None
    value = Fraction(_integer(match["whole"] or "0"))
    if match["part"]:
        value += Fraction(int(match["part"][1:]), 10 ** (len(match["part"]) - 1))
    if match["over"]:
        if not int(match["over"]):
            return None
        value /= int(match["over"])
    return sign * value


def _fraction(sign: int, whole: str | None, top: int, bottom: int) -> Fraction | None:
    """A fraction, or a mixed number: then its fraction is below 1."""
    if not bottom or (whole and not 0 <= top < bottom):
        return None
    return sign * (_integer(whole or "0") + Fraction(top, bottom))


def _integer(digits: str) -> int:
    return int(digits.replace(",", ""))


def _squeeze(text: str) -> str:
    return "".join(text.lower().split()).strip("$.")
