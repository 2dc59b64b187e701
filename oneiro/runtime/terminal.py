"""What may be printed: text from models, servers and files can hold codes that a terminal would obey."""

from __future__ import annotations

import re

_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control codes except tab and line feed, marks that turn the direction of writing, halves of characters."""


def printable(text: str) -> str:
    r"""The text with such codes written out, as `\x1b`; any other text is unchanged."""
    return _UNSAFE.sub(lambda match: match[0].encode("unicode_escape").decode(), text)
