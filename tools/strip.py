"""Draw the README's strip from a finished demo: `python -m tools.strip runs/demo`.

It shows the first test episode on a lake with holes that reached the goal in so many steps and predicted a tile wrong:
state, action, predicted and true next state, wrong tiles framed.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

from oneiro.board.draw import grid
from oneiro.rundir.records import read_lines
from oneiro.runtime.errors import OneiroError
from oneiro.runtime.files import write_text

TARGET = Path(__file__).parents[1] / "docs/images/strip.svg"
STEPS, SIDE, GAP, LABELS = 5, 104, 34, 112
"""Steps shown, and in pixels: a grid's side, what is between two, the room for the rows' names."""
ROWS = {"state": 30, "prediction": 168, "next_state": 284}
NAMES = {"state": "state", "prediction": "predicted", "next_state": "true"}
ARROWS = {"Left": "←", "Right": "→", "Up": "↑", "Down": "↓"}
STYLE = """
svg { font-family: sans-serif; font-size: 18px; fill: #3b4650 }
.cell > rect { fill: #e6eff6 } .dark { fill: #2b4a63 } .me { fill: #2864b8 }
.flag { fill: #1f7a4d; stroke: #1f7a4d; stroke-width: 2 }
.lost { stroke: #fff; stroke-width: 3 } .differs { fill: none; stroke: #c8321e; stroke-width: 3 }
"""


def is_shown(episode: dict[str, Any]) -> bool:
    """Whether the strip shows all it is about: holes, so many steps to the goal, and a wrong prediction."""
    turns = episode["turns"]
    wrong = [turn for turn in turns if turn.get("prediction") != turn["next_state"]]
    right_form = len(turns) == STEPS and "O" in turns[0]["state"] and all(turn.get("prediction") for turn in turns)
    return bool(right_form and episode["success"] and wrong)


def draw(episode: dict[str, Any]) -> str:
    width, height = LABELS + STEPS * (SIDE + GAP), max(ROWS.values()) + SIDE + 30
    parts = [f'<rect width="{width}" height="{height}" rx="10" fill="#fff"/>']
    parts += [f'<text x="16" y="{top + 57}">{NAMES[row]}</text>' for row, top in ROWS.items()]
    for step, turn in enumerate(episode["turns"]):
        left, action = LABELS + step * (SIDE + GAP), turn["actions"][0]
        place = f'x="{left + SIDE // 2}" y="{ROWS["state"] + SIDE + 24}"'
        parts.append(f'<text {place} text-anchor="middle" font-weight="bold">{ARROWS[action]} {action}</text>')
        for row, top in ROWS.items():
            tiles = grid(turn[row], episode["world"], turn["next_state"] if row == "prediction" else None)
            if tiles is None:
                raise OneiroError(f"{episode['world']} is no grid; draw a run of the demo")
            size = f'x="{left}" y="{top}" width="{SIDE}" height="{SIDE}"'
            parts.append(re.sub(r'<svg (.*?) width="\d+"', rf"<svg {size} \1", str(tiles), count=1))
    size = f'viewBox="0 0 {width} {height}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size}><style>{STYLE}</style>\n' + "\n".join(parts) + "\n</svg>\n"


def main(run: Path) -> None:
    episodes = (row for file in sorted((run / "episodes").glob("evaluate-spa-*.jsonl.gz")) for row in read_lines(file))
    episode = next(filter(is_shown, episodes), None)
    if episode is None:
        raise OneiroError(
            f"no test episode of {run} has holes and {STEPS} steps, reaches the goal and predicts a tile wrong"
        )
    write_text(TARGET, draw(episode))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
