"""Curves and scatter plots as inline SVG in the page's own text colour, light or dark; curves as figures of papers."""

from __future__ import annotations

import io
import json
import math
import re
import textwrap
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np

from oneiro.runtime.errors import printable

PALETTE = ("#3d7fd6", "#e0803a", "#3f9d6c", "#9568cc", "#cf4b5f", "#2f9fae", "#a68a2d", "#888e98")
"""Readable on white and on near-black."""
INK = "#010203"
"""Stands for the page's text colour while matplotlib draws."""
SMOOTH_FROM = 40
"""Curves with more points than this are drawn faintly, under their running mean."""
STYLE: Any = {"svg.fonttype": "none", "pdf.fonttype": 42, "text.parse_math": False, "font.size": 8.5}
"""Text stays text, and no formula."""
TITLE_WIDTH = 58
"""Characters of a title on one line."""


@dataclass(frozen=True)
class Series:
    """One line of a plot."""

    label: str
    steps: Sequence[float]
    values: Sequence[float]
    link: str | None = None
    """On the board, where a step leads to its episodes, `{}` standing for the step; empty: nowhere."""
    kept: Sequence[int] = ()
    """Steps whose episodes are there."""


@dataclass(frozen=True)
class Dots:
    """One colour of a scatter plot: shares from 0 to 1 on both axes, and a name for each dot."""

    label: str
    x: Sequence[float]
    y: Sequence[float]
    names: Sequence[str] = ()


def scatter(title: str, dots: Sequence[Dots], x: str, y: str) -> str:
    """Two percentages against each other as one `<svg>` element; dots on the diagonal agree."""

    def draw(axes: Any) -> None:
        axes.plot([0, 100], [0, 100], color=INK, lw=0.8, alpha=0.4)
        for place, group in enumerate(dots):
            colour = PALETTE[place % len(PALETTE)]
            across, up = 100 * np.asarray(group.x, np.float64), 100 * np.asarray(group.y, np.float64)
            axes.plot(across, up, "o", color=colour, ms=5, alpha=0.85, label=group.label)
            for name, left, high in zip(group.names, across, up, strict=False):
                axes.annotate(name, (left, high), xytext=(4, 3), textcoords="offset points", fontsize=7, color=colour)
        axes.set_xlabel(x, color=INK)
        axes.set_ylabel(y, color=INK)
        axes.set_xlim(-4, 104)
        axes.set_ylim(-4, 104)
        axes.set_aspect("equal")

    return _inline(render(_figure(title, (4.2, 3.9), draw, legend=len(dots) > 1), title).decode())


def curve_figure(title: str, series: Sequence[Series], unit: str = "") -> Any:
    """Lines over steps as matplotlib's figure, for `render`."""
    from matplotlib.ticker import MaxNLocator

    def draw(axes: Any) -> None:
        for place, line in enumerate(series):
            colour = PALETTE[place % len(PALETTE)]
            values = np.asarray(line.values, np.float64) * (100 if unit == "%" else 1)
            few = len(values) <= SMOOTH_FROM
            axes.plot(line.steps, values, color=colour, lw=1.6 if few else 0.7, alpha=1 if few else 0.35)
            if few:
                axes.plot(line.steps, values, ".", color=colour, ms=4 if len(values) > 1 else 9)
            else:
                axes.plot(line.steps, running_mean(values, len(values) // 20 + 1), color=colour, lw=1.6)
            axes.plot([], [], color=colour, lw=1.6, label=line.label)
        axes.set_xlabel("step", color=INK)
        axes.set_ylabel(unit, color=INK)
        steps = {step for line in series for step in line.steps}
        if len(steps) == 1:
            axes.set_xticks(list(steps))
        else:
            axes.xaxis.set_major_locator(MaxNLocator(nbins=8, integer=True))
        if unit == "%":
            axes.set_ylim(-2, 102)
        low, high = axes.get_ylim()
        if high - low < (slack := 1e-3 * max(abs(low), abs(high))):  # one level, but for the last digits of its floats
            axes.set_ylim(low - 50 * slack, high + 50 * slack)

    return _figure(title, (4.6, 2.7), draw, legend=len(series) > 1)


def _figure(title: str, size: tuple[float, float], draw: Callable[[Any], None], legend: bool) -> Any:
    """A figure in the house's style around what `draw` puts on its axes."""
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=size, layout="constrained")
        figure.patch.set_alpha(0)
        axes = figure.add_subplot()
        draw(axes)
        axes.set_title(textwrap.fill(title, TITLE_WIDTH), loc="left", fontsize=9.5, color=INK)
        axes.patch.set_alpha(0)
        axes.grid(axis="y", color=INK, alpha=0.12, lw=0.6)
        axes.tick_params(colors=INK, length=0)
        for side, spine in axes.spines.items():
            spine.set_visible(side == "bottom")
            spine.set_edgecolor(INK)
            spine.set_alpha(0.4)
        if legend:
            axes.legend(frameon=False, labelcolor=INK, fontsize=8, handlelength=1.4)
    return figure


def render(figure: Any, title: str, kind: str = "svg") -> bytes:
    """A figure as a file of that kind; the same data gives the same bytes."""
    import matplotlib

    metadata = {"Date": None, "Creator": None} if kind == "svg" else {"CreationDate": None, "Creator": None}
    buffer = io.BytesIO()
    with matplotlib.rc_context({**STYLE, "svg.hashsalt": title}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph")  # the reader's fonts decide, not ours
        figure.savefig(buffer, format=kind, metadata=metadata)
    return buffer.getvalue()


def running_mean(values: np.ndarray, width: int) -> np.ndarray:
    """Mean over a window of `width` to both sides, narrower towards the ends so that it stays centred."""
    sums = np.concatenate([[0.0], np.cumsum(values)])
    place = np.arange(len(values))
    reach = np.minimum(width, np.minimum(place, len(values) - 1 - place))
    return np.asarray((sums[place + reach + 1] - sums[place - reach]) / (2 * reach + 1))


def _inline(svg: str) -> str:
    """Only the `<svg>` element, in the page's colour, font and width."""
    svg = svg[svg.index("<svg") :].replace(INK, "currentColor")
    svg = re.sub(r"font: ([\d.]+px) ", r"font-size: \1; font-family: ", svg)
    svg = re.sub(r"font-family: [^;\"]*", "font-family: inherit", svg)
    svg = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", svg, count=1)
    svg = re.sub(r'(<svg[^>]*?) height="[^"]*"', r'\1 role="img"', svg, count=1)
    return re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)


# Curves of a page: as SVG, written directly, for matplotlib takes a fifth of a second for each ------------------------


WIDTH, PLOT, LEFT, RIGHT, FOOT = 460, 170, 62, 22, 38
"""Width of a figure, height of its axes, and what stands beside and below them."""
LINE = 16
"""Height of a line of text."""
MAX_POINTS = 400  # of a line: more cannot be told apart at this width


def curves(title: str, series: Sequence[Series], unit: str = "") -> str:
    """Lines over steps as one `<svg>` element: title, legend where there are several, axes, lines.

    With links its points are data for the board's script; without the script the figure is still whole.
    """
    scale = 100.0 if unit == "%" else 1.0
    lines = [thin(*finite(np.asarray(one.steps), np.asarray(one.values, np.float64) * scale)) for one in series]
    parts = [
        _text(0, LINE * (row + 0.8), line, 'font-size="13"')
        for row, line in enumerate(textwrap.wrap(printable(title), TITLE_WIDTH))
    ]
    top = LINE * len(parts) + 6
    if len(series) > 1:
        legend, rows = _legend([printable(one.label) for one in series], top)
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
    for place, (one, (at, values)) in enumerate(zip(series, lines, strict=True)):
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
        colour, data = PALETTE[place % len(PALETTE)], ""
        if one.link is not None:
            places = [
                [int(step), round(float(value), 6), round(x(step), 1), round(y(value), 1)]
                for step, value in zip(at, values, strict=True)
            ]
            kept = ",".join(map(str, one.kept))
            data = f' class="series" data-label="{escape(printable(one.label))}" data-link="{escape(one.link)}"'
            data += f' data-kept="{kept}" data-points="{json.dumps(places)}"'
        parts.append(f'<g stroke="{colour}" fill="{colour}"{data}>{"".join(drawn)}</g>')
    live = ""
    if any(one.link is not None for one in series):
        live = ' class="curve" tabindex="0"'
        parts.append(f'<line class="cursor" y1="{top}" y2="{top + PLOT}" hidden/>')
    return (
        f'<svg viewBox="0 0 {WIDTH} {top + PLOT + FOOT}" role="img" aria-label="{escape(printable(title))}"{live} '
        f'fill="currentColor" font-family="inherit" font-size="11">{"".join(parts)}</svg>'
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
