"""Ids as a small model reads and writes them: counted from what it sees, and translated back before anything is scored.

A page numbers its lines from the top of the site's frame, so the lines of one window have other numbers on every page:
rare tokens that mean nothing by themselves. Here `[1]` is the line that opens a page's own part, on this page and on
the next. In a window further down, `[.1]` is the first line that is shown. Every id can be written, and reads back.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from oneiro.tasks.webpage.state import Situation, window_before

_ABSOLUTE = re.compile(r"^\[(\d{1,9})\]", re.MULTILINE)
_COUNTED = re.compile(r"^[ \t]*\[(\.?)(-?\d{1,9})\]", re.MULTILINE)


@dataclass(frozen=True)
class Numbers:
    """How the lines of one situation are counted."""

    home: int
    """Id of the line that opens the page's own part."""
    first: int
    """Id of the first line that is shown."""
    lines: int
    """How many are shown."""

    @classmethod
    def of(cls, case: Situation, lines: int) -> Numbers:
        window, items = window_before(case, lines), case.state.items
        if not items:
            return cls(1, 1, 0)
        return cls(items[case.state.main].id, items[window.top].id, len(window.of(case.state)))

    def write(self, number: int) -> str:
        """The name of an id, in its brackets."""
        down = self.first != self.home and self.first <= number < self.first + self.lines
        return f"[.{number - self.first + 1}]" if down else f"[{number - self.home + 1}]"

    def written(self, text: str) -> str:
        """A text whose lines begin with ids, counted from here."""
        return _ABSOLUTE.sub(lambda found: self.write(int(found[1])), text)

    def read(self, text: str) -> str:
        """The way back: an answer with the page's own ids. What no line can have stays unreadable."""
        return _COUNTED.sub(lambda found: f"[{int(found[2]) - 1 + (self.first if found[1] else self.home)}]", text)
