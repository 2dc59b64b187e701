"""`oneiro bench worlds`: what it prints and writes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from oneiro import bench
from oneiro.errors import OneiroError


def test_rates_stand_beside_the_plain_loops_with_their_ratios(tmp_path: Path) -> None:
    speed, levels = bench.run("worlds", json=tmp_path / "worlds.json", seconds=0.05)
    rows = {row["what"]: row for row in speed.data()["rows"]}
    rooms = rows["sokoban 10x10, 2 boxes: rooms"]
    assert rooms["times faster"] == pytest.approx(rooms["here"] / rooms["plain loop"]) and rooms["times faster"] > 5
    assert rows["sokoban: text steps, 1024 at a time"]["times faster"] > 20
    assert [row["generator"] for row in levels.data()["rows"]] == ["this one", "depth-first search"]
    written = json.loads((tmp_path / "worlds.json").read_text())
    assert written["tables"] == [speed.data(), levels.data()]


def test_no_model_takes_part() -> None:
    with pytest.raises(OneiroError, match="leave --model out"):
        bench.run("worlds", "tiny")
