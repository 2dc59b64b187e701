"""Which tests run which lines: each test once, under a tracer that looks at the mutated files and nothing else."""

from __future__ import annotations

import sys
import threading
import time
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

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self._now, self._failed, start = {}, False, time.process_time()
        threading.settrace(self._enter)
        sys.settrace(self._enter)
        try:
            return (yield)  # type: ignore[misc]
        finally:
            sys.settrace(None)
            threading.settrace(None)  # type: ignore[arg-type]
            if not self._failed:
                self.seconds[item.nodeid] = time.process_time() - start
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
        found.add(frame.f_lineno)

        def line(frame: FrameType, event: str, argument: Any) -> Any:
            found.add(frame.f_lineno)
            return line

        return line

    def data(self) -> dict[str, Any]:
        return {"seconds": self.seconds, "lines": {key: sorted(found) for key, found in self.lines.items()}}


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
