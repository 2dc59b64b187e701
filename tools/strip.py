"""Draw the README's strip of a grid, a web page and a video: `python -m tools.strip`, 40 minutes on a core.

Three recipes train small models into `runs/strip`; finished runs are used again. A row is the first test case of a run,
whatever the model made of it: state, action, predicted and true next state, with what is wrong marked.
"""

from __future__ import annotations

import re
import textwrap
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import oneiro
from oneiro.board.draw import FRAME, grid
from oneiro.models import language as languages
from oneiro.models.video.tokenizer import images
from oneiro.recipe import load
from oneiro.report.figures import contact_sheet
from oneiro.rundir.records import read_lines
from oneiro.rundir.run import Run
from oneiro.runtime.errors import OneiroError
from oneiro.runtime.files import write_text
from oneiro.tasks.base import Malformed
from oneiro.tasks.task import AFTER
from oneiro.tasks.video.evaluation import Measured
from oneiro.tasks.video.task import VideoTask
from oneiro.tasks.webpage.predictor import WebPagePredictor
from oneiro.tasks.webpage.prompt import action_text
from oneiro.tasks.webpage.state import PageTransition
from oneiro.tasks.webpage.task import WebPageTask
from oneiro_web.diff import Diff

TARGET = Path(__file__).parents[1] / "docs/images/strip.svg"
RUNS = Path("runs/strip")
COLUMNS = {"state": 16, "action": 184, "predicted": 316, "true": 484}
"""Where a column begins. A phone shows the picture at half its size: text is large and wraps."""
WIDTH, SIDE, LINE, GAP = 640, 140, 25, 24
"""In pixels: the picture's width, the side of a grid or frame, a line of text, the space below a row."""
CHARACTERS, LONGEST, MOST = 13, 4, 5
"""Of a line of text; lines that a line of a page is wrapped to at most; lines of a page that a cell shows."""
INDENT = "\u2002"
AXES = ("x", "y", "z", "grip")
ARROWS = {"Left": "←", "Right": "→", "Up": "↑", "Down": "↓"}
STYLE = """
svg { font-family: sans-serif; font-size: 20px; fill: #3b4650 } .small { font-size: 16px }
image { image-rendering: pixelated }
.cell > rect { fill: #e6eff6 } .dark { fill: #2b4a63 } .me { fill: #2864b8 }
.flag { fill: #1f7a4d; stroke: #1f7a4d; stroke-width: 2 }
.lost { stroke: #fff; stroke-width: 3 } .differs { fill: none; stroke: #c8321e; stroke-width: 3 }
.wrong { fill: #c8321e; text-decoration: underline }
"""

Frame = NDArray[np.uint8]
Line = tuple[str, bool]
"""A text, and whether it is wrong."""


@dataclass(frozen=True)
class Box:
    """What stands in one column of a row, drawn from 0, 0."""

    svg: str
    height: int


Boxes = tuple[Box, Box, Box, Box]
"""State, action, prediction, truth."""


def write_lines(lines: Sequence[Line], characters: int = CHARACTERS) -> Box:
    parts = [
        (part, wrong)
        for text, wrong in lines
        for part in textwrap.wrap(text, characters, subsequent_indent=INDENT, max_lines=LONGEST, placeholder=" …")
    ]
    texts = [
        f'<text x="{10 * part.startswith(INDENT)}" y="{20 + LINE * row}" class="{"wrong" if wrong else "right"}">'
        f"{escape(part.strip(), quote=False)}</text>"
        for row, (part, wrong) in enumerate(parts)
    ]
    return Box("".join(texts), LINE * len(parts))


# Rows


def draw_grid_row(episode: Mapping[str, Any]) -> Boxes:
    """The first step of an episode in a grid."""
    turn, world = episode["turns"][0], episode["world"]

    def draw_grid(text: str | None, truth: str | None = None) -> Box:
        drawn = grid(text, world, truth)
        if drawn is None:
            return write_lines([("no grid", True)])
        return Box(re.sub(r'width="\d+"', f'width="{SIDE}" height="{SIDE}"', str(drawn), count=1), SIDE)

    action, true = turn["actions"][0], turn["next_state"]
    named = write_lines([(f"{ARROWS.get(action, '')} {action}", False)])
    return draw_grid(turn["state"]), named, draw_grid(turn["prediction"], true), draw_grid(true)


def draw_page_row(task: WebPagePredictor, case: PageTransition, reply: str) -> Boxes:
    """The lines of a page that an action changes, or was predicted to change."""
    true, read = task.truth(case), task.parse(reply, case)
    predicted = Diff() if isinstance(read, Malformed) else read.change
    touched = {item.id for change in (true, predicted) for item in (*change.deleted, *change.updated)}
    before = [item.line for item in case.state.items if item.id in touched]
    truth, claimed = changed_lines(true), changed_lines(predicted)
    missing = len(truth.keys() - claimed.keys())
    verdict = [(f"{missing} missing", True)] if missing else []
    action = " ".join(re.sub(r"^\[\d+\] ", "", line) for line in action_text(case).split("\n"))
    return (
        write_lines(cut([(line, False) for line in before])),
        write_lines([(action, False)], CHARACTERS - 3),
        write_lines(cut([(line, truth.get(key) != line) for key, line in claimed.items()]) + verdict),
        write_lines(cut([(line, False) for line in truth.values()])),
    )


def changed_lines(change: Diff) -> dict[tuple[str, int], str]:
    """Updated lines in their new form, then `+` new and `−` deleted ones, by this sign and their id."""
    blocks = {"": change.updated, "+ ": change.new, "− ": change.deleted}
    return {(sign, item.id): sign + item.line for sign, items in blocks.items() for item in items}


def cut(lines: Sequence[Line]) -> list[Line]:
    left = len(lines) - MOST
    return [*lines[:MOST], *([(f"{left} more", any(wrong for _, wrong in lines[MOST:]))] if left > 0 else [])]


def draw_video_row(state: Frame, actions: NDArray[np.float32], predicted: Frame, true: Frame) -> Boxes:
    """The frame that is given, the mean of the actions that follow, the last frame after them."""

    def draw_frame(frame: Frame) -> Box:
        address = FRAME + b64encode(contact_sheet(frame[None])).decode()
        return Box(f'<image width="{SIDE}" height="{SIDE}" href="{address}"/>', SIDE)

    numbers = [(f"{axis} {number:+.2f}", False) for axis, number in zip(AXES, actions.mean(axis=0), strict=False)]
    named = write_lines([(f"{len(actions)} moves,", False), ("mean", False), *numbers])
    return draw_frame(state), named, draw_frame(predicted), draw_frame(true)


# Runs


def read_grid(run: Run, recipe: Any) -> Boxes:
    return draw_grid_row(next(read_lines(run.path / "episodes/evaluate-spa-000000.jsonl.gz")))


def read_page(run: Run, recipe: Any) -> Boxes:
    task = WebPageTask(recipe, run)
    episode = next(read_lines(run.path / "episodes/evaluate-rlvr-000000.jsonl.gz"))
    case = next(case for case in task.data.test if case.id == episode["task"])
    return draw_page_row(task.predictor, case, episode["turns"][0]["reply"])


def read_video(run: Run, recipe: Any) -> Boxes:
    task = VideoTask(recipe, run)
    frames, past = Measured.load(run.path / f"evaluation/{AFTER}.npz").frames, task.predictor.layout.past
    if frames is None:
        raise OneiroError(f"{run.path} kept no predicted frames; let it run again")
    clips = task.data.test.cut(task.data.test_windows[:1])
    made = images(task.predictor.decode(task.predictor.encode(clips).context, frames[:1]))
    return draw_video_row(clips.images[0, past - 1], clips.actions[0, past - 1 : -1], made[0, -1], clips.images[0, -1])


@dataclass(frozen=True)
class StripRow:
    """A row of the strip: the recipe that trains its model, the stage it comes from, and how its first test case is
    drawn."""

    name: str
    recipe: str
    overrides: tuple[str, ...]
    stage: str
    read: Callable[[Run, Any], Boxes]

    def draw(self) -> tuple[str, str, Boxes]:
        recipe = load(self.recipe, self.overrides)
        run = oneiro.run(recipe, RUNS / self.recipe.replace("/", "-"))
        size = languages.load(str(run.path / "checkpoints" / self.stage)).backbone.shape.parameters
        presets = [word for word in self.overrides if word.startswith("preset=")]
        made_by = f"{' '.join([self.recipe, *presets])}, {size / 1e6:.1f}M parameters"
        return self.name, made_by, self.read(run, recipe)


ROWS = (
    StripRow("Grid", "spa/frozen-lake", ("variants=[spa]", "workers=1"), "rl-spa", read_grid),
    StripRow("Web page", "rlvr/web-page", ("preset=content", "rl.steps=40", "sft_continued=null"), "rl", read_page),
    StripRow("Video", "rlvr/video-multi", ("preset=quick",), "rl", read_video),
)


def draw_picture(rows: Sequence[tuple[str, str, Boxes]]) -> str:
    """Rows of a name, what made them, and their cells."""
    parts = [f'<text x="{left}" y="34" font-weight="bold">{name}</text>' for name, left in COLUMNS.items()]
    top = 48
    for name, made_by, cells in rows:
        parts.append(f'<path d="M16 {top}H{WIDTH - 16}" stroke="#c9d1d8"/>')
        title = f'<tspan font-weight="bold">{escape(name)}</tspan> <tspan class="small">{escape(made_by)}</tspan>'
        parts.append(f'<text x="16" y="{top + 28}">{title}</text>')
        top += 44
        for left, cell in zip(COLUMNS.values(), cells, strict=True):
            parts.append(f'<g transform="translate({left} {top})">{cell.svg}</g>')
        top += max(cell.height for cell in cells) + GAP
    size = f'width="{WIDTH}" height="{top}" viewBox="0 0 {WIDTH} {top}"'
    # A background of its own: pages may be dark.
    parts.insert(0, f'<rect width="{WIDTH}" height="{top}" rx="10" fill="#fff"/>')
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size}><style>{STYLE}</style>\n' + "\n".join(parts) + "\n</svg>\n"


if __name__ == "__main__":
    write_text(TARGET, draw_picture([row.draw() for row in ROWS]))
