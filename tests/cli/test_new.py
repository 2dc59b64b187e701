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


GROUPS = {"world": "oneiro.worlds", "task": "oneiro.tasks", "algorithm": "oneiro.algorithms"}


def test_new_packages_pass_their_own_tests(tmp_path: Path) -> None:
    """All in one process: what takes longest is to start it."""
    folders = [tmp_path / kind for kind in GROUPS]
    for (kind, group), folder in zip(GROUPS.items(), folders, strict=True):
        assert main(["new", kind, f"my-first-{kind}", "--out", str(folder)]) == 0
        project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
        (target,) = project["entry-points"][group].values()
        assert target == f"my_first_{kind}:MyFirst{kind.capitalize()}" and project["name"] == f"my-first-{kind}"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, [*folders, ROOT, ROOT / "web"]))}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *folders]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    # Sorted imports depend on the name; everything else that a linter says would be the skeleton's.
    lint = [sys.executable, "-m", "ruff", "check", "--isolated", "--line-length", "120", "--select", "E,F,UP,B", "."]
    linted = subprocess.run(lint, cwd=tmp_path, capture_output=True, text=True)
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
