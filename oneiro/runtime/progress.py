"""What a person sees while work goes on: a bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable
from types import TracebackType

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.text import Text

from oneiro.runtime import distributed
from oneiro.runtime.errors import OneiroError

LINE_EVERY_S = 10.0
"""Between two lines where there is no terminal: often enough to see that it lives, seldom enough for a log file."""
WIDTH = 160
"""Columns where there is no terminal to ask."""


def console() -> Console:
    """The console everything is printed on, by the main process; in a pipe or a file it is wide enough for a table."""
    terminal = Console(quiet=not distributed.is_main_process())
    if not terminal.is_terminal and "COLUMNS" not in os.environ:
        terminal.width = WIDTH
    return terminal


class Heartbeat:
    """Calls `tell` while it is left unsaid for `EVERY` seconds that work goes on: nobody should think that it hangs."""

    def __init__(self, tell: Callable[[], None]) -> None:
        self._tell = tell
        self._over = threading.Event()
        self._last = time.monotonic()
        self.muted = False
        """While a bar is shown, which has a heartbeat of its own."""
        self._thread = threading.Thread(target=self._beat, daemon=True)

    def spoke(self) -> None:
        """Something was said by others."""
        self._last = time.monotonic()

    def _beat(self) -> None:
        while not self._over.wait(max(0.0, self._last + LINE_EVERY_S - time.monotonic())):
            if time.monotonic() - self._last >= LINE_EVERY_S:
                self.spoke()
                if self.muted:
                    continue
                with contextlib.suppress(OneiroError):  # a full disk is noticed by the work itself
                    self._tell()

    def __enter__(self) -> Heartbeat:
        self.spoke()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()


class Bar:
    """One loop of `total` steps, `done` of them in an earlier process; None: `expect` says later how many there are.
    `advance` after each.

    The clock starts when the loop does: `begin` says so where something else had to be done first.
    """

    def __init__(self, title: str, total: int | None, done: int, console: Console, note: Callable[[str], None]) -> None:
        self.title, self.total, self.done = title, total, done
        self._first = done
        self._console, self._note = console, note
        self._started = self._last_line = self._moved = time.monotonic()
        self._shown, self._told = "", -1
        self._heart = Heartbeat(self._line)
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), _Rate(), TimeRemainingColumn())
        self._bar = Progress(*columns, TextColumn("{task.fields[shown]}"), console=console, refresh_per_second=4)
        self._task = self._bar.add_task(title, total=total, completed=done, shown="")

    def begin(self, done: int) -> None:
        """The loop starts now, after `done` steps of an earlier process: rates count from here."""
        self.done = self._first = done
        self._started = self._last_line = self._moved = time.monotonic()
        self._bar.reset(self._task, completed=done, total=self.total, shown="")

    def expect(self, total: int) -> None:
        """There are so many steps, as is known now."""
        self.total = total
        self._bar.update(self._task, total=total)

    def advance(self, count: int = 1, **shown: float) -> None:
        """`count` more steps are done; `shown` are numbers worth seeing, such as `loss=0.31`."""
        self.done += count
        self._moved = time.monotonic()
        if shown:
            self._shown = "  ".join(f"{name} {value:.4g}" for name, value in shown.items())
        self._bar.update(self._task, advance=count, shown=self._shown)
        if time.monotonic() - self._last_line >= LINE_EVERY_S:
            self._line()
            self._heart.spoke()

    def tell(self, text: str) -> None:
        """What it is at, beside the numbers; also in the line that comes when nothing moves."""
        self._shown = text
        self._bar.update(self._task, shown=escape(text))

    def __enter__(self) -> Bar:
        if self._console.is_terminal:
            self._bar.start()
        self._heart.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._heart.__exit__(kind, error, trace)
        if self._console.is_terminal:
            self._bar.stop()
        if kind is None and self._told != self.done:
            self._line()

    def _line(self) -> None:
        self._last_line, self._told = time.monotonic(), self.done
        total = "?" if self.total is None else self.total
        line = f"{self.title}: {self.done}/{total} in {clock(self._last_line - self._started)}"
        if self.done > self._first:
            # The step under way says nothing about the rate, but its time so far is no longer left.
            rate = (self.done - self._first) / max(1e-9, self._moved - self._started)
            line += f", {_speed(rate)}"
            if self.total is not None and self.done < self.total:
                waited = self._last_line - self._moved
                line += f", {clock(max(0.0, (self.total - self.done) / rate - waited))} left"
        line = f"{line}  {self._shown}".rstrip()
        if not self._console.is_terminal:
            self._console.print(line, markup=False, highlight=False, soft_wrap=True)
        self._note(line)


class _Rate(ProgressColumn):
    def render(self, task: Task) -> Text:
        return Text(_speed(task.finished_speed or task.speed or 0.0), style="progress.data.speed")


def _speed(rate: float) -> str:
    return f"{rate:.3g}/s" if rate >= 1 or not rate else f"{1 / rate:.3g} s each"


def clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
