"""Run folders as the board reads them: files only, and each again only when it has changed."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import os
import re
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from oneiro.recipe import flat
from oneiro.recipe import read as read_recipe
from oneiro.report import traces
from oneiro.report.episodes import FILE_NAME
from oneiro.report.page import read_summary
from oneiro.report.table import Cell, Table
from oneiro.rundir.records import MAX_UNPACKED_BYTES, read_info
from oneiro.rundir.run import METRICS, holds_run, require_run
from oneiro.runtime.errors import OneiroError

MAX_CACHED = 8192  # small files whose content is remembered
MAX_INDEXES = 64  # of steps: each is a row for every episode
MAX_DEPTH = 3  # folders below a given one that are searched for runs: `runs/sweep/seed-1`
RESCAN_S = 2.0  # new runs are noticed after this many seconds
SILENT_S = 120.0  # a run at work writes to log.txt every ten seconds
LOG_TAIL_BYTES = 4096
TIME_LEFT = re.compile(r"  (?P<title>[^:\n]{1,80}): (?P<done>\d+)/(?P<total>\d+) in [^\n]*?, (?P<left>[\d:]+) left")
TRIVIAL = ("random", "ceiling", "oracle", "perfect", "no change", "optimal")
"""Rows of a table that frame the others."""
LEADING = ("success", "eval_success", "exact", "accuracy", "reward", "psnr", "ce", "loss")
"""What stands for a run while it has no table yet, the first that it logs."""

T = TypeVar("T")


class Line(NamedTuple):
    """Where a metric of a stage is logged: its steps and values."""

    steps: list[int]
    values: list[float]


class EpisodeRow(NamedTuple):
    """One episode in the index of its file."""

    at: int
    offset: int
    """Of its line in the unpacked file."""
    length: int
    world: str
    task: str
    seed: int
    group: int
    member: int
    success: bool
    finish: str
    score: float
    tokens: int
    turns: int

    @property
    def case(self) -> tuple[str, str, int]:
        """The same for episodes, of any run, that began alike."""
        return self.world, self.task, self.seed


@dataclass
class Cache:
    """What was made of files, until their size or time of change differ; the least recently used go first."""

    most: int = MAX_CACHED
    _kept: OrderedDict[tuple[Path, str], tuple[tuple[int, int, int], Any]] = field(default_factory=OrderedDict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def get(self, path: Path, kind: str, make: Callable[[Path], T]) -> T:
        stat = path.stat()
        tag, key = (stat.st_ino, stat.st_size, stat.st_mtime_ns), (path, kind)
        with self._lock:
            if key in self._kept and self._kept[key][0] == tag:
                self._kept.move_to_end(key)
                kept: T = self._kept[key][1]
                return kept
        made = make(path)
        with self._lock:
            self._kept[key] = tag, made
            while len(self._kept) > self.most:
                self._kept.popitem(last=False)
        return made


class Metrics:
    """`metrics.jsonl` as it grows: only what is new is read. Lines that cannot be read are left out."""

    def __init__(self) -> None:
        self.lines: dict[tuple[str, str], Line] = {}
        self._file, self._offset, self._lock = -1, 0, threading.Lock()

    def read(self, path: Path) -> dict[tuple[str, str], Line]:
        """(stage, key) -> its line. The lists only grow; a rewound file, which is a new one, starts them anew."""
        with self._lock:
            try:
                stat = path.stat()
            except OSError:
                return self.lines
            if stat.st_ino != self._file or stat.st_size < self._offset:
                self.lines, self._file, self._offset = {}, stat.st_ino, 0
            if stat.st_size > self._offset:
                with path.open("rb") as handle:
                    handle.seek(self._offset)
                    text = handle.read(stat.st_size - self._offset)
                whole = text.rfind(b"\n") + 1
                self._offset += whole
                for line in text[:whole].splitlines():
                    with contextlib.suppress(ValueError, RecursionError, AttributeError):
                        self._take(json.loads(line))
            return self.lines

    def _take(self, row: dict[str, Any]) -> None:
        stage, step = row.pop("stage", None), row.pop("step", None)
        if isinstance(stage, str) and type(step) is int:
            for key, value in row.items():
                if type(value) in (int, float):
                    line = self.lines.setdefault((stage, key), Line([], []))
                    line.steps.append(step)
                    line.values.append(float(value))


@dataclass(eq=False)
class RunFolder:
    """One run, finished or not. Everything comes from files; damage is a line of words, never an exception."""

    name: str
    path: Path
    """Without links: `Runs` resolves it."""
    cache: Cache
    indexes: Cache
    metrics_log: Metrics = field(default_factory=Metrics)

    def file(self, *parts: str) -> Path:
        """A file of this run; a link that leads out of it is refused."""
        path = self.path.joinpath(*parts)
        real = os.path.realpath(path)
        if real != str(path) and not real.startswith(f"{self.path}{os.sep}"):
            raise OneiroError(f"{path} leads out of the run; the board reads nothing there")
        return path

    def _read(self, name: str, make: Callable[[Path], T], default: T) -> T:
        try:
            return self.cache.get(self.file(name), make.__qualname__, make)
        except (OneiroError, OSError, ValueError):
            return default

    @property
    def info(self) -> dict[str, Any]:
        return self._read("run.json", _read_info, {"stages": {}, "status": ""})

    @property
    def recipe(self) -> dict[str, Any]:
        return self._read("recipe.yaml", read_recipe, {})

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
    def metrics(self) -> dict[tuple[str, str], Line]:
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
        return (self.path / traces.FILE).is_file()

    def key_numbers(self, most: int = 3) -> list[tuple[str, Cell, Table, str]]:
        """(label, cell, its table, its column): the first measured column of the first table, without trivial rows."""
        for table in self.tables[:1]:
            for place, column in enumerate(table.columns):
                if place and any(row[place].measured for row in table.rows):
                    rows = [(str(row[0].value), row[place]) for row in table.rows if row[place].value is not None]
                    own = [row for row in rows if not row[0].lower().startswith(TRIVIAL)] or rows
                    return [(label, cell, table, column) for label, cell in own[-most:]]
        return []

    def leading_metric(self) -> tuple[str, str, Line] | None:
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

    # Episodes

    def episode_files(self) -> dict[str, dict[int, Path]]:
        """Stage -> step -> file, from the names alone; stages in the order of the run."""
        files: dict[str, dict[int, Path]] = {}
        for path in sorted((self.path / "episodes").glob("*.jsonl.gz")):
            if match := FILE_NAME.fullmatch(path.name):
                files.setdefault(match["stage"], {})[int(match["step"])] = path
        order = [stage for stage in self.info["stages"] if stage in files]
        return {stage: files[stage] for stage in [*order, *(stage for stage in files if stage not in order)]}

    def index(self, stage: str, step: int) -> list[EpisodeRow]:
        """The episodes of one step, without their turns."""
        return self.indexes.get(self._episodes(stage, step), "index", _index)

    def episode(self, stage: str, step: int, at: int) -> dict[str, Any]:
        """One whole episode."""
        rows = self.index(stage, step)
        if not 0 <= at < len(rows):
            raise OneiroError(f"step {step} of {stage} has {len(rows)} episodes; there is no number {at}")
        text = _unpacked(self._episodes(stage, step))
        episode = json.loads(text[rows[at].offset : rows[at].offset + rows[at].length])
        return dict(episode)

    def search(self, stage: str, step: int, words: str) -> set[int]:
        """Numbers of the episodes that hold these words anywhere, in any case."""
        text = _unpacked(self._episodes(stage, step))
        # As JSON writes them: a quote in a text is `\"` in the file.
        wanted = json.dumps(words, ensure_ascii=False)[1:-1].lower().encode(errors="backslashreplace")
        rows = self.index(stage, step)
        return {row.at for row in rows if wanted in text[row.offset : row.offset + row.length].lower()}

    def _episodes(self, stage: str, step: int) -> Path:
        path = self.episode_files().get(stage, {}).get(step)
        if path is None:
            raise OneiroError(f"{self.name} has no episodes of stage {stage}, step {step}")
        return self.file("episodes", path.name)


def _read_info(path: Path) -> dict[str, Any]:
    return read_info(path.parent)


def _read_summary(path: Path) -> dict[str, Any]:
    return read_summary(path.parent)


def _read_text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace")


def _unpacked(path: Path) -> bytes:
    try:
        with gzip.open(path) as packed:
            text = packed.read(MAX_UNPACKED_BYTES + 1)
    except (OSError, EOFError, ValueError) as error:
        raise OneiroError(f"{path} cannot be read ({error}); it is damaged or still being written") from error
    if len(text) > MAX_UNPACKED_BYTES:
        raise OneiroError(f"{path} unpacks to more than {MAX_UNPACKED_BYTES >> 30} GiB")
    return text


def _index(path: Path) -> list[EpisodeRow]:
    rows: list[EpisodeRow] = []
    lines = io.BytesIO(_unpacked(path)).readlines()
    for offset, line in zip(accumulate(map(len, lines), initial=0), lines, strict=False):
        with contextlib.suppress(ValueError, TypeError, RecursionError, AttributeError, OverflowError):
            rows.append(_episode_row(json.loads(line), len(rows), offset, len(line)))
    return rows


def _episode_row(data: Mapping[str, Any], at: int, offset: int, length: int) -> EpisodeRow:
    return EpisodeRow(
        at=at,
        offset=offset,
        length=length,
        world=str(data.get("world", ""))[:200],
        task=str(data.get("task", ""))[:200],
        seed=int(data.get("seed") or 0),
        group=int(data.get("group") or 0),
        member=int(data.get("member") or 0),
        success=bool(data.get("success")),
        finish=str(data.get("finish_reason", ""))[:80],
        score=float(data.get("score") or 0.0),
        tokens=int(data.get("tokens") or 0),
        turns=len(data.get("turns") or ()),
    )


class Runs:
    """All runs in the given folders, by name. New ones appear while the board is open."""

    def __init__(self, places: Sequence[Path]) -> None:
        self.places = [place.resolve() for place in places]
        for place in self.places:
            if not place.is_dir():
                raise OneiroError(f"there is no folder {place}; give runs, or a folder that holds some")
        self.cache, self.indexes, self._lock = Cache(), Cache(MAX_INDEXES), threading.Lock()
        self._runs: dict[str, RunFolder] = {}
        self._scanned = float("-inf")
        if len(self.places) == 1 and not self.all():
            require_run(self.places[0])

    def all(self) -> dict[str, RunFolder]:
        with self._lock:
            if time.monotonic() - self._scanned > RESCAN_S:
                known = {run.path: run for run in self._runs.values()}
                self._runs = {
                    name: known.get(path) or RunFolder(name, path, self.cache, self.indexes)
                    for name, path in self._named_paths()
                }
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


def differing_settings(runs: Sequence[RunFolder]) -> list[tuple[str, list[str]]]:
    """Keys of the recipes that are not the same in all runs, with each run's value."""
    recipes = [flat(run.recipe) for run in runs]
    keys = dict.fromkeys(key for recipe in recipes for key in recipe if not key.startswith(("about", "next", "takes")))
    values = {key: [str(recipe.get(key, "–")) for recipe in recipes] for key in keys}
    return [(key, row) for key, row in values.items() if len(set(row)) > 1]
