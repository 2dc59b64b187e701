"""Countdown: safe arithmetic, fair scoring."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from oneiro.runtime.errors import OneiroError
from oneiro.worlds import make
from oneiro.worlds.puzzle.countdown import CountdownTask, parse, solve


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("(3 + 5) * 2", 16),
        ("3+5*2", 13),
        ("8/4/2", 1),
        ("7 - 2 - 1", 4),
        ("-(3 - 5) × 2", 4),
        ("1/3", Fraction(1, 3)),
        ("[6 ÷ 4] * 2 = 3", 3),
        ("--5", 5),
    ],
)
def test_expressions_have_their_value(text: str, value: Fraction) -> None:
    assert parse(text).value == value


def test_division_by_zero_is_read_and_has_no_value() -> None:
    assert parse("5 / (3 - 3) + 1") == (None, (5, 3, 3, 1))


@pytest.mark.parametrize(
    "text",
    [
        *("", "3 +", "(3", "3)", "3 5", "2 ** 3", "2^3", "3 // 2", "1.5 + 2", "x + 1", "__import__('os')", "3 = x"),
        *("9" * 10, "1" + "+1" * 200, "(" * 100 + "1" + ")" * 100, "-" * 100 + "1", "³", "٣+١"),
    ],
)
def test_anything_else_is_no_expression(text: str) -> None:
    assert parse(text) is None


def test_values_agree_with_pythons_own_arithmetic_on_random_expressions() -> None:
    rng = np.random.default_rng(0)

    def grown(depth: int) -> tuple[str, Fraction | None]:
        if depth == 0 or rng.random() < 0.2:
            number = int(rng.integers(0, 30))
            return str(number), Fraction(number)
        (a, x), (b, y) = grown(depth - 1), grown(depth - 1)
        operation = "+-*/"[int(rng.integers(4))]
        if x is None or y is None or (operation == "/" and not y):
            return f"({a} {operation} {b})", None
        value = {"+": x + y, "-": x - y, "*": x * y}[operation] if operation != "/" else x / y
        return f"({a} {operation} {b})", value

    for _ in range(300):
        text, value = grown(3)
        assert parse(text).value == value


def test_scores_are_as_published() -> None:
    world = make("countdown", max_actions=2)
    for action, reward, done in (
        ("(62 + 97) + 67 - 6", 0.1, True),
        ("62 + 97", 0.0, True),
        ("62 + 62 - 67 - 97", 0.0, True),
        ("I do not know", 0.0, False),
        ("62 / (67 - 67)", 0.0, True),
        ("97 - 67 + (62 - 6) / 7", 0.0, True),
        ("97 - 67 + 62 - 6", 1.0, True),
    ):
        world.reset(seed=0)
        world.task = CountdownTask((62, 6, 67, 97), 86)
        _, got, ended, _, info = world.step(action)
        assert (got, ended, info["success"]) == (reward, done, reward == 1.0), action


def test_every_made_up_task_has_a_solution_its_numbers_can_make() -> None:
    for variant in ("countdown", "countdown:three", "countdown:plus-minus"):
        world = make(variant)
        for seed in range(30):
            world.reset(seed=seed)
            assert 1 <= world.task.target <= 99 and len(world.task.numbers) in (3, 4)
            _, reward, done, _, info = world.step(world.oracle())
            assert (reward, done, info["success"]) == (1.0, True, True)


def test_the_solver_finds_what_exists_and_nothing_else() -> None:
    assert parse(solve((3, 3, 8, 8), 24)).value == 24
    assert solve((1, 1, 1), 24) is None


def test_tasks_come_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "tasks.jsonl"
    file.write_text("\n".join(json.dumps({"nums": [n, 2, 3], "target": n + 5}) for n in range(1, 60)))
    world = make("countdown", path=str(file))
    seen = {split: {world.reset(seed=s, options={"split": split})[0] for s in range(60)} for split in ("train", "eval")}
    assert seen["train"] and seen["eval"] and not seen["train"] & seen["eval"]
    world.step(world.oracle())
    assert world.solved
    file.with_name("bad.jsonl").write_text('{"numbers": [1]}')
    with pytest.raises(OneiroError, match="needs `nums`"):
        make("countdown", path=str(file.with_name("bad.jsonl"))).reset(seed=0)
    with pytest.raises(OneiroError, match="does not exist"):
        make("countdown", path=str(file.with_name("none.jsonl"))).reset(seed=0)


@pytest.mark.parametrize("numbers", [[1, 2, 3, 4, 5, 6], [7], [], [-3, 5], [0, 5], [1.5, 2.5], [10**10, 5], "12"])
def test_a_task_that_nobody_could_solve_or_answer_is_refused(numbers: object, tmp_path: Path) -> None:
    file = tmp_path / "tasks.jsonl"
    file.write_text(json.dumps({"nums": numbers, "target": 4}))
    with pytest.raises(OneiroError, match="2 to 5 whole numbers from 1 to 999,999,999"):
        make("countdown", path=str(file)).reset(seed=0)
