"""The episodes of a run as a Parquet file: every episode of the files, whatever its records hold."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from oneiro.cli import main
from oneiro.report.episodes import episodes_to_parquet
from oneiro.rundir.records import read_lines
from oneiro.rundir.run import Run
from oneiro.runtime.errors import OneiroError
from tests.toy_system import ToyRecipe


def test_every_episode_of_a_run_is_a_row_with_its_turns(
    finished: Callable[[str, str], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, out = finished("spa/frozen-lake", "smoke"), tmp_path / "new" / "episodes.parquet"
    assert main(["episodes", str(run), "--out", str(out), "--stage", "rl-spa"]) == 0
    expected = [row for file in sorted((run / "episodes").glob("rl-spa-*.gz")) for row in read_lines(file)]
    table = pq.read_table(out)
    assert f"{len(expected)} episodes with stage, step, " in capsys.readouterr().out
    rows = table.to_pylist()
    assert [row["stage"] for row in rows] == ["rl-spa"] * len(expected) and len(expected) > 0
    for row, record in zip(rows, expected, strict=True):
        assert row["score"] == pytest.approx(record["score"]) and row["success"] == record["success"]
        assert [turn["reply"] for turn in row["turns"]] == [turn["reply"] for turn in record["turns"]]


def test_records_that_do_not_agree_become_texts_and_nothing_is_lost(tmp_path: Path) -> None:
    with Run.open(tmp_path / "run", ToyRecipe(system="toy")) as run:
        run.episodes("a", 1, [{"mixed": 1, "empty": {}, "number": 1}, {"mixed": "x", "number": 2.5}])
        run.episodes("b", 1, [{"mixed": [1], "more": [{"k": 1}]}])
    assert episodes_to_parquet(tmp_path / "run", tmp_path / "out.parquet")[0] == 3
    assert pq.read_table(tmp_path / "out.parquet").to_pylist() == [
        {"stage": "a", "step": 1, "mixed": "1", "empty": "{}", "number": 1.0, "more": None},
        {"stage": "a", "step": 1, "mixed": '"x"', "empty": None, "number": 2.5, "more": None},
        {"stage": "b", "step": 1, "mixed": "[1]", "empty": None, "number": None, "more": [{"k": 1}]},
    ]
    with pytest.raises(OneiroError, match="no episodes of a stage 'c'"):
        episodes_to_parquet(tmp_path / "run", tmp_path / "out.parquet", ["c"])


def test_a_place_without_episodes_or_a_run_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Run.open(tmp_path / "run", ToyRecipe(system="toy")).close()
    for words, line in (
        ((str(tmp_path / "run"), "--out", str(tmp_path / "x.parquet")), "has no episodes yet"),
        ((str(tmp_path), "--out", str(tmp_path / "x.parquet")), "is not a run directory"),
        ((str(tmp_path / "run"), "--out", str(tmp_path)), "it is a folder"),
    ):
        assert main(["episodes", *words]) == 2 and line in capsys.readouterr().err
