"""The episodes of a run: their files, an index of each, and one whole episode at a time."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import threading
from collections.abc import Callable, Mapping
from functools import lru_cache, wraps
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from oneiro.report.episodes import episode_files
from oneiro.rundir.records import MAX_UNPACKED_BYTES
from oneiro.runtime.errors import OneiroError

T = TypeVar("T")


def remember(most: int) -> Callable[[Callable[[Path], T]], Callable[[Path], T]]:
    """What a function made of a file, until its size or time of change differ; the least recently used go first."""

    def decorate(make: Callable[[Path], T]) -> Callable[[Path], T]:
        kept = lru_cache(most)(lambda path, tag: make(path))

        @wraps(make)
        def read(path: Path) -> T:
            stat = path.stat()
            return kept(path, (stat.st_ino, stat.st_size, stat.st_mtime_ns))

        return read

    return decorate


def inside(folder: Path, *parts: str) -> Path:
    """A file below a folder without links; a link that leads out of it is refused."""
    path = folder.joinpath(*parts)
    # A plain name can only lead out as a link itself; following all parts of every path takes half of a listing.
    plain = len(parts) == 1 and os.sep not in parts[0] and parts[0] != ".."
    if (not plain or path.is_symlink()) and not os.path.realpath(path).startswith(f"{folder}{os.sep}"):
        raise OneiroError(f"{path} leads out of the run; the board reads nothing there")
    return path


class MetricLine(NamedTuple):
    """Where a metric of a stage is logged: its steps and values."""

    steps: list[int]
    values: list[float]


class Metrics:
    """`metrics.jsonl` as it grows: only what is new is read. Lines that cannot be read are left out."""

    def __init__(self) -> None:
        self.lines: dict[tuple[str, str], MetricLine] = {}
        self._file, self._offset, self._lock = -1, 0, threading.Lock()

    def read(self, path: Path) -> dict[tuple[str, str], MetricLine]:
        """(stage, key) -> its line. The lists only grow; a rewound file, which is a new one, starts them anew."""
        with self._lock, contextlib.suppress(OSError), path.open("rb") as handle:
            stat = os.fstat(handle.fileno())
            if stat.st_ino != self._file or stat.st_size < self._offset:
                self.lines, self._file, self._offset = {}, stat.st_ino, 0
            handle.seek(self._offset)
            whole = handle.read(stat.st_size - self._offset).rpartition(b"\n")[0]  # the last line is being written
            self._offset += len(whole) + bool(whole)
            for line in whole.splitlines():
                with contextlib.suppress(ValueError, RecursionError, AttributeError):
                    self._take(json.loads(line))
        return self.lines

    def _take(self, row: dict[str, Any]) -> None:
        stage, step = row.pop("stage", None), row.pop("step", None)
        if isinstance(stage, str) and type(step) is int:
            for key, value in row.items():
                if type(value) in (int, float):
                    line = self.lines.setdefault((stage, key), MetricLine([], []))
                    line.steps.append(step)
                    line.values.append(float(value))


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


class EpisodeFiles:
    """`episodes/` of a run. Names say what is there; a file is opened when its step is looked at."""

    def __init__(self, run: Path) -> None:
        self.run = run

    def steps(self) -> dict[str, dict[int, Path]]:
        """Stage -> step -> file, steps ascending."""
        return episode_files(self.run)

    def index(self, stage: str, step: int) -> list[EpisodeRow]:
        """The episodes of one step, without their turns."""
        return _index(self._file(stage, step))

    def read(self, stage: str, step: int, at: int) -> dict[str, Any]:
        """One whole episode."""
        rows = self.index(stage, step)
        if not 0 <= at < len(rows):
            raise OneiroError(f"step {step} of {stage} has {len(rows)} episodes; there is no number {at}")
        return dict(json.loads(_line(_unpack(self._file(stage, step)), rows[at])))

    def search(self, stage: str, step: int, words: str) -> set[int]:
        """Numbers of the episodes that hold these words anywhere, in any case."""
        text = _unpack(self._file(stage, step))
        # As JSON writes them: a quote in a text is `\"` in the file.
        wanted = json.dumps(words, ensure_ascii=False)[1:-1].lower().encode(errors="backslashreplace")
        return {row.at for row in self.index(stage, step) if wanted in _line(text, row).lower()}

    def _file(self, stage: str, step: int) -> Path:
        path = self.steps().get(stage, {}).get(step)
        if path is None:
            raise OneiroError(f"{self.run.name} has no episodes of stage {stage}, step {step}")
        return inside(self.run, "episodes", path.name)


def _line(text: bytes, row: EpisodeRow) -> bytes:
    return text[row.offset : row.offset + row.length]


def _unpack(path: Path) -> bytes:
    try:
        with gzip.open(path) as packed:
            text = packed.read(MAX_UNPACKED_BYTES + 1)
    except (OSError, EOFError, ValueError) as error:
        raise OneiroError(f"{path} cannot be read ({error}); it is damaged or still being written") from error
    if len(text) > MAX_UNPACKED_BYTES:
        raise OneiroError(f"{path} unpacks to more than {MAX_UNPACKED_BYTES >> 30} GiB")
    return text


@remember(64)  # steps: each is a row for every episode
def _index(path: Path) -> list[EpisodeRow]:
    rows: list[EpisodeRow] = []
    lines = _unpack(path).splitlines(keepends=True)
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
