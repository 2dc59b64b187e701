"""`oneiro new`: packages whose own tests pass, and which Oneiro finds by their entry points."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from oneiro.cli import main

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("kind", "group"), [("world", "oneiro.worlds"), ("task", "oneiro.tasks"), ("algorithm", "oneiro.algorithms")]
)
def test_a_new_package_passes_its_own_tests(kind: str, group: str, tmp_path: Path) -> None:
    folder = tmp_path / "made"
    assert main(["new", kind, f"my-first-{kind}", "--out", str(folder)]) == 0
    project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    (target,) = project["entry-points"][group].values()
    assert target == f"my_first_{kind}:MyFirst{kind.capitalize()}" and project["name"] == f"my-first-{kind}"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), str(ROOT), str(ROOT / "web")])}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "."]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    # Sorted imports depend on the name; everything else that a linter says would be the skeleton's.
    lint = [sys.executable, "-m", "ruff", "check", "--isolated", "--line-length", "120", "--select", "E,F,UP,B", "."]
    linted = subprocess.run(lint, cwd=folder, capture_output=True, text=True)
    assert linted.returncode == 0, linted.stdout


@pytest.mark.parametrize(
    ("arguments", "wrong"),
    [
        (["wrld", "a"], "no skeleton of a 'wrld'; did you mean 'world'?"),
        (["world", "../a"], "'../a' is no name for a package"),
        (["world", "A b"], "is no name for a package"),
        (["world", "there"], "there exists; choose another name or --out DIR"),
    ],
)
def test_mistakes_are_one_line(
    arguments: list[str],
    wrong: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there").mkdir()
    assert main(["new", *arguments]) == 2
    error = capsys.readouterr().err
    assert wrong in error and error.count("\n") == 1
