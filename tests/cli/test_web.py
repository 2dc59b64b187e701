"""Web pages on the command line: scoring pairs, recording steps, what a mistake says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from oneiro.tasks.webpage.parquet import read_parquet
from tests import commands

NOTHING = "New items:\nNone\n\nDeleted items:\nNone\n\nUpdated items:\nNone"
ONE = NOTHING.replace("New items:\nNone", "New items:\n[3] link 'a'")


def oneiro(*arguments: object) -> str:
    """What a command that works says besides its output."""
    done = commands.oneiro(*arguments)
    assert done.returncode == 0, done.stderr
    return done.stderr


def scored(folder: Path, rows: list[Any], scorer: str) -> tuple[dict[str, Any], str]:
    pairs, out = folder / "pairs.jsonl", folder / f"{scorer}.json"
    pairs.write_text("\n".join(row if isinstance(row, str) else json.dumps(row) for row in rows) + "\n")
    errors = oneiro("eval", "web-page", "--pairs", pairs, "--scorer", scorer, "--json", out)
    return json.loads(out.read_text()), errors


def test_pairs_are_scored_and_bad_rows_named_by_line(tmp_path: Path) -> None:
    rows: list[Any] = [
        {"id": "right", "prediction": ONE, "target": ONE},
        "{not json",
        {"id": 2, "prediction": NOTHING, "target": NOTHING},
        {"id": "half", "prediction": "a" * 300_000, "target": ONE},
        {"id": "x", "prediction": ONE},
        {"id": "y", "prediction": None, "target": ONE},
        [1],
        "[" * 5000,
        {"id": "\ud800", "prediction": f"no idea\n{ONE}\nthat is all", "target": ONE},
    ]
    found, errors = scored(tmp_path, rows, "strict")
    assert [row["f1"] for row in found["pairs"]] == [1.0, 1.0, 0.0, pytest.approx(2 / 3)]
    assert [row["flaw"] for row in found["pairs"]] == [None, None, "shape", None]
    assert [bad["line"] for bad in found["skipped"]] == [2, 5, 6, 7, 8]
    assert found["rows"][0]["f1"]["value"] == pytest.approx((1 + 1 + 0 + 2 / 3) / 4)
    assert "line 5: skipped, has no 'target'" in errors and "Traceback" not in errors
    found, _ = scored(tmp_path, rows[:3], "official")
    assert [row["f1"] for row in found["pairs"]] == [1.0, 1.0] and "id_free_f1" not in found["pairs"][0]
    # The strict scorer needs a target that it can read; the published one takes any text.
    odd = {"id": 1, "prediction": ONE, "target": "New items:\n[3] link 'a'"}
    assert "line 1" in scored(tmp_path, [odd, rows[0]], "strict")[1]
    assert scored(tmp_path, [odd], "official")[0]["pairs"][0]["recall"] == 1.0


def test_mistakes_are_one_line(tmp_path: Path) -> None:
    empty, bad = tmp_path / "empty.jsonl", tmp_path / "bad.jsonl"
    empty.write_text("\n")
    bad.write_text("x\n")
    assert "it is empty" in commands.mistake("eval", "web-page", "--pairs", empty)
    assert "line 1: not JSON" in commands.mistake("eval", "web-page", "--pairs", bad)
    assert "cannot read" in commands.mistake("eval", "web-page", "--pairs", tmp_path / "no.jsonl")
    assert "no scorer called 'strickt'" in commands.mistake("eval", "web-page", "--pairs", bad, "--scorer", "strickt")
    assert "either --pairs" in commands.mistake("eval", "web-page")
    data = ("data", "web", "--episodes", 1, "--policy")
    assert "no web world" in commands.mistake(*data, "random", "--from", "sokoban", "--out", tmp_path / "a.parquet")
    line = commands.mistake(*data, "randm", "--from", "web", "--out", tmp_path / "a.parquet")
    assert "no policy called 'randm'" in line
    assert ".parquet" in commands.mistake(*data, "random", "--from", "web", "--out", tmp_path / "a.csv")


def test_steps_are_recorded_in_both_splits(tmp_path: Path) -> None:
    found = {}
    for split in ("train", "test"):
        out = tmp_path / f"{split}.parquet"
        oneiro(
            "data", "web", "--from", "web:map", "--policy", "oracle", "--episodes", 2, "--steps", 4, "--split", split,
            "--out", out, "--json", tmp_path / "table.json",
        )  # fmt: skip
        found[split] = read_parquet(out)
        assert json.loads((tmp_path / "table.json").read_text())["rows"][0]["rows"] == len(found[split])
    contents = {split: {case.content for case in cases} for split, cases in found.items()}
    templates = {split: {case.template for case in cases} for split, cases in found.items()}
    assert not contents["train"] & contents["test"] and not templates["train"] & templates["test"]
    assert all(case.site == "map" for cases in found.values() for case in cases)
