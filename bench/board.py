"""`oneiro bench board`: how long the board's pages take over many runs and many episodes.

The first request of a page reads files; later ones find what it kept. The browser's own time is not in it.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from statistics import median

from pydantic import Field
from starlette.testclient import TestClient

from bench.measure import seconds_of
from oneiro.board.server import make_app
from oneiro.board.views import link
from oneiro.recipe import Recipe, Settings
from oneiro.report.table import Cell, Table
from oneiro.rundir.run import Run

STEPS = 100
"""Of the large run that keep episodes: a thousand each, as many as a large RL step has."""
STATE, AFTER = "P _ _ _\n_ O _ _\n_ _ _ O\n_ _ _ G", "_ P _ _\n_ O _ _\n_ _ _ O\n_ _ _ G"
LARGE, SMALL = "large", "small-0000"


class BoardSettings(Settings):
    runs: int = Field(1000, ge=2)
    rows: int = Field(100_000, ge=STEPS)
    """Episodes of one of the runs."""
    rounds: int = Field(5, ge=1)


def run(model: str | None = None, **options: int) -> list[Table]:
    settings = BoardSettings.model_validate(options)
    with tempfile.TemporaryDirectory(prefix="oneiro-bench-") as scratch:
        write_runs(Path(scratch), settings)
        return [measure(Path(scratch), settings)]


def write_runs(folder: Path, settings: BoardSettings) -> None:
    """Copies of one small run, and a large one."""
    write_run(folder / SMALL, steps=2, episodes=16)
    for number in range(1, settings.runs - 1):
        shutil.copytree(folder / SMALL, folder / f"small-{number:04d}")
    write_run(folder / LARGE, STEPS, settings.rows)


def write_run(path: Path, steps: int, episodes: int) -> None:
    """A finished run whose steps keep so many episodes in all, eight a group."""
    table = Table("Success", ["agent", "success"], {"success": "%"})
    table.add("agent", Cell(0.5, 0.4, 0.6, 100))
    turn = {"state": STATE, "prediction": AFTER, "next_state": AFTER, "reply": "<answer>Right</answer>"}
    shown = {"world": "frozen-lake", "finish_reason": "goal", "turns": [{**turn, "actions": ["Right"]}] * 4}
    with Run.open(path, Recipe(system="toy", about="a run to look at")) as toy:
        toy.stage("rl", lambda: None)
        for step in range(1, steps + 1):
            toy.log("rl", step, {"success": step / steps, "loss": 1 / step})
            toy.episodes(
                "rl",
                step,
                (
                    {**shown, "task": f"level {n // 8}", "group": n // 8, "score": n % 8 / 8, "success": n % 2 == 0}
                    for n in range(episodes // steps)
                ),
            )
        toy.summary({"tables": [table.data()]})
        toy.finish()


def pages() -> Iterator[tuple[str, str]]:
    yield "all runs", "/"
    yield "a run", link("/run", run=LARGE)
    yield "a step", link("/step", run=LARGE, stage="rl", step=STEPS // 2)
    yield "a step, searched", link("/step", run=LARGE, stage="rl", step=STEPS // 2, q="level 7")
    yield "an episode", link("/episode", run=LARGE, stage="rl", step=STEPS // 2, at=0)
    yield "two runs compared", link("/compare", run=[LARGE, SMALL])


def measure(folder: Path, settings: BoardSettings) -> Table:
    table = Table(
        f"The board over {settings.runs} runs, one of {settings.rows} episodes",
        ["page", "first, ms", "again, ms", "kB"],
        note="The first request of each page by a new board, and the median of the next.",
    )
    for name, address in pages():
        with TestClient(make_app([folder]), base_url="http://127.0.0.1") as client:
            get = partial(client.get, address)
            first, *later = (seconds_of(get) for _ in range(1 + settings.rounds))
            answer = get().raise_for_status()
        table.add(name, 1000 * first, 1000 * median(later), len(answer.content) / 1000)
    return table
