"""A run directory: everything a run leaves behind, whole at every instant.

    recipe.yaml    the resolved recipe
    run.json       versions, seed, the stages and their results
    metrics.jsonl  one line per stage and step
    timings.jsonl  the same for wall-clock times, so that metrics.jsonl does not depend on the clock
    episodes/      every rollout, one gzip file per stage and step; of RL also the tokens, as Parquet
    checkpoints/   one folder per stage
    summary.json   tables, curves and notes, from which report.html is drawn
    log.txt        what was printed

Killed at any moment and opened again, a run goes on where it was: finished stages are skipped, a line cut short is
dropped, and `rewind` removes what was logged after the checkpoint that the work goes on from. An interrupted run ends
with the same bytes in metrics.jsonl and episodes/ as one that was left alone.

Under torchrun every rank has the run open, and all agree on which stages are done. The main process alone writes.
"""

from __future__ import annotations

import contextlib
import fcntl
import io
import json
import math
import os
import platform
import re
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from oneiro.rundir import track
from oneiro.rundir.records import (
    drop_torn_line,
    first_difference,
    line_digest,
    read_commit,
    read_info,
    read_log,
    read_versions,
    require_written_lines,
    stage_file_name,
    write_episodes,
    write_tokens,
)
from oneiro.runtime import distributed
from oneiro.runtime.errors import OneiroError, printable
from oneiro.runtime.files import MANIFEST, damage, write_json, write_text
from oneiro.runtime.interrupt import Saving

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from oneiro.episode import Episode
    from oneiro.recipe import Recipe
    from oneiro.runtime.progress import Bar, Heartbeat

METRICS, TIMINGS = "metrics.jsonl", "timings.jsonl"
DIGESTS = ".metrics-lines"
"""A digest of every line of `metrics.jsonl`, so that one which somebody cut or altered is noticed."""


class Run:
    """One run, open for writing in one process, or on the ranks of one torchrun.

    `with Run.open(path, recipe) as run: ...`
    """

    path: Path
    recipe: dict[str, Any]
    """The resolved recipe as plain data."""
    info: dict[str, Any]
    """What `run.json` holds."""
    planned: list[str]
    """All stages, in order; see `plan`."""

    def __init__(self, path: Path, lock: int) -> None:
        """Use `Run.open`."""
        self.path = path
        self._lock = lock
        self._console: Console | None = None
        self._trackers: list[track.Tracker] = []
        self.planned = []
        self._heart: Heartbeat | None = None

    @classmethod
    def open(cls, path: str | Path, recipe: Recipe | None = None) -> Run:
        """Create the run, or go on with it; a recipe other than the stored one is an error that names the key."""
        opened: list[Run] = []

        def begin() -> tuple[Path, dict[str, Any], dict[str, Any]]:
            opened.append(cls._open(Path(path), recipe))
            return opened[0].path, opened[0].recipe, opened[0].info

        place, settings, info = distributed.on_main_process(begin)
        run = opened[0] if opened else cls(place, -1)
        run.recipe, run.info = settings, info
        return run

    @classmethod
    def _open(cls, path: Path, recipe: Recipe | None) -> Run:
        if recipe is not None:
            track.require(recipe.track)
        if not holds_run(path):
            if recipe is None:
                require_run(path)
            if path.is_dir() and any(not entry.name.startswith(".") for entry in path.iterdir()):
                raise OneiroError(f"{path} is not empty and holds no run; choose another --out")
        try:
            path.mkdir(parents=True, exist_ok=True)
            run = cls(path, _lock(path))
        except OSError as error:
            raise OneiroError(
                f"cannot use {path} for a run: {error.strerror or error}; choose another --out"
            ) from error
        try:
            run._begin(recipe)
        except BaseException:
            run.close()
            raise
        return run

    def _begin(self, recipe: Recipe | None) -> None:
        from oneiro import recipe as recipes

        for leftover in list(self.path.rglob(".*.part")):
            if leftover.is_dir():
                shutil.rmtree(leftover, ignore_errors=True)
            else:
                leftover.unlink(missing_ok=True)
        if recipe is not None and (not holds_run(self.path) or not self._has_begun()):
            # Where nothing is lost yet the first try had a mistake in it, most likely: let the new recipe stand.
            write_text(self.path / "recipe.yaml", recipes.dump(recipe))
        elif recipe is not None and (difference := first_difference(self.path, recipe)):
            raise OneiroError(f"{self.path} was started with another recipe: {difference}; choose another --out")
        elif recipe is not None and recipes.read(self.path / "recipe.yaml") != recipes.plain(recipe):
            write_text(self.path / "recipe.yaml", recipes.dump(recipe))  # other intervals, say: they hold from now on
        self.recipe = recipes.read(self.path / "recipe.yaml")
        for name in (METRICS, TIMINGS, "log.txt"):
            drop_torn_line(self.path / name)
        drop_torn_line(self.path / DIGESTS)
        require_written_lines(self.path / METRICS, self.path / DIGESTS)
        if (self.path / "run.json").exists():
            self.info = read_info(self.path)
            if self.info["status"] == "stopped":
                self.info["status"] = "running"
                self._save()
            self._warn_of_other_versions()
            if self.info["status"] == "done":
                self._require_weights()
        else:
            self.info = {
                "status": "running",
                "started": _now(),
                "seed": self.recipe.get("seed", 0),
                "versions": read_versions(),
                "platform": platform.platform(),
                "commit": read_commit(),
                "stages": {},
            }
            self._save()
        names = recipe.track if recipe is not None else self.recipe.get("track") or []
        self._trackers = track.start(names, self.path, self.recipe)

    def _has_begun(self) -> bool:
        """Whether any stage has been finished."""
        return any(stage["status"] == "done" for stage in read_info(self.path)["stages"].values())

    def __enter__(self) -> Run:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None and self.info["status"] != "done":
            self.info["status"] = "stopped"
            with contextlib.suppress(OneiroError):
                self._save()
        self.close()

    def close(self) -> None:
        """Let another process have the run."""
        for tracker in self._trackers:
            tracker.close()
        self._trackers = []
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def finish(self) -> None:
        """Every stage is done and reported."""
        if self.info["status"] != "done":
            kept = [str(file.parent.relative_to(self.path)) for file in sorted(self.path.rglob(MANIFEST))]
            self.info.update(status="done", finished=_now(), weights=kept)
            self._save()

    def _require_weights(self) -> None:
        """See that a finished run still has the checkpoints that it ended with, as they were written."""
        for name in self.info.get("weights", ()):
            folder = self.path / name
            if problem := damage(folder) if folder.is_dir() else "it is gone":
                raise OneiroError(
                    f"{self.path} is finished, but {folder} is not what it wrote ({problem}); restore it, or delete "
                    f"{folder.parent} and {self.path / 'run.json'}, and the same command trains it again"
                )

    # Stages

    def done(self, name: str) -> bool:
        """Whether the stage has ended, in this process or an earlier one."""
        return bool(self.info["stages"].get(name, {}).get("status") == "done")

    def plan(self, names: Iterable[str]) -> None:
        """The stages to come, in order, so that each can say which of how many it is."""
        self.planned = list(dict.fromkeys(names))

    def stage(self, name: str, work: Callable[[], dict[str, Any] | None], main_only: bool = False) -> dict[str, Any]:
        """Do `work` once: its result (plain JSON) is stored, and returned from there when the run is resumed.

        Every rank does the work; with `main_only` the main process does it while the others wait, as for data that are
        written once. The result is the main process's.

        `seconds` adds up over interruptions that could still be written down; `starts` tells whether some could not.
        """
        if not self.done(name):
            new = {"started": _now(), "starts": 0, "seconds": 0.0}
            record = self.info["stages"][name] = new | self.info["stages"].get(name, {})
            record.update(status="running", starts=record["starts"] + 1)
            before, clock = record["seconds"], time.monotonic()
            self._save()
            if name in self.planned:
                self.say(f"stage {self.planned.index(name) + 1} of {len(self.planned)}: {name}")
            try:
                with self._alive(name):
                    record["result"] = (distributed.on_main_process(work) if main_only else work()) or {}
            except BaseException:
                record.update(status="stopped", seconds=round(before + time.monotonic() - clock, 3))
                with contextlib.suppress(OneiroError):
                    self._save()
                raise
            record.update(status="done", seconds=round(before + time.monotonic() - clock, 3))
            self._save()
            # Read back, so that the first run sees exactly what a resumed one will see.
            self.info = distributed.on_main_process(lambda: read_info(self.path))
        return self.result(name)

    def result(self, name: str) -> dict[str, Any]:
        """What a finished stage gave."""
        return dict(self.info["stages"][name]["result"])

    @contextlib.contextmanager
    def _alive(self, name: str) -> Iterator[None]:
        """A line every ten seconds in which the stage says nothing itself."""
        from oneiro.runtime.progress import Heartbeat, clock

        began, outer = time.monotonic(), self._heart
        try:
            with Heartbeat(lambda: self.say(f"{name}: at work for {clock(time.monotonic() - began)}")) as self._heart:
                yield
        finally:
            self._heart = outer

    def saving(self) -> Saving:
        """When training saves between its checkpoints by steps."""
        return Saving(self.recipe.get("checkpoint_minutes"))

    def checkpoint_dir(self, stage: str) -> Path:
        """The folder for a stage's checkpoints."""
        folder = self.path / "checkpoints" / stage_file_name(stage)
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    # What is measured

    def log(self, stage: str, step: int, values: Mapping[str, float]) -> None:
        """One line of `metrics.jsonl`, also sent to the trackers. Values must not depend on the clock: see `time`."""
        numbers = {key: _number(values[key]) for key in sorted(values)}
        line = json.dumps({"stage": stage, "step": step, **numbers}) + "\n"
        self._append(METRICS, line)
        self._append(DIGESTS, line_digest(line) + "\n")
        for tracker in self._trackers:
            tracker.log(stage, step, {key: value for key, value in numbers.items() if value is not None})

    def time(self, stage: str, step: int, values: Mapping[str, float]) -> None:
        """One line of `timings.jsonl`: seconds, rates, memory, and whatever else differs from run to run."""
        numbers = {key: _number(values[key]) for key in sorted(values)}
        self._append(TIMINGS, json.dumps({"stage": stage, "step": step, **numbers}) + "\n")

    def episodes(self, stage: str, step: int, rows: Iterable[Mapping[str, Any]]) -> None:
        """Write a step's episodes (plain JSON, one per line); the same episodes give the same bytes."""
        write_episodes(self.path, stage, step, rows)

    def tokens(self, stage: str, step: int, episodes: Sequence[Episode]) -> None:
        """Write the tokens of a step's episodes beside them: ids, authors, log-probabilities."""
        write_tokens(self.path, stage, step, episodes)

    def summary(self, data: Mapping[str, Any]) -> None:
        """Write `summary.json`: `{"tables": [...], "curves": [...], "notes": [...]}` (see docs/report.md)."""
        write_json(self.path / "summary.json", data)

    def rewind(self, stage: str, step: int) -> None:
        """Forget what `stage` logged after `step`. Call it before going on from a checkpoint (-1: from the start)."""
        distributed.on_main_process(lambda: self._rewind(stage, step))

    def _rewind(self, stage: str, step: int) -> None:
        for name in (METRICS, TIMINGS):
            path = self.path / name
            rows = list(read_log(path))
            kept = [row for row in rows if row["stage"] != stage or row["step"] <= step]
            if len(kept) < len(rows):
                lines = [json.dumps(row) + "\n" for row in kept]
                if name == METRICS:  # first: a digest too few is no loss
                    write_text(self.path / DIGESTS, "".join(line_digest(line) + "\n" for line in lines))
                write_text(path, "".join(lines))
        pattern = re.compile(re.escape(stage_file_name(stage)) + r"-(\d+)\.(?:jsonl\.gz|tokens\.parquet)")
        for path in (self.path / "episodes").glob("*"):
            match = pattern.fullmatch(path.name)
            if match and int(match[1]) > step:
                path.unlink()

    # What is shown

    def say(self, text: RenderableType) -> None:
        """Print a line (or anything rich can show) and keep it in `log.txt`."""
        text = printable(text) if isinstance(text, str) else text
        self.console.print(text, markup=False, highlight=False, soft_wrap=isinstance(text, str))
        self.note(text)

    def note(self, text: RenderableType) -> None:
        """Write to `log.txt` only."""
        from rich.console import Console

        if self._heart is not None:
            self._heart.spoke()
        text = printable(text) if isinstance(text, str) else text
        page = Console(file=io.StringIO(), width=120, color_system=None)
        page.print(text, markup=False, highlight=False, soft_wrap=isinstance(text, str))
        assert isinstance(page.file, io.StringIO)
        self._append("log.txt", f"{datetime.now():%Y-%m-%d %H:%M:%S}  {page.file.getvalue().rstrip()}\n")

    @contextlib.contextmanager
    def progress(self, title: str, total: int, done: int = 0) -> Iterator[Bar]:
        """A bar with rate and time left, or a line every ten seconds where nobody watches.

        `with run.progress("sft", steps, done=first) as bar: ... bar.advance(loss=0.31)`
        """
        from oneiro.runtime.progress import Bar

        heart = self._heart
        try:
            with Bar(title, total, done, self.console, self.note) as bar:
                if heart is not None:
                    heart.muted = True
                yield bar
        finally:
            if heart is not None:
                heart.muted = False

    @property
    def console(self) -> Console:
        if self._console is None:
            from oneiro.runtime.progress import console

            self._console = console()
        return self._console

    def remember(self, name: str, value: Any) -> Any:
        """Keep a plain value in `run.json`; a resumed run gets the first one back."""
        if name not in self.info:
            self.info[name] = distributed.broadcast(value)
            self._save()
        return self.info[name]

    def _save(self) -> None:
        write_json(self.path / "run.json", self.info)

    def _append(self, name: str, text: str) -> None:
        if not distributed.is_main_process():
            return
        path = self.path / name
        try:
            with path.open("ab") as handle:
                handle.write(text.encode(errors="backslashreplace"))
        except OSError as error:
            raise OneiroError(
                f"cannot write {path}: {error.strerror or error}; then the same command resumes"
            ) from error

    def _warn_of_other_versions(self) -> None:
        now, then = read_versions(), self.info.get("versions", {})
        changed = [f"{name} {then.get(name)} -> {now[name]}" for name in now if now[name] != then.get(name)]
        if changed:
            self.say(f"resumed with other versions ({', '.join(changed)}): the last digits may differ")


def holds_run(path: str | Path) -> bool:
    """Whether a directory is a run."""
    return (Path(path) / "recipe.yaml").is_file()


def require_run(path: Path) -> None:
    """See that a directory is a run; one line says what it lacks."""
    if not path.exists():
        raise OneiroError(f"there is no folder {path}; give one that `oneiro run` made")
    if not holds_run(path):
        inside = sorted(str(entry) for entry in path.iterdir() if holds_run(entry)) if path.is_dir() else []
        meant = f"did you mean {inside[0]}?" if inside else "give one that `oneiro run` made"
        raise OneiroError(f"{path} is not a run directory: it has no recipe.yaml; {meant}")


def _lock(path: Path) -> int:
    """Hold the directory until the descriptor is closed or the process ends, however it ends."""
    descriptor = os.open(path / ".lock", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        holder = os.read(descriptor, 20).decode(errors="replace").strip()
        os.close(descriptor)
        raise OneiroError(f"{path} is in use by process {holder}; wait for it or choose another --out") from error
    except OSError:
        pass  # a file system without locks: nothing to hold
    os.truncate(descriptor, 0)
    os.write(descriptor, f"{os.getpid()}\n".encode())
    return descriptor


def _number(value: float) -> float | int | None:
    """A plain JSON number; what is not finite becomes null."""
    if isinstance(value, int):
        return int(value)
    return float(value) if math.isfinite(value) else None


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
