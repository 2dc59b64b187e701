"""What a person sees while work goes on: a bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.text import Text

EVERY = 10.0
"""Seconds between two lines."""
WIDTH = 160
"""Columns where there is no terminal to ask."""


def console() -> Console:
    """The console everything is printed on; in a pipe or a file it is wide enough for a table."""
    found = Console()
    if not found.is_terminal and "COLUMNS" not in os.environ:
        found.width = WIDTH
    return found


class Bar:
    """One loop of `total` steps, `done` of them in an earlier process. `advance` after each."""

    def __init__(self, title: str, total: int, done: int, console: Console, note: Callable[[str], None]) -> None:
        self.title, self.total, self.done = title, total, done
        self._first = done
        self._console, self._note = console, note
        self._started = self._last_line = time.monotonic()
        self._shown, self._told = "", -1
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), _Rate(), TimeRemainingColumn())
        self._bar = Progress(*columns, TextColumn("{task.fields[shown]}"), console=console, refresh_per_second=4)
        self._task = self._bar.add_task(title, total=total, completed=done, shown="")

    def expect(self, total: int) -> None:
        """There are so many steps, as is known now."""
        self.total = total
        self._bar.update(self._task, total=total)

    def advance(self, count: int = 1, **shown: float) -> None:
        """`count` more steps are done; `shown` are numbers worth seeing, such as `loss=0.31`."""
        self.done += count
        if shown:
            self._shown = "  ".join(f"{name} {value:.4g}" for name, value in shown.items())
        self._bar.update(self._task, advance=count, shown=self._shown)
        if time.monotonic() - self._last_line >= EVERY:
            self._line()

    def __enter__(self) -> Bar:
        if self._console.is_terminal:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._console.is_terminal:
            self._bar.stop()
        if kind is None and self._told != self.done:
            self._line()

    def _line(self) -> None:
        self._last_line, self._told = time.monotonic(), self.done
        seconds = self._last_line - self._started
        rate = (self.done - self._first) / seconds if seconds > 0 else 0.0
        left = f", {_clock((self.total - self.done) / rate)} left" if self.done < self.total and rate else ""
        line = (
            f"{self.title}: {self.done}/{self.total} in {_clock(seconds)}, {_speed(rate)}{left}  {self._shown}".rstrip()
        )
        if not self._console.is_terminal:
            self._console.print(line, markup=False, highlight=False, soft_wrap=True)
        self._note(line)


class _Rate(ProgressColumn):
    def render(self, task: Task) -> Text:
        return Text(_speed(task.finished_speed or task.speed or 0.0), style="progress.data.speed")


def _speed(rate: float) -> str:
    return f"{rate:.3g}/s" if rate >= 1 or not rate else f"{1 / rate:.3g} s each"


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
