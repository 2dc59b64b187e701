"""Run folders as the board reads them: names, status, numbers, settings; files only."""

from __future__ import annotations

import contextlib
import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from oneiro.board.episodes import EpisodeFiles, MetricLine, Metrics, inside, remember
from oneiro.recipe import read as read_recipe
from oneiro.report.episodes import TRACES
from oneiro.report.page import read_summary
from oneiro.report.table import Cell, Table
from oneiro.rundir.records import read_info
from oneiro.rundir.run import METRICS, holds_run, require_run
from oneiro.runtime.errors import OneiroError

MAX_CACHED = 4096  # runs whose small files are remembered
MAX_DEPTH = 3  # folders below a given one that are searched for runs: `runs/sweep/seed-1`
RESCAN_S = 2.0  # new runs are noticed after this many seconds
SILENT_S = 120.0  # a run at work writes to log.txt every ten seconds
LOG_TAIL_BYTES = 4096
TIME_LEFT = re.compile(r"  (?P<title>[^:\n]{1,80}): (?P<done>\d+)/(?P<total>\d+) in [^\n]*?, (?P<left>[\d:]+) left")
TRIVIAL = ("random", "ceiling", "oracle", "perfect", "no change", "optimal", "best possible", "lookup", "copy", "bayes")
"""Rows of a table that frame the others."""
LEADING = ("success", "eval_success", "exact", "accuracy", "reward", "psnr", "ce", "loss")
"""What stands for a run while it has no table yet, the first that it logs."""

T = TypeVar("T")


@dataclass(eq=False)
class RunFolder:
    """One run, finished or not. Everything comes from files; damage is a line of words, never an exception."""

    name: str
    path: Path
    """Without links: `Runs` resolves it."""
    metrics_log: Metrics = field(default_factory=Metrics)

    def file(self, *parts: str) -> Path:
        """A file of this run; a link that leads out of it is refused."""
        return inside(self.path, *parts)

    def _read(self, name: str, read: Callable[[Path], T], default: T) -> T:
        try:
            return read(self.file(name))
        except (OneiroError, OSError, ValueError):
            return default

    @property
    def info(self) -> dict[str, Any]:
        return self._read("run.json", _read_info, {"stages": {}, "status": ""})

    @property
    def recipe(self) -> dict[str, Any]:
        return self._read("recipe.yaml", _read_recipe, {})

    @property
    def system(self) -> str:
        """From the first line that names it: reading the whole recipe takes a hundred times as long."""
        match = re.search(r"^system: *(.{1,80})$", self.recipe_text[:4096], re.MULTILINE)
        return match[1] if match else ""

    @property
    def recipe_text(self) -> str:
        return self._read("recipe.yaml", _read_text, "")

    @property
    def summary(self) -> dict[str, Any]:
        return self._read("summary.json", _read_summary, {})

    @property
    def tables(self) -> list[Table]:
        return [Table.read(data) for data in self.summary.get("tables", [])]

    @property
    def metrics(self) -> dict[tuple[str, str], MetricLine]:
        return self.metrics_log.read(self.file(METRICS))

    @property
    def started(self) -> str:
        return str(self.info.get("started", "")).replace("T", " ").removesuffix("+00:00")

    @property
    def status(self) -> str:
        """finished, stopped, running, or silent: it says that it runs and has not written for a while."""
        status = self.info.get("status")
        if status == "running":
            with contextlib.suppress(OSError, OneiroError):
                return "silent" if time.time() - self.file("log.txt").stat().st_mtime > SILENT_S else "running"
        return {"done": "finished", "stopped": "stopped", "running": "running"}.get(str(status), "unknown")

    @property
    def progress(self) -> list[tuple[str, float, str]]:
        """What is under way, as log.txt last said: title, share that is done, time left."""
        if self.status != "running":
            return []
        with contextlib.suppress(OSError, OneiroError), self.file("log.txt").open("rb") as handle:
            handle.seek(max(0, self.file("log.txt").stat().st_size - LOG_TAIL_BYTES))
            tail = handle.read().decode(errors="replace").splitlines()
            # Variants train side by side: the last line of each counts, as long as it was not its end.
            last = {line[21:].partition(": ")[0]: line for line in tail}
            matches = [match for line in last.values() if (match := TIME_LEFT.search(line))]
            return [(one["title"], int(one["done"]) / max(1, int(one["total"])), one["left"]) for one in matches]
        return []

    @property
    def planned(self) -> bool:
        """Whether a planner wrote down its decisions."""
        return (self.path / TRACES).is_file()

    def key_numbers(self, most: int = 3) -> list[tuple[str, Cell, Table, str]]:
        """(label, cell, its table, its column): the first measured column of the first table, without trivial rows."""
        for table in self.tables[:1]:
            for place, column in enumerate(table.columns):
                if place and any(row[place].measured for row in table.rows):
                    rows = [(str(row[0].value), row[place]) for row in table.rows if row[place].value is not None]
                    own = [row for row in rows if not row[0].lower().startswith(TRIVIAL)] or rows
                    last = dict(own)  # of rows with one name, as a variant's phases have it, the last
                    return [(label, cell, table, column) for label, cell in list(last.items())[-most:]]
        return []

    def leading_metric(self) -> tuple[str, str, MetricLine] | None:
        """Stage, key and line that stand for a run without tables: of the stage that logged last."""
        metrics = self.metrics
        for stage in dict.fromkeys(stage for stage, _ in reversed(metrics)):
            for key in LEADING:
                if (stage, key) in metrics:
                    return stage, key, metrics[stage, key]
        return None

    def curves(self) -> list[dict[str, Any]]:
        """What to plot: as its summary says, else every metric that was logged twice, leading ones first."""
        known = [dict(spec) for spec in self.summary.get("curves", [])]
        shown = {spec["key"] for spec in known}
        stages: dict[str, dict[str, str]] = {}
        for (stage, key), line in self.metrics.items():
            if key not in shown and len(line.steps) > 1:
                stages.setdefault(key, {})[stage] = stage
        order = sorted(stages, key=lambda key: (LEADING.index(key) if key in LEADING else len(LEADING), key))
        return [*known, *({"title": key, "key": key, "stages": stages[key]} for key in order)]

    @property
    def episodes(self) -> EpisodeFiles:
        return EpisodeFiles(self.path)

    def steps_kept(self) -> dict[str, list[int]]:
        """Stage -> the steps whose episodes were kept, ascending; stages in the order of the run."""
        files = self.episodes.steps()
        return {
            stage: sorted(files[stage]) for stage in dict.fromkeys((*self.info["stages"], *files)) if stage in files
        }


_remember = remember(MAX_CACHED)
_read_info = _remember(lambda path: read_info(path.parent))
_read_summary = _remember(lambda path: read_summary(path.parent))
_read_recipe = _remember(read_recipe)
_read_text = _remember(lambda path: path.read_text(encoding="utf-8", errors="replace"))


class Runs:
    """All runs in the given folders, by name. New ones appear while the board is open."""

    def __init__(self, places: Sequence[Path]) -> None:
        self.places = [place.resolve() for place in places]
        for place in self.places:
            if not place.is_dir():
                raise OneiroError(f"there is no folder {place}; give runs, or a folder that holds some")
        self._lock = threading.Lock()
        self._runs: dict[str, RunFolder] = {}
        self._scanned = float("-inf")
        if len(self.places) == 1 and not self.all():
            require_run(self.places[0])

    def all(self) -> dict[str, RunFolder]:
        with self._lock:
            if time.monotonic() - self._scanned > RESCAN_S:
                known = {run.path: run for run in self._runs.values()}
                self._runs = {name: known.get(path) or RunFolder(name, path) for name, path in self._named_paths()}
                self._scanned = time.monotonic()
            return self._runs

    def __getitem__(self, name: str) -> RunFolder:
        run = self.all().get(name)
        if run is None:
            raise OneiroError(f"no run is called {name}")
        return run

    def _named_paths(self) -> Iterator[tuple[str, Path]]:
        used: set[str] = set()
        for place in self.places:
            for path in [place] if holds_run(place) else _below(place, place, MAX_DEPTH):
                name = place.name if path == place else path.relative_to(place).as_posix()
                name = name if name not in used else f"{place.name}/{name}"
                name = name if name not in used else str(path)
                if name not in used:  # given twice
                    used.add(name)
                    yield name, path


def _below(folder: Path, root: Path, depth: int) -> Iterator[Path]:
    with contextlib.suppress(OSError):
        for entry in sorted(folder.iterdir()):
            if entry.name.startswith(".") or not entry.is_dir() or not entry.resolve().is_relative_to(root):
                continue
            if holds_run(entry):
                yield entry.resolve()
            elif depth > 1:
                yield from _below(entry, root, depth - 1)
