"""The mutants of small pieces of code, one by one."""

from __future__ import annotations

import ast
import importlib
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.mutants.lines import Coverage, Marks, Recorder
from tests.mutants.mutate import mutants_of
from tests.mutants.run import Result, accepted_reason, few, naming, noticed, report
from tests.mutants.run import parse as parse_options
from tests.mutants.serve import Served, module_name


def changes(code: str, tmp_path: Path) -> list[str]:
    path = tmp_path / "code.py"
    path.write_text(code)
    found = []
    for mutant in mutants_of(path, "code.py"):
        compile(mutant.tree, "code.py", "exec")
        found.append(mutant.change.split(" -> ", 1)[1])
    # Whatever was changed has been put back.
    assert ast.unparse(ast.parse(code)) == ast.unparse(ast.parse(path.read_text()))
    return found


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("x = a < b", ["x = a <= b"]),
        ("x = a is not None", ["x = a is None"]),
        ("x = a + b * c", ["x = a - b * c", "x = a", "x = a + b / c", "x = a + b"]),
        ("x = -a", ["x = a"]),
        ("x = a and b", ["x = a or b", "x = b", "x = a"]),
        ("x = 3", ["x = 4"]),
        ("x = 0.5", ["x = 1.0"]),
        ("x = True", ["x = False"]),
        ("x = a if b else c", ["x = a", "x = c"]),
        ("x = [a for a in b if c]", ["x = [a for a in b]"]),
        ("x = f(a, b, c)", ["x = f(b, a, c)"]),
        ("x = f(a, key=b)", ["x = f(a)"]),
        ("x = a.detach()", ["x = a"]),
        ("x = min(a)", ["x = max(a)"]),
        ("f(a)", [""]),
        ("x += 1", ["", "x -= 1", "x += 2"]),
        ("a.b = c", [""]),
        ("if a:\n    raise ValueError('no')", ["if not a:", ""]),
        ("def f():\n    return a", ["return None"]),
        ("for a in b:\n    continue", ["break"]),
        ("def f():\n    return False", ["return True"]),
        ("x = a.sum(-1)", ["x = a.sum(-2)"]),
        ("x = f(a, dim=-1)", ["x = f(a)", "x = f(a, dim=-2)"]),
        ("x = f(-1)", ["x = f(1)", "x = f(-2)"]),
        ("x = advance(a, b)", ["x = advance(b, a)"]),
        ("class Task:\n    width: int = 3", ["width: int = 4"]),
        ("class TaskSettings(Base):\n    width = 3", ["width = 4"]),
        (
            "def f(a, b=1, seed=2, *, c=3):\n    pass",
            ["def f(a, b=2, seed=2, *, c=3):", "def f(a, b=1, seed=2, *, c=4):"],
        ),
    ],
)
def test_each_piece_of_code_has_these_mutants(code: str, expected: list[str], tmp_path: Path) -> None:
    assert changes(code, tmp_path) == expected


@pytest.mark.parametrize(
    "code",
    [
        "x: int = a",
        "'text'",
        "x = 'text'",
        "def f(x: list[int]) -> dict[str, int]:\n    pass",
        "assert a < b",
        "x = Field(a, ge=0)",
        "x = zip(a, strict=True)",
        "x = a.contiguous()",
        "x = time.monotonic() < a",
        "import a",
        "raise_if = f'{a + b}'",
        "class TaskSettings(Base):\n    width: int = Field(3, ge=1)\n    on: bool = True",
        "class Task(Settings):\n    width: int = 3",
        "def f(a, *, seed=0):\n    pass",
        "def f(a, seed=0):\n    pass",
        "READ_AT_ONCE = 64",
        "x = 1e-9",
        "x = self.kv_cache[0][0].shape",
        "run.say(a + b)",
        "with run.progress(a, b * 2) as bar:\n    bar.advance(1, loss=c / d)",
        "advance(a + b)",
        "x = field(repr=False)",
    ],
)
def test_texts_annotations_assertions_bounds_choices_and_what_is_said_have_none(code: str, tmp_path: Path) -> None:
    assert changes(code, tmp_path) == []


def test_a_mutant_knows_its_place(tmp_path: Path) -> None:
    path = tmp_path / "code.py"
    path.write_text("class A:\n    def f(self):\n        x = g(\n            1,\n        )\n        return x\n")
    constant, none = mutants_of(path, "code.py")
    assert (constant.where, constant.line, constant.lines) == ("code.py::A.f", 4, range(3, 5))
    assert (none.where, none.line) == ("code.py::A.f", 6)
    path.write_text("@cached\ndef f(x=1):\n    y = x\n    z = y\n")
    (default,) = mutants_of(path, "code.py")
    assert (default.where, default.line, default.lines) == ("code.py::f", 2, range(3, 5))


def test_tests_are_those_that_run_a_line_quickest_first() -> None:
    data = {
        "seconds": {"slow": 30.0, "quick": 1.0, "other": 20.0},
        "lines": {"a.py:slow": [1, 2], "a.py:quick": [2], "a.py:other": [9], "b.py:other": [2]},
    }
    coverage = Coverage.of(data)
    assert coverage.tests("a.py", range(1, 3), at_import=False) == ["quick", "slow"]
    assert coverage.tests("a.py", range(5, 6), at_import=False) == []
    assert coverage.tests("a.py", range(5, 6), at_import=True) == ["quick", "other", "slow"]
    assert coverage.tests("c.py", range(5, 6), at_import=True, named={"other"}) == ["other"]
    assert "tests/mutants/test_mutate.py" not in naming("Coverage") and "tests/learning/test_loop.py" in naming("Grpo")
    assert few(["quick", "other", "slow"], coverage) == ["quick", "other"]
    assert few(["slow", "other"], coverage) == ["slow"]  # one at least


def test_the_report_counts_what_could_be_noticed(tmp_path: Path) -> None:
    path = tmp_path / "code.py"
    path.write_text("def f():\n    g(1)\n    h(2)\n    i(3)\n")
    found = list(mutants_of(path, "code.py"))
    entries = [{"where": "code.py::f", "change": found[1].change, "reason": "no effect"}]
    assert [accepted_reason(mutant, entries) for mutant in found[:3]] == ["", "no effect", ""]
    assert accepted_reason(found[0], [{"where": "code.py", "reason": "all of it"}]) == "all of it"
    assert accepted_reason(found[0], [{"where": "code.py::g", "reason": "elsewhere"}]) == ""
    begun = {"where": "code.py::f", "begins": found[0].change[:7], "reason": "so it begins"}
    other = {"where": "code.py::f", "begins": "another", "reason": "so it does not"}
    assert (accepted_reason(found[0], [other, begun]), accepted_reason(found[0], [other])) == ("so it begins", "")
    verdicts = ["killed", "accepted", "survived", "timeout"]
    results = [Result(mutant, verdict) for mutant, verdict in zip(found, verdicts, strict=False)]
    assert noticed(results) == 2 / 3
    text = report(results, parse_options(["--sample", "4"]))
    # Wilson: (2/3 + 1.96^2/6 -+ 1.96 sqrt(2/27 + 1.96^2/36)) / (1 + 1.96^2/3).
    assert (
        "66.7% of a sample of 4 (seed 0) noticed; 95 % interval 20.8% to 93.9%" in text
        and "| code.py | 1 | 1 | 1 | 0 | 1 |" in text
    )
    assert found[2].change in text and found[0].change not in text


def recorded(recorder: Recorder, name: str, work: Callable[[], object]) -> None:
    """Run something as the test of that name."""
    item: Any = SimpleNamespace(nodeid=name, _fixtureinfo=SimpleNamespace(name2fixturedefs={}))
    steps = recorder.pytest_runtest_protocol(item)
    next(steps)
    work()
    with suppress(StopIteration):
        next(steps)


def test_lines_are_those_of_the_test_and_of_processes_it_forked(tmp_path: Path) -> None:
    path = tmp_path / "code.py"
    path.write_text("def f(x):\n    'what it does'\n    if x:\n        return 1\n    return [\n        2\n    ]\n")
    marks = Marks({str(path): "code.py"})
    code = dict(marks.names)
    exec(marks.code(path), code)
    assert code["f"].__doc__ == "what it does"

    def in_a_fork() -> None:
        if (pid := os.fork()) == 0:
            code["f"](False)
            os._exit(0)
        os.waitpid(pid, 0)

    recorder = Recorder(marks)
    recorded(recorder, "here", lambda: code["f"](True))
    recorded(recorder, "there", in_a_fork)
    recorded(recorder, "nowhere", lambda: None)
    assert recorder.data()["lines"] == {"code.py:here": [3, 4], "code.py:there": [3, 5]}


def test_every_statement_of_a_function_is_marked_once(tmp_path: Path) -> None:
    path = tmp_path / "code.py"
    lines = [
        "x = 1",
        "class A:",
        "    y = 2",
        "    def f(self, z):",
        "        def g():",
        "            return z",
        "        try:",
        "            with open(z) as h:",
        "                h.read()",
        "        except OSError:",
        "            pass",
        "        else:",
        "            z = 0",
        "        finally:",
        "            z = 1",
        "        match z:",
        "            case 1:",
        "                return g()",
        "            case _:",
        "                return 3",
    ]
    path.write_text("\n".join(lines))
    marks = Marks({str(path): "code.py"})
    code = dict(marks.names)
    exec(marks.code(path), code)
    assert sorted(line for _, line in marks.places) == [5, 6, 7, 8, 9, 11, 13, 15, 16, 18, 20]
    assert code["A"]().f("/no/such/file") == 1
    assert marks.taken() == {"code.py": {5, 6, 7, 8, 11, 15, 16, 18}} and marks.taken() == {}


def test_served_modules_have_the_code_that_was_made_of_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "served_package"
    folder.mkdir()
    (folder / "__init__.py").write_text("a = 1\n")
    (folder / "part.py").write_text("b = 2\n")
    names = {module_name(path, tmp_path): path for path in folder.iterdir()}
    made = Served(names, lambda path: compile(path.read_text() + "c = given\n", str(path), "exec"), given=7)
    monkeypatch.setattr(sys, "meta_path", [made, *sys.meta_path])
    part = importlib.import_module("served_package.part")
    assert (part.b, part.c, part.__file__) == (2, 7, str(folder / "part.py"))
    assert sys.modules["served_package"].c == 7
