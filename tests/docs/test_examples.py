"""The scripts of examples/ run, at their smallest size."""

from __future__ import annotations

import contextlib
import io
import runpy
import sys
from pathlib import Path

import pytest

from tests.docs.pages import ROOT


def follow(script: str, place: Path, *arguments: str, keys: str = "") -> str:
    """What a script prints. In this process: importing torch takes longer than most scripts."""
    printed, path = io.StringIO(), str(ROOT / "examples" / script)
    with (
        contextlib.chdir(place),
        contextlib.redirect_stdout(printed),
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setattr(sys, "argv", [path, *arguments])
        patch.setattr(sys, "stdin", io.StringIO(keys))
        runpy.run_path(path, run_name="__main__")
    return printed.getvalue()


@pytest.mark.slow
def test_an_own_reward_is_learned(tmp_path: Path) -> None:
    last = follow("own_reward.py", tmp_path, "40").splitlines()[-1]
    first, end = (float(part.split()[-1]) for part in last.removeprefix("mean reward: ").split(", "))
    assert end > first + 0.05


@pytest.mark.slow
def test_an_own_environment_is_trained_in(tmp_path: Path) -> None:
    printed = follow("own_environment.py", tmp_path, "preset=smoke", "variants=[spa]", "sft.epochs=1")
    assert printed.splitlines()[-1].endswith("report.html")


@pytest.mark.slow
def test_a_world_model_is_played(tmp_path: Path) -> None:
    printed = follow("play_world_model.py", tmp_path, "preset=smoke", "evaluation.levels=2", keys="x\na\nq\n")
    assert printed.splitlines()[-1].endswith("of 1 steps")
