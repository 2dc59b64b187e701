"""What the board reads of run folders: names, status, growing metrics, an index of episodes; and nothing outside."""

from __future__ import annotations

import gzip
import json
import os
import time
from pathlib import Path

import pytest

from oneiro.board.folders import RunFolder, Runs
from oneiro.recipe import Recipe
from oneiro.report.page import differing_settings
from oneiro.report.table import Cell, Table
from oneiro.rundir.run import Run
from oneiro.runtime.errors import OneiroError


def make_run(path: Path, seed: int = 0) -> Path:
    with Run.open(path, Recipe(system="toy", seed=seed)) as run:
        run.stage("rl", lambda: None)
        run.log("rl", 1, {"success": 0.25, "loss": 2.0})
        rows = [{"world": "lake", "task": "a", "seed": n, "group": n // 2, "score": n / 2} for n in range(4)]
        run.episodes("rl", 1, [{**row, "turns": [{"reply": f"say {row['seed']}"}]} for row in rows])
    return path


def only(path: Path) -> RunFolder:
    return next(iter(Runs([path]).all().values()))


def test_runs_are_found_below_folders_and_keep_distinct_names(tmp_path: Path) -> None:
    make_run(tmp_path / "one" / "lake")
    make_run(tmp_path / "two" / "lake")
    make_run(tmp_path / "two" / "sweep" / "seed-1", 1)
    runs = Runs([tmp_path / "one", tmp_path / "two"]).all()
    assert set(runs) == {"lake", "two/lake", "sweep/seed-1"}
    settings = differing_settings([runs["lake"].recipe, runs["sweep/seed-1"].recipe], ["one", "two"])
    assert [[cell.value for cell in row] for row in settings.rows] == [["seed", "0", "1"]]


def test_a_link_out_of_the_given_folder_is_no_run_and_no_file(tmp_path: Path) -> None:
    secret = make_run(tmp_path / "elsewhere" / "secret")
    run = make_run(tmp_path / "runs" / "mine")
    (tmp_path / "runs" / "link").symlink_to(secret)
    assert set(Runs([tmp_path / "runs"]).all()) == {"mine"}
    (run / "episodes" / "rl-000009.jsonl.gz").symlink_to(secret / "episodes" / "rl-000001.jsonl.gz")
    with pytest.raises(OneiroError, match="leads out"):
        only(run).episodes.index("rl", 9)


def test_a_folder_without_runs_says_so(tmp_path: Path) -> None:
    with pytest.raises(OneiroError, match="not a run directory"):
        Runs([tmp_path])
    with pytest.raises(OneiroError, match="there is no folder"):
        Runs([tmp_path / "nothing"])


def test_metrics_grow_and_begin_anew_after_a_rewind(tmp_path: Path) -> None:
    run = only(make_run(tmp_path / "run"))
    assert run.metrics["rl", "success"] == ([1], [0.25])
    log = run.path / "metrics.jsonl"
    with log.open("a") as handle:
        handle.write('{"stage": "rl", "step": 2, "success": 0.5}\nbroken\n{"stage": "rl", "step": 3')
    assert run.metrics["rl", "success"] == ([1, 2], [0.25, 0.5])  # the last line is still being written
    with log.open("a") as handle:
        handle.write(', "success": 1}\n')
    assert run.metrics["rl", "success"] == ([1, 2, 3], [0.25, 0.5, 1.0])
    new = tmp_path / "new"
    new.write_text('{"stage": "rl", "step": 1, "success": 0.75}\n' + " " * 500 + "\n")  # longer than the old one
    new.replace(log)
    assert run.metrics["rl", "success"] == ([1], [0.75])


def test_a_run_that_says_it_runs_and_is_silent_is_told_from_one_at_work(tmp_path: Path) -> None:
    run = only(make_run(tmp_path / "run"))
    info = json.loads((run.path / "run.json").read_text())
    (run.path / "run.json").write_text(json.dumps({**info, "status": "running"}))
    log = run.path / "log.txt"
    log.write_text(
        "2026-01-01 10:00:00  SFT spa: 300/400 in 1:50, 2.73/s, 1:04 left  loss 0.04\n"
        "2026-01-01 10:00:01  SFT copy: 400/400 in 1:52, 2.9/s  loss 0.02\n"
    )
    assert run.status == "running" and run.progress == [("SFT spa", 0.75, "1:04")]
    os.utime(log, (time.time() - 600,) * 2)
    assert run.status == "silent" and run.progress == []


def test_key_numbers_leave_out_what_frames_them(tmp_path: Path) -> None:
    path = make_run(tmp_path / "run")
    table = Table("Success", ["agent", "success"], {"success": "%"})
    for name, value in (("random", 0.1), ("spa", 0.9), ("ceiling", 1.0)):
        table.add(name, Cell(value, value - 0.05, value, 10))
    with Run.open(path) as run:
        run.summary({"tables": [table.data()]})
    assert [(label, cell.value) for label, cell, _, _ in only(path).key_numbers()] == [("spa", 0.9)]


def test_an_index_has_the_small_facts_and_leads_to_one_episode(tmp_path: Path) -> None:
    run = only(make_run(tmp_path / "run"))
    rows = run.episodes.index("rl", 1)
    assert [(row.at, row.group, row.score, row.turns) for row in rows] == [(n, n // 2, n / 2, 1) for n in range(4)]
    assert run.episodes.read("rl", 1, 2)["turns"] == [{"reply": "say 2"}]
    assert run.episodes.search("rl", 1, "SAY 3") == {3}
    assert run.episodes.index("rl", 1) is rows  # not read again
    with pytest.raises(OneiroError, match="there is no number 4"):
        run.episodes.read("rl", 1, 4)
    with pytest.raises(OneiroError, match="no episodes"):
        run.episodes.index("../rl", 1)


def test_lines_that_are_no_episodes_are_left_out_and_damage_is_one_line(tmp_path: Path) -> None:
    run = only(make_run(tmp_path / "run"))
    file = run.path / "episodes" / "rl-000002.jsonl.gz"
    file.write_bytes(gzip.compress(b'{"score": 1}\n[]\nnot json\n{"score": "x"}\n{"score": 2}\n'))
    assert [(row.at, row.score) for row in run.episodes.index("rl", 2)] == [(0, 1.0), (1, 2.0)]
    assert run.episodes.read("rl", 2, 1) == {"score": 2}
    file.write_bytes(b"\x1f\x8b damaged")
    with pytest.raises(OneiroError, match="damaged"):
        run.episodes.index("rl", 2)
