"""Files that change while they are looked at: each is read again only where it differs from what was read before."""

from __future__ import annotations

import contextlib
import json
import os
import threading
from collections.abc import Callable
from functools import lru_cache, wraps
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

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
