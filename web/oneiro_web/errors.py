"""Mistakes a person can mend: each is one line that says what was wrong and what to do."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

try:
    # Inside Oneiro these are its own kinds of errors: its command line prints one line for the first and exits 2, and
    # its rollouts lose one episode, not the run, by the second.
    from oneiro.runtime.errors import OneiroError as _Mistake
    from oneiro.worlds.base import WorldLost as _Lost
except ImportError:
    _Mistake = _Lost = Exception  # type: ignore[misc,assignment]


class WebError(_Mistake):
    """A user's mistake or a broken input file. The message is one line and names the remedy."""


class SessionLost(WebError, _Lost):
    """What an episode runs in is gone or does not answer: the episode is lost, nothing else."""


def nearest(word: str, known: Iterable[str]) -> str:
    """`; did you mean 'x'?` for the closest known word, else the short list of what is known."""
    names = sorted(known)
    close = difflib.get_close_matches(word, names, n=1, cutoff=0.5)
    if close:
        return f"; did you mean '{close[0]}'?"
    return f"; known: {', '.join(names)}" if names else ""
