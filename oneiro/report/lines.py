"""Learning curves of a page as SVG in the page's own text colour, written directly: matplotlib takes a fifth of a
second for each, and the page of a small run has dozens.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from html import escape

import numpy as np

from oneiro.report.plots import PALETTE, SMOOTH_FROM, TITLE_WIDTH, Series, running_mean

WIDTH, PLOT, LEFT, RIGHT, FOOT = 460, 170, 62, 22, 38
"""Width of a figure, height of its axes, and what stands beside and below them."""
LINE = 16
"""Height of a line of text."""
MAX_POINTS = 400  # of a line: more cannot be told apart at this width


def curves(title: str, series: Sequence[Series], unit: str = "") -> str:
    """Lines over steps as one `<svg>` element: title, legend where there are several, axes, lines."""
    scale = 100.0 if unit == "%" else 1.0
    lines = [thin(*finite(np.asarray(one.steps), np.asarray(one.values, np.float64) * scale)) for one in series]
    parts = [
        _text(0, LINE * (row + 0.8), line, 'font-size="13"')
        for row, line in enumerate(textwrap.wrap(title, TITLE_WIDTH))
    ]
    top = LINE * len(parts) + 6
    if len(series) > 1:
        legend, rows = _legend([one.label for one in series], top)
        parts, top = parts + legend, top + LINE * rows + 6
    low, high = value_range(np.concatenate([values for _, values in lines]), unit)
    steps = np.concatenate([steps for steps, _ in lines])
    first, last = (float(steps.min()), float(steps.max())) if len(steps) else (0.0, 0.0)

    def x(step: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * ((step - first) / (last - first) if last > first else 0.5)

    def y(value: float) -> float:
        return top + PLOT * (1 - (value - low) / (high - low))

    for tick in nice_ticks(low, high):
        if low <= tick <= high:
            parts.append(
                f'<path d="M{LEFT} {y(tick):.1f}H{WIDTH - RIGHT}" stroke="currentColor" stroke-opacity="0.14"/>'
            )
            parts.append(_text(LEFT - 6, y(tick) + 4, f"{tick:g} {unit}".rstrip(), 'text-anchor="end"'))
    for step in nice_ticks(first, last, whole=True):
        if first <= step <= last:
            parts.append(_text(x(step), top + PLOT + 15, f"{step:g}", 'text-anchor="middle"'))
    parts.append(_text((LEFT + WIDTH - RIGHT) / 2, top + PLOT + 31, "step", 'text-anchor="middle"'))
    for place, (at, values) in enumerate(lines):
        points = [f"{x(step):.1f},{y(value):.1f}" for step, value in zip(at, values, strict=True)]
        drawn = [_line(points, 1.6)]
        if len(points) > SMOOTH_FROM:
            mean = running_mean(values, len(values) // 20 + 1)
            smooth = [f"{x(step):.1f},{y(value):.1f}" for step, value in zip(at, mean, strict=True)]
            drawn = [_line(points, 0.7, 'stroke-opacity="0.35"'), _line(smooth, 1.6)]
        else:
            radius = 2 if len(points) > 1 else 4
            drawn += [
                '<circle cx="{}" cy="{}" r="{}" stroke="none"/>'.format(*point.split(","), radius) for point in points
            ]
        colour = PALETTE[place % len(PALETTE)]
        parts.append(f'<g stroke="{colour}" fill="{colour}">{"".join(drawn)}</g>')
    return (
        f'<svg viewBox="0 0 {WIDTH} {top + PLOT + FOOT}" role="img" aria-label="{escape(title)}" fill="currentColor" '
        f'style="font-family: inherit; font-size: 11px">{"".join(parts)}</svg>'
    )


def value_range(values: np.ndarray, unit: str) -> tuple[float, float]:
    """The ends of the axis. A line that is level but for the last digits of its floats stays level."""
    if unit == "%" or not len(values):
        return 0.0, max(100.0, float(values.max(initial=0.0)))
    low, high = float(values.min()), float(values.max())
    if high - low < 1e-3 * max(abs(low), abs(high)) or high == low:
        pad = 0.05 * max(abs(low), abs(high)) or 0.5
    else:
        pad = 0.04 * (high - low)
    return low - pad, high + pad


def finite(steps: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The points that can be drawn."""
    kept = np.isfinite(values)
    return steps[kept], values[kept]


def thin(steps: Sequence[float] | np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """At most `MAX_POINTS` points: means of as many equal parts, each at its last step."""
    at = np.asarray(steps)
    if len(at) <= MAX_POINTS:
        return at, values
    edges = np.linspace(0, len(at), MAX_POINTS + 1).astype(int)
    return at[edges[1:] - 1], np.add.reduceat(values, edges[:-1]) / np.diff(edges)


def nice_ticks(low: float, high: float, count: int = 4, whole: bool = False) -> list[float]:
    """Round numbers that span `low` to `high`, about `count` of them."""
    if high - low < 1e-9 * max(abs(low), abs(high), 1e-9):
        if whole:
            return [low]
        low, high = low - max(abs(low) * 0.05, 0.5), high + max(abs(high) * 0.05, 0.5)
    rough = (high - low) / count
    size = 10 ** math.floor(math.log10(rough))
    step = size * next(factor for factor in (1, 2, 2.5, 5, 10) if factor * size >= rough)
    step = max(1.0, round(step)) if whole else step
    first, last = math.floor(low / step), math.ceil(high / step)
    return [round(number * step, 10) for number in range(first, last + 1)]


def _legend(labels: Sequence[str], top: float) -> tuple[list[str], int]:
    """Labels in their colours from left to right, on as many rows as they need."""
    parts, left, row = [], 0.0, 0
    for place, label in enumerate(labels):
        width = 6.5 * len(label) + 28  # about what the text takes in most fonts
        if left and left + width > WIDTH:
            left, row = 0.0, row + 1
        y, colour = top + LINE * (row + 0.6), PALETTE[place % len(PALETTE)]
        parts.append(f'<path d="M{left:.0f} {y - 4:.0f}h14" stroke="{colour}" stroke-width="1.6"/>')
        parts.append(_text(left + 19, y, label))
        left += width
    return parts, row + 1


def _line(points: Sequence[str], width: float, more: str = "") -> str:
    return f'<polyline points="{" ".join(points)}" fill="none" stroke-width="{width}" {more}/>'


def _text(x: float, y: float, text: str, more: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" {more}>{escape(text)}</text>'
