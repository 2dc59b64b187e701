"""Curves for papers, and scatter plots as inline SVG that takes the page's own text colour, in light and in dark."""

from __future__ import annotations

import io
import re
import textwrap
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

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


@dataclass(frozen=True)
class Dots:
    """One colour of a scatter plot: shares from 0 to 1 on both axes, and a name for each dot."""

    label: str
    x: Sequence[float]
    y: Sequence[float]
    names: Sequence[str] = ()


def scatter(title: str, dots: Sequence[Dots], x: str, y: str, size: tuple[float, float] = (4.2, 3.9)) -> str:
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

    return _inline(render(_figure(title, size, draw, legend=len(dots) > 1), title).decode())


def curve_figure(title: str, series: Sequence[Series], unit: str = "", size: tuple[float, float] = (4.6, 2.7)) -> Any:
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

    return _figure(title, size, draw, legend=len(series) > 1)


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
