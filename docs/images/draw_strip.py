"""Draw the README's strip from a run of spa/frozen-lake: states, actions, predicted and true next states.

python docs/images/draw_strip.py runs/demo --episode 9
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from oneiro.rundir.records import read_lines
from oneiro.runtime.files import write_text

CELL, GAP, LEFT, TOP = 26, 34, 112, 30
ROWS = ("state", "predicted", "true")
ARROWS = {"Up": "↑", "Down": "↓", "Left": "←", "Right": "→"}
ICE, HOLE, WALKER, GOAL, WRONG, INK = "#e6eff6", "#2b4a63", "#2864b8", "#1f7a4d", "#c0264b", "#3b4650"


def main() -> None:
    arguments = argparse.ArgumentParser(description="Draw the README's strip.")
    arguments.add_argument("run", type=Path, help="a finished run of spa/frozen-lake")
    arguments.add_argument("--episode", type=int, default=0, help="which evaluation episode")
    arguments.add_argument("--turns", type=int, default=5, help="turns to draw, from the first")
    arguments.add_argument("--out", type=Path, default=Path(__file__).with_name("strip.svg"))
    chosen = arguments.parse_args()
    episodes = list(read_lines(chosen.run / "episodes" / "evaluate-spa-000000.jsonl.gz"))
    write_text(chosen.out, draw(episodes[chosen.episode]["turns"][: chosen.turns]))


def draw(turns: list[dict[str, Any]]) -> str:
    side = CELL * len(turns[0]["state"].splitlines())
    tops = [TOP, TOP + side + GAP, TOP + 2 * side + GAP + 12]  # the action stands between state and prediction
    width, height = LEFT + len(turns) * (side + GAP), tops[-1] + side + TOP
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" '
        f'font-size="18" fill="{INK}">',
        # A background of its own: pages may be dark.
        f'<rect width="{width}" height="{height}" rx="10" fill="#ffffff"/>',
    ]
    for y, name in zip(tops, ROWS, strict=True):
        parts.append(f'<text x="16" y="{y + side / 2 + 5:.0f}">{name}</text>')
        for column, turn in enumerate(turns):
            x = LEFT + column * (side + GAP)
            state = {"state": turn["state"], "predicted": turn["prediction"] or "", "true": turn["next_state"]}[name]
            parts += lake(x, y, state, turn["next_state"] if name == "predicted" else state)
            if name == "state":
                action = turn["actions"][0]
                at = f'x="{x + side / 2:.0f}" y="{y + side + GAP - 10}" text-anchor="middle"'
                parts.append(f'<text {at} font-weight="bold">{ARROWS[action]} {action}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def lake(x: int, y: int, state: str, truth: str) -> Iterator[str]:
    """A lake at x, y; tiles that differ from the truth have a red frame."""
    true = [line.split() for line in truth.splitlines()]
    for row, line in enumerate(state.splitlines()):
        for column, tile in enumerate(line.split()):
            left, top = x + column * CELL, y + row * CELL
            wrong = true[row][column] != tile
            frame = f' stroke="{WRONG}" stroke-width="2.5"' if wrong else ""
            square = f'x="{left + 1}" y="{top + 1}" width="{CELL - 2}" height="{CELL - 2}" rx="4"'
            yield f'<rect {square} fill="{ICE}"{frame}/>'
            middle = f'cx="{left + CELL / 2:.0f}" cy="{top + CELL / 2:.0f}"'
            if tile in "OX":
                yield f'<circle {middle} r="{CELL * 0.36:.1f}" fill="{HOLE}"/>'
            if tile in "G√":
                flag = f"M{left + 8} {top + 21} V{top + 5} L{left + 20} {top + 9} L{left + 9} {top + 14}"
                yield f'<path d="{flag}" fill="{GOAL}" stroke="{GOAL}" stroke-width="2"/>'
            if tile in "PX√":
                yield f'<circle {middle} r="{CELL * 0.24:.1f}" fill="{WALKER}"/>'


if __name__ == "__main__":
    main()
