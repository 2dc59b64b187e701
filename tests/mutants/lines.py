"""Which tests run which lines: each test once, under a tracer that looks at the mutated files and nothing else.

A tracer lives on in forked processes (the ranks of a team), and so does an error that was put into the parent. What
runs there is appended to a file, line by line: such a process may be killed at any moment.
"""

from __future__ import annotations

import os
import sys
import tempfile
import threading
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

import pytest

PAGES = "tests/docs/"


@dataclass(eq=False)
class Recorder:
    """A pytest plugin."""

    files: dict[str, str]
    """Absolute path -> the path shown."""
    seconds: dict[str, float] = field(default_factory=dict)
    """Processor time of every test that passed."""
    lines: dict[str, set[int]] = field(default_factory=dict)
    """`path:test` -> the lines of that file it ran."""
    _now: dict[str, set[int]] = field(default_factory=dict)
    _failed: bool = False
    _fixtures: dict[Any, dict[str, set[int]]] = field(default_factory=dict)
    """What the fixtures that several tests share have run: each of those tests may notice an error there."""
    _file: Any = field(default_factory=lambda: tempfile.TemporaryFile("a+b", buffering=0))  # noqa: SIM115
    """`path:line` of what forked processes run."""
    _forked: bool = False

    def __post_init__(self) -> None:
        os.register_at_fork(after_in_child=self._enter_child)

    def _enter_child(self) -> None:
        self._forked, self._now = True, {}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self._now, self._failed, start = {}, False, processor_time()
        threading.settrace(self._enter)
        sys.settrace(self._enter)
        try:
            return (yield)  # type: ignore[misc]
        finally:
            sys.settrace(None)
            threading.settrace(None)  # type: ignore[arg-type]
            if not self._failed:
                self.seconds[item.nodeid] = processor_time() - start
                add(self._now, self._of_children())
                for fixture in used_by(item):
                    add(self._now, self._fixtures.get(fixture, {}))
                for path, found in self._now.items():
                    self.lines[f"{path}:{item.nodeid}"] = found

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any) -> Iterator[None]:
        before, self._now = self._now, {}
        try:
            return (yield)  # type: ignore[misc]
        finally:
            if fixturedef.scope != "function":
                add(self._fixtures.setdefault(fixturedef, {}), self._now)
            add(before, self._now)
            self._now = before

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._failed |= report.outcome != "passed"

    def _enter(self, frame: FrameType, event: str, argument: Any) -> Any:
        shown = self.files.get(frame.f_code.co_filename)
        if shown is None:
            return None
        found = self._now.setdefault(shown, set())

        def line(frame: FrameType, event: str, argument: Any) -> Any:
            if frame.f_lineno not in found:
                found.add(frame.f_lineno)
                if self._forked:
                    os.write(self._file.fileno(), f"{shown}:{frame.f_lineno}\n".encode())
            return line

        return line(frame, event, argument)

    def _of_children(self) -> dict[str, set[int]]:
        """What forked processes ran since this was asked the last time."""
        found: dict[str, set[int]] = {}
        self._file.seek(0)
        for entry in self._file.read().decode().splitlines():
            path, _, number = entry.rpartition(":")
            found.setdefault(path, set()).add(int(number))
        self._file.truncate(0)
        return found

    def data(self) -> dict[str, Any]:
        return {"seconds": self.seconds, "lines": {key: sorted(found) for key, found in self.lines.items()}}


def processor_time() -> float:
    """Of this process and of its children that have ended."""
    return sum(os.times()[:4])


def used_by(item: pytest.Item) -> Iterator[Any]:
    """Every fixture of a test."""
    for fixtures in item._fixtureinfo.name2fixturedefs.values():  # type: ignore[attr-defined]
        yield from fixtures


def add(found: dict[str, set[int]], more: dict[str, set[int]]) -> None:
    for path, lines in more.items():
        found.setdefault(path, set()).update(lines)


@dataclass(frozen=True)
class Coverage:
    """Line -> tests, quickest first."""

    seconds: dict[str, float]
    by_line: dict[tuple[str, int], list[str]]
    by_file: dict[str, list[str]]

    @classmethod
    def of(cls, data: dict[str, Any]) -> Coverage:
        by_line: dict[tuple[str, int], list[str]] = {}
        by_file: dict[str, list[str]] = {}
        seconds = data["seconds"]
        for key, found in data["lines"].items():
            path, _, test = key.partition(":")
            by_file.setdefault(path, []).append(test)
            for line in found:
                by_line.setdefault((path, line), []).append(test)
        for tests in (*by_line.values(), *by_file.values()):
            tests.sort(key=lambda test: (seconds[test], test))
        return cls(seconds, by_line, by_file)

    def tests(self, path: str, lines: range, at_import: bool, named: Collection[str] = ()) -> list[str]:
        """Those that run any of the lines, quickest first.

        What takes effect at import: those that run any line of the file, those that compare defaults with pages, and
        those of the files in `named`, which name the class that it is part of: its fields are no lines that run.
        """
        if at_import:
            others = [test for test in self.seconds if test.startswith(PAGES) or test.partition("::")[0] in named]
            found = {*self.by_file.get(path, []), *others}
        else:
            found = {test for line in lines for test in self.by_line.get((path, line), [])}
        return sorted(found, key=lambda test: (self.seconds[test], test))
