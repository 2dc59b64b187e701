"""Arithmetic written by a model, read safely: four operations on whole numbers, exact, bounded in length and size.

Nothing is evaluated as code. Any string gives an `Expression` or None, in time linear in its length, which
`MAX_EXPRESSION_CHARS` bounds.
"""

from __future__ import annotations

import re
from fractions import Fraction
from typing import NamedTuple

MAX_EXPRESSION_CHARS = 300
"""Anything longer is no expression: parsing stays bounded, whatever a model writes."""
MOST_DIGITS = 9
DEEPEST = 40
"""Brackets and signs inside one another."""

_TOKENS = re.compile(rf"\s*(?:([0-9]{{1,{MOST_DIGITS}}})|([-+*/()]))")
_SPELLINGS = str.maketrans({"×": "*", "÷": "/", "−": "-", "–": "-", "·": "*", "[": "(", "]": ")"})


class Expression(NamedTuple):
    """What was written: its value (None after a division by zero) and the numbers in it."""

    value: Fraction | None
    numbers: tuple[int, ...]


def parse(text: str) -> Expression | None:
    """Read `(3 + 5) * 2`; `= 16` at the end is allowed and ignored. None if it is no expression."""
    if len(text) > MAX_EXPRESSION_CHARS:
        return None
    body, _, claim = text.translate(_SPELLINGS).partition("=")
    if claim and not re.fullmatch(r"\s*-?[0-9./]*\s*", claim):
        return None
    tokens = _tokens(body.strip())
    if not tokens:
        return None
    reader = _Reader(tokens)
    try:
        value = reader.sum(0)
    except _Malformed:
        return None
    if reader.at != len(tokens):
        return None
    return Expression(value, tuple(int(token) for token in tokens if token.isdigit()))


class _Malformed(Exception):
    """Raised inside the reader only."""


def _tokens(text: str) -> list[str] | None:
    tokens: list[str] = []
    at = 0
    while at < len(text):
        match = _TOKENS.match(text, at)
        # Two numbers in a row can only be one number that is too long.
        if match is None or (match[1] and tokens and tokens[-1].isdigit()):
            return None
        tokens.append(match[1] or match[2])
        at = match.end()
    return tokens


class _Reader:
    """Recursive descent over tokens; a value is None once something was divided by zero."""

    def __init__(self, tokens: list[str]) -> None:
        self.tokens, self.at = tokens, 0

    def sum(self, depth: int) -> Fraction | None:
        value = self.product(depth)
        while self.next_is("+", "-"):
            sign = 1 if self.take() == "+" else -1
            other = self.product(depth)
            value = None if value is None or other is None else value + sign * other
        return value

    def product(self, depth: int) -> Fraction | None:
        value = self.factor(depth)
        while self.next_is("*", "/"):
            divide = self.take() == "/"
            other = self.factor(depth)
            if value is None or other is None or (divide and not other):
                value = None
            else:
                value = value / other if divide else value * other
        return value

    def factor(self, depth: int) -> Fraction | None:
        if depth > DEEPEST:
            raise _Malformed
        token = self.take()
        if token == "(":
            value = self.sum(depth + 1)
            if self.take() != ")":
                raise _Malformed
            return value
        if token == "-":
            value = self.factor(depth + 1)
            return None if value is None else -value
        if not token.isdigit():
            raise _Malformed
        return Fraction(int(token))

    def next_is(self, *tokens: str) -> bool:
        return self.at < len(self.tokens) and self.tokens[self.at] in tokens

    def take(self) -> str:
        if self.at == len(self.tokens):
            raise _Malformed
        self.at += 1
        return self.tokens[self.at - 1]
