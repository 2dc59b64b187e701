"""`oneiro bench worlds`: what it prints and writes, and that its baselines are what they stand for."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import bench
from bench import worlds
from bench.worlds import difficulty, plain_room
from oneiro.cli import main
from oneiro.runtime.errors import OneiroError
from oneiro.runtime.seeds import generator
from oneiro.worlds import make
from oneiro.worlds.grid.sokoban.world import level_for, room_of


def test_rates_stand_beside_the_plain_loops_with_their_ratios(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rate = worlds.rate
    monkeypatch.setattr(worlds, "rate", lambda call, seconds: rate(call, 0.01))
    speed, levels = bench.run("worlds", json=tmp_path / "worlds.json")
    rows = {row["what"]: row for row in speed.data()["rows"]}
    rooms = rows["sokoban 10x10, 2 boxes: rooms"]
    assert rooms["times faster"] == pytest.approx(rooms["here"] / rooms["plain loop"])
    steps = rows["sokoban: text steps, 1024 at a time"]
    assert steps["times faster"] == pytest.approx(steps["here"] / steps["plain loop"])
    assert [row["generator"] for row in levels.data()["rows"]] == ["this one", "depth-first search"]
    written = json.loads((tmp_path / "worlds.json").read_text())
    assert written["tables"] == [speed.data(), levels.data()]


def test_no_model_takes_part() -> None:
    with pytest.raises(OneiroError, match="leave --model out"):
        bench.run("worlds", "tiny")


def test_the_plain_generator_makes_solvable_rooms_of_its_known_difficulty() -> None:
    world = make("sokoban")
    rooms = [plain_room(generator("test", number), world) for number in range(60)]
    found = difficulty("plain", rooms, world)
    # Known for 6x6 with one box, before the player's last random steps: 3.5 to 4.5 moves, every level within ten or so.
    assert 2.8 < found.moves < 4.8 and found.in_ten > 0.9 and found.pushes >= 1
    assert all(room.boxes & room.targets == 0 for room in rooms)


def test_difficulty_is_the_length_of_the_shortest_solution() -> None:
    world = make("sokoban")
    levels = [level_for(world.config.plan, seed, None) for seed in range(20)]
    found = difficulty("ours", [room_of(level) for level in levels], world)
    assert found.moves == sum(level.optimum for level in levels) / 20


@pytest.mark.parametrize("seconds", ["-1", "0", "nan", "inf"])
def test_a_time_that_is_none_is_one_line(seconds: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "worlds", "--seconds", seconds]) == 2
    assert capsys.readouterr().err.strip() == f"a measurement takes more than 0 seconds, not {seconds}"
