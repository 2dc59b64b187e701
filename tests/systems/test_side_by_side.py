"""Stages in several processes leave what they would have left one after the other."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from oneiro.rundir.records import read_info
from oneiro.runtime.errors import OneiroError
from tests.systems.toy_branches import NAMES, whole


def places(path: Path) -> dict[str, float]:
    return {name: read_info(path)["stages"][name]["result"]["place"] for name in NAMES}


@pytest.mark.parametrize("trouble", ["", "killed"])
def test_processes_leave_the_bytes_of_one_after_the_other(tmp_path: Path, trouble: str) -> None:
    """Also where one of them is killed: its stage is done again."""
    one, several = whole(tmp_path / "one", 1), whole(tmp_path / "several", 2, trouble)
    assert (several.path / "metrics.jsonl").read_bytes() == (one.path / "metrics.jsonl").read_bytes()
    assert places(several.path) == places(one.path)
    assert list(several.info["stages"]) == ["before", *NAMES, "after"] and several.info["status"] == "done"
    assert all(stage["status"] == "done" for stage in several.info["stages"].values())
    processes = {several.info["stages"][name]["result"]["process"] for name in NAMES}
    assert float(os.getpid()) not in processes
    assert all(several.info[f"seen by {name}"] == 3 for name in NAMES)
    said = (several.path / "log.txt").read_text()
    assert all(f"stage {number} of 5: {name}" in said for number, name in enumerate(NAMES, start=2))


def test_an_error_ends_the_run_and_the_same_call_resumes(tmp_path: Path) -> None:
    with pytest.raises(OneiroError, match="second has a problem of its own"):
        whole(tmp_path / "run", 2, "error")
    info = read_info(tmp_path / "run")
    assert info["status"] == "stopped" and info["stages"]["second"]["status"] == "stopped"
    run, alone = whole(tmp_path / "run", 2, "error"), whole(tmp_path / "alone", 1)
    assert (run.path / "metrics.jsonl").read_bytes() == (alone.path / "metrics.jsonl").read_bytes()
    assert run.info["stages"]["second"]["starts"] == 2
