"""The baselines of the benchmark are what they stand for."""

from __future__ import annotations

import pytest

from oneiro.cli import main
from oneiro.seeds import generator
from oneiro.worlds import make
from oneiro.worlds.bench import PlainSteps, batch_steps, difficulty, plain_room, rate, single_steps
from oneiro.worlds.grid.sokoban.world import level_for, room_of


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


def test_batches_are_faster_than_single_worlds_and_both_than_painting() -> None:
    painted = rate(PlainSteps(room_of(level_for(make("sokoban").config.plan, 0, None))).step, 0.2)
    single, batch = single_steps("sokoban", 0.2), batch_steps("sokoban", 0.3)
    assert batch > single > 5 * painted


@pytest.mark.parametrize("seconds", ["-1", "0", "nan", "inf"])
def test_a_time_that_is_none_is_one_line(seconds: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "worlds", "--seconds", seconds]) == 2
    assert capsys.readouterr().err.strip() == f"a measurement takes more than 0 seconds, not {seconds}"
