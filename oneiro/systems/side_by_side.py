"""Stages of one run in several processes: what does not depend on one another is trained at the same time.

    side_by_side(run, train_variant, [(recipe, name) for name in recipe.variants], workers=3)

Each process opens the run as a `SharedRun` and does whole stages of it. The process that holds the run only waits, so
the files that all stages share (`run.json`, `metrics.jsonl`, `timings.jsonl`) have one writer at a time. Afterwards
their rows are put in the order of the plan: the run ends with the same bytes, however the processes took turns.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from oneiro.recipe import read as read_recipe
from oneiro.rundir.records import read_info, read_log
from oneiro.rundir.run import METRICS, TIMINGS, Run
from oneiro.runtime import distributed
from oneiro.runtime.files import write_json, write_text
from oneiro.runtime.processes import each_done
from oneiro.runtime.progress import WIDTH


class SharedRun(Run):
    """A run that another process holds, in a process that does some of its stages."""

    @classmethod
    def of(cls, path: Path, plan: Sequence[str]) -> SharedRun:
        run = cls(path, -1)
        run.recipe, run.info = read_recipe(path / "recipe.yaml"), read_info(path)
        run.plan(plan)
        # Bars of several processes would draw over each other: lines instead.
        run._console = Console(force_terminal=False, width=WIDTH)
        run._own = set()
        return run

    _own: set[str]
    """The stages that this process does."""

    def stage(self, name: str, work: Callable[[], dict[str, Any] | None], main_only: bool = False) -> dict[str, Any]:
        self._own.add(name)
        return super().stage(name, work, main_only)

    def rewind(self, stage: str, step: int) -> None:
        with self._exclusive():
            super().rewind(stage, step)

    def _save(self) -> None:
        own = {name: stage for name, stage in self.info["stages"].items() if name in self._own}
        with self._exclusive():
            stored = read_info(self.path)
            # Of the rest, what others have written stands; a value remembered here is new to them.
            write_json(self.path / "run.json", {**self.info, **stored, "stages": stored["stages"] | own})

    def _append(self, name: str, text: str) -> None:
        with self._exclusive():
            super()._append(name, text)

    @contextlib.contextmanager
    def _exclusive(self) -> Iterator[None]:
        """Inside, no other process writes a file that they share."""
        with (self.path / ".writing").open("a") as lock:
            with contextlib.suppress(OSError):  # a file system without locks: appending is safe, rewinding nearly so
                fcntl.flock(lock, fcntl.LOCK_EX)
            yield


def side_by_side(run: Run, work: Callable[..., None], items: Sequence[tuple[Any, ...]], workers: int) -> None:
    """Call `work(run, *item)` for every item, up to `workers` at a time, each in a process of its own.

    One after the other in this process where one worker is asked for, where torchrun has made processes already, and
    where trackers listen, which belong to one process.
    """
    if min(workers, len(items)) < 2 or distributed.is_launched() or run.recipe.get("track"):
        for item in items:
            work(run, *item)
        return
    try:
        for _ in each_done(_serve, [(work, run.path, run.planned, item) for item in items], workers):
            pass
    finally:
        run.info = read_info(run.path)
    settle(run)


def _serve(work: Callable[..., None], path: Path, plan: Sequence[str], item: tuple[Any, ...]) -> None:
    run = SharedRun.of(path, plan)
    if (torch := sys.modules.get("torch")) is not None:
        torch.set_num_threads(run.info["threads"])
    work(run, *item)


def settle(run: Run) -> None:
    """Put stages and the rows they logged in the order of the plan."""
    place = {name: number for number, name in enumerate(run.planned)}
    for name in (METRICS, TIMINGS):
        rows = list(read_log(run.path / name))
        ordered = sorted(rows, key=lambda row: place.get(row["stage"], -1))
        if ordered != rows:
            write_text(run.path / name, "".join(json.dumps(row) + "\n" for row in ordered))
    run.info["stages"] = dict(sorted(run.info["stages"].items(), key=lambda stage: place.get(stage[0], -1)))
    write_json(run.path / "run.json", run.info)
