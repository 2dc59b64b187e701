"""Mistakes a person can mend: each is one line that says what was wrong and what to do; the command line exits 2."""

from __future__ import annotations

import difflib
import pickle
import re
from collections.abc import Iterable
from typing import TypeVar

ResultT = TypeVar("ResultT")


class OneiroError(Exception):
    """A user's mistake or a broken input file. The message is one line and names the remedy."""


class Notice(UserWarning):
    """What a person should know while work goes on. The message is one line, and shown without a place in the code."""


def nearest(word: str, known: Iterable[str]) -> str:
    """`; did you mean 'x'?` for the closest known word, else the short list of what is known."""
    names = sorted(known)
    close = difflib.get_close_matches(word, names, n=1, cutoff=0.5)
    if close:
        return f"; did you mean '{close[0]}'?"
    return f"; known: {', '.join(names)}" if names else ""


def first_line(error: object, most: int = 200) -> str:
    """The first line of what an exception says, or its kind where it says nothing: libraries write paragraphs."""
    lines = str(error).strip().splitlines()
    return (lines[0] if lines else type(error).__name__)[:most]


def sendable(error: Exception) -> Exception:
    """The error, or one that says the same, as it can be sent to another process."""
    try:
        return error if type(pickle.loads(pickle.dumps(error))) is type(error) else describe(error)
    except Exception:  # an error's own code runs here
        return describe(error)


def unwrap(result: ResultT | Exception) -> ResultT:
    """One result of many that were computed together: what was raised for it is raised here."""
    if isinstance(result, Exception):
        raise result
    return result


def describe(error: Exception) -> RuntimeError:
    """An error of a kind that every process knows."""
    return RuntimeError(f"{type(error).__name__}: {error}")


_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control codes except tab and line feed, marks that turn the direction of writing, halves of characters."""


def printable(text: str) -> str:
    r"""The text with such codes written out, as `\x1b`; any other text is unchanged."""
    return _UNSAFE.sub(lambda match: match[0].encode("unicode_escape").decode(), text)
