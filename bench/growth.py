"""How cost grows: one setting at a time takes three values, everything else stays as it is."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from oneiro.report.table import Table
from oneiro.runtime.progress import Bar, console

Cost = Callable[[str, Any], tuple[float, int]]
"""(setting, value) -> seconds and the tokens they were for."""
Axes = Mapping[str, Sequence[Any]]
"""Setting -> the values it takes."""


def growth(title: str, axes: Axes, cost: Cost) -> Table:
    """Seconds at every point of every axis, and how many times those of the axis' first point."""
    table = Table(
        title,
        ["what grows", "to", "seconds", "tokens/s", "times the first", "tokens, times the first"],
        note="One measurement a point, after a warm-up; the other settings as above.",
    )
    with Bar(title, sum(map(len, axes.values())), 0, console(), lambda line: None) as bar:
        for name, points in axes.items():
            found = []
            for point in points:
                found.append(cost(name, point))
                bar.advance()
            for point, (seconds, tokens) in zip(points, found, strict=True):
                first = found[0]
                words = name.replace("_", " ")
                table.add(words, str(point), seconds, tokens / seconds, seconds / first[0], tokens / first[1])
    return table


def three(largest: int) -> list[int]:
    """A sixteenth, a quarter and the whole."""
    return [max(1, largest // 16), max(1, largest // 4), largest]
