"""SVG that the page's own stylesheet colours: histograms, sparklines and grids. Text comes out escaped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup, escape

from oneiro.report.episodes import MAX_PICTURE, PICTURE
from oneiro.report.plots import thin
from oneiro.runtime.errors import printable

CELL = 36
MAX_GRID = 32

# Glyph -> what is drawn. The same letter means another thing in another world.
LAKE = {"_": "ice", "O": "hole", "G": "goal", "P": "player", "X": "fallen", "√": "arrived"}
SOKOBAN = {
    "#": "wall",
    "_": "floor",
    "O": "target",
    "√": "stored",
    "X": "box",
    "P": "player floor",
    "S": "player-target",
}
PHYSICS = {".": "floor", "@": "player floor", "*": "goal"}  # the others are drawn anew for each room
GLYPHS = {"frozen-lake": LAKE, "sokoban": SOKOBAN, "physics": PHYSICS}
FRAME = "data:image/png;base64,"


def sparkline(values: Sequence[float]) -> Markup:
    """A line without axes, for a cell of a table."""
    _, kept = thin(range(len(values)), np.asarray(values, np.float64))
    low, high = float(kept.min()), float(kept.max())
    points = " ".join(
        f"{2 + 96 * place / max(1, len(kept) - 1):.1f},{22 - 20 * (value - low) / ((high - low) or 1):.1f}"
        for place, value in enumerate(kept)
    )
    return Markup(f'<svg class="spark" viewBox="0 0 100 24" aria-hidden="true"><polyline points="{points}"/></svg>')


@dataclass(frozen=True)
class HistogramBar:
    """Scores from `low` to `high`, both included in the last bar of a histogram and where they are the same."""

    low: float
    high: float
    count: int


def histogram(scores: Sequence[float], most: int = 12) -> list[HistogramBar]:
    """A bar for each score where there are few, else equal parts of their range."""
    values, counts = np.unique(np.asarray(scores, np.float64), return_counts=True)
    if len(values) <= most:
        return [
            HistogramBar(float(value), float(value), int(count)) for value, count in zip(values, counts, strict=True)
        ]
    counts, edges = np.histogram(scores, bins=most)
    return [HistogramBar(float(edges[i]), float(edges[i + 1]), int(counts[i])) for i in range(most)]


def in_bar(score: float, bar: HistogramBar, last: bool) -> bool:
    return bar.low <= score < bar.high or score == bar.low or (last and score == bar.high)


# States


def picture(text: str | None, world: str, truth: str | None = None) -> Markup | None:
    """A state as a picture: a frame of a video, or a grid; None where it is words."""
    if (text or "").startswith(FRAME):
        data = (text or "").removeprefix(FRAME)
        fine = len(data) <= MAX_PICTURE and PICTURE.fullmatch(data)
        return Markup(f'<img class="frame" alt="a frame" src="{FRAME}{data}">') if fine else None
    if world.startswith("physics"):  # below the room stand the tile under the walker and what the rules remember
        (room, _, memory), true_room = (text or "").rpartition("\n"), (truth or "").rpartition("\n")[0]
        drawn = grid(room, world, true_room or None)
        return drawn and drawn + Markup('<p class="caption">stands on and remembers: {}</p>').format(printable(memory))
    return grid(text, world, truth)


def grid_cells(text: str | None) -> list[list[str]] | None:
    """The cells of a state that is drawn with one character a cell; None where the text is no such grid."""
    lines = (text or "").strip("\n").split("\n")
    if not 2 <= len(lines) <= MAX_GRID:
        return None
    rows = [line.split(" ") if " " in lines[0].strip() else list(line) for line in lines]
    widths = {len(row) for row in rows}
    regular = len(widths) == 1 and 2 <= widths.copy().pop() <= MAX_GRID
    return rows if regular and all(len(cell) == 1 for row in rows for cell in row) else None


def grid(text: str | None, world: str, truth: str | None = None) -> Markup | None:
    """A picture of a grid, cells framed where they are not as in `truth`; None where the text is no grid."""
    cells, true_cells = grid_cells(text), grid_cells(truth)
    if cells is None:
        return None
    known: Mapping[str, str] = next((glyphs for name, glyphs in GLYPHS.items() if world.startswith(name)), {})
    width, height = len(cells[0]) * CELL, len(cells) * CELL
    parts, frames = [], []
    for row, line in enumerate(cells):
        for column, glyph in enumerate(line):
            kind = known.get(glyph, "other")
            letter = "" if glyph in (known or "_.") else f"<text>{escape(printable(glyph))}</text>"
            place = f"translate({column * CELL} {row * CELL})"
            parts.append(f'<g class="cell {kind}" transform="{place}">{_shape_of(kind.partition(" ")[0])}{letter}</g>')
            if true_cells is not None and not _same(true_cells, row, column, glyph):
                left, top = column * CELL + 2, row * CELL + 2
                frames.append(f'<rect class="differs" x="{left}" y="{top}" width="32" height="32" rx="6"/>')
    label = escape(printable(" / ".join(" ".join(line) for line in cells)))
    inside = "".join(parts) + "".join(frames)
    return Markup(
        f'<svg class="world" viewBox="0 0 {width} {height}" width="{width}" role="img" aria-label="{label}">'
        f"{inside}</svg>"
    )


def _same(cells: list[list[str]], row: int, column: int, glyph: str) -> bool:
    return row < len(cells) and column < len(cells[row]) and cells[row][column] == glyph


def _shape_of(kind: str) -> str:
    base = '<rect x="1" y="1" width="34" height="34" rx="5"/>'
    shapes = {
        "hole": '<circle class="dark" cx="18" cy="18" r="12"/>',
        "goal": '<path class="flag" d="M13 28V8l12 5-12 5"/>',
        "player": '<circle class="me" cx="18" cy="18" r="9"/>',
        "fallen": '<circle class="dark" cx="18" cy="18" r="12"/><path class="lost" d="M12 12l12 12M24 12L12 24"/>',
        "arrived": '<path class="flag" d="M8 29V6l12 5-12 5"/><circle class="me" cx="21" cy="22" r="8"/>',
        "target": '<circle class="aim" cx="18" cy="18" r="5"/>',
        "box": '<rect class="crate" x="7" y="7" width="22" height="22" rx="3"/>',
        "stored": '<rect class="crate home" x="7" y="7" width="22" height="22" rx="3"/>'
        '<path class="tick" d="M12 18l4 5 8-10"/>',
        "player-target": '<circle class="aim" cx="18" cy="18" r="13"/><circle class="me" cx="18" cy="18" r="9"/>',
    }
    return base + shapes.get(kind, "")
