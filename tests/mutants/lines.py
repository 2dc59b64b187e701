"""Which tests run which lines: each test once, over code that marks what it runs.

What runs in forked processes (ranks) counts too: an error that was put into the parent is there as well,
and such a process may be killed at any moment.
"""

from __future__ import annotations

import ast
import mmap
import os
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType
from typing import Any

import numpy as np
import pytest

PAGES = "tests/docs/"
NAME = "__ran__"
MOST = 1 << 20
"""Statements that may be marked."""


class Marks:
    """Which statements ran: every one in a function first sets a byte of its own, in memory that forks share.

    So tests run about as fast as without; a tracer made them several times slower.
    """

    def __init__(self, files: dict[str, str]) -> None:
        self.files = files
        """Absolute path -> the path shown."""
        self.places: list[tuple[str, int]] = []
        self._ran = mmap.mmap(-1, MOST)

    @property
    def names(self) -> dict[str, Any]:
        """What marked code needs to find in its module."""
        return {NAME: self._ran}

    def code(self, path: Path) -> CodeType:
        """A file with its marks."""
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]:
            for part in [inner for inner in ast.walk(node) if not hasattr(inner, "marked")]:
                part.marked = True  # type: ignore[attr-defined]
                for field_name in ("body", "orelse", "finalbody"):
                    block = getattr(part, field_name, None)
                    if isinstance(block, list):
                        setattr(part, field_name, self._marked(block, self.files[str(path)]))
        return compile(tree, str(path), "exec")

    def _marked(self, block: list[ast.stmt], shown: str) -> list[ast.stmt]:
        found: list[ast.stmt] = []
        for statement in block:
            is_text = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
            if not (is_text and not found):  # a docstring stays the first
                mark = ast.parse(f"{NAME}[{len(self.places)}] = 1").body[0]
                mark.marked = True  # type: ignore[attr-defined]
                found.append(placed(mark, statement.lineno))
                self.places.append((shown, statement.lineno))
                assert len(self.places) <= MOST
            found.append(statement)
        return found

    def taken(self) -> dict[str, set[int]]:
        """The lines that ran since this was asked the last time, here and in forked processes."""
        found: dict[str, set[int]] = {}
        ran = np.frombuffer(self._ran, np.uint8, len(self.places))
        for number in np.flatnonzero(ran):
            path, line = self.places[number]
            found.setdefault(path, set()).add(line)
        ran[:] = 0
        return found


def placed(tree: ast.stmt, line: int) -> ast.stmt:
    """A statement and its parts on a line of another."""
    for node in ast.walk(tree):
        if isinstance(node, ast.stmt | ast.expr):
            node.lineno = node.end_lineno = line
            node.col_offset = node.end_col_offset = 0
    return tree


@dataclass(eq=False)
class Recorder:
    """A pytest plugin: which marked lines each test ran."""

    marks: Marks
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
        self.marks.taken()
        self._now, self._failed, start = {}, False, processor_time()
        try:
            return (yield)  # type: ignore[misc]
        finally:
            add(self._now, self.marks.taken())
            if not self._failed:
                self.seconds[item.nodeid] = processor_time() - start
                for fixture in used_by(item):
                    add(self._now, self._fixtures.get(fixture, {}))
                for path, found in self._now.items():
                    self.lines[f"{path}:{item.nodeid}"] = found

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any) -> Iterator[None]:
        add(self._now, self.marks.taken())
        before, self._now = self._now, {}
        try:
            return (yield)  # type: ignore[misc]
        finally:
            add(self._now, self.marks.taken())
            if fixturedef.scope != "function":
                add(self._fixtures.setdefault(fixturedef, {}), self._now)
            add(before, self._now)
            self._now = before

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._failed |= report.outcome != "passed"

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
