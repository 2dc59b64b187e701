"""Runs of Dyna count their true steps and log how far dreams are from the truth."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from oneiro.agents.learners.lake import steps_in
from oneiro.rundir.records import read_lines, read_log
from oneiro.rundir.run import Run
from oneiro.runtime.files import read_json
from oneiro.systems.dyna.pipeline import DynaVariant, by_level, equal_steps_table, steps_table, variants_table
from oneiro.systems.dyna.recipe import DynaSettings, Variant
from oneiro.tasks.webpage.parquet import read_parquet
from tests.toy_system import ToyRecipe

Finished = Callable[[str, str], Path]


def test_a_dyna_run_on_the_web_counts_true_steps_and_learns_in_dreams_without_any(finished: Finished) -> None:
    run = finished("dyna/web", "smoke")
    log = (run / "log.txt").read_text()
    assert "stage 1 of 19: policy-0" in log and "stage 19 of 19: compare" in log
    before = sum(len(read_parquet(run / "data" / f"{name}-0.parquet")) for name in ("demonstrations", "play"))
    logged = {
        name: [row for row in read_log(run / "metrics.jsonl") if row["stage"] == f"{name}-0"]
        for name in ("real-only", "replay", "dream-only", "mixed")
    }
    true = {name: len(read_parquet(run / "data" / f"rl-{name}-0-1.parquet")) for name in logged}
    for name, rows in logged.items():
        assert [row["step"] for row in rows] == [before, before + true[name]]
        assert all(row["gap"] == pytest.approx(row["dreamed_success"] - row["true_success"]) for row in rows)
    assert true["dream-only"] == 0 < true["mixed"] < true["real-only"]
    assert 0 < true["replay"] < true["real-only"]
    (group,) = read_json(run / "data" / "groups-replay-0-1.json")  # half of two groups is truly played
    assert sorted(group[0][0]) == ["message", "probability", "reply", "state"] and len(group) == true["replay"]
    folders = {path.name for path in (run / "checkpoints").iterdir()}
    assert "refresh-mixed-0-1" in folders and "refresh-dream-only-0-1" not in folders


def test_a_dyna_run_counts_true_steps_and_logs_the_gap_at_every_evaluation(finished: Finished) -> None:
    run = finished("dyna/frozen-lake", "smoke")
    played = steps_in(list(read_lines(run / "episodes" / "play-0-000000.jsonl.gz")))
    logged = {
        name: [row for row in read_log(run / "metrics.jsonl") if row["stage"] == f"{name}-0"]
        for name in ("real-only", "dream-only", "mixed")
    }
    for rows in logged.values():
        assert len(rows) == 2  # before RL, and after its one round
        assert rows[0]["step"] == played
        assert all(row["gap"] == pytest.approx(row["dreamed_success"] - row["true_success"]) for row in rows)
    assert logged["dream-only"][-1]["step"] == played
    assert played < logged["mixed"][-1]["step"] < logged["real-only"][-1]["step"]
    true = [row for file in run.glob("episodes/rl-real-only-0-1-*.jsonl.gz") for row in read_lines(file)]
    assert logged["real-only"][-1]["step"] == played + sum(len(row["turns"]) for row in true)
    dreams = {row["world"] for file in run.glob("episodes/rl-mixed-0-1-*.jsonl.gz") for row in read_lines(file)}
    assert dreams == {"frozen-lake", "learned-frozen-lake"}


def test_the_steps_that_a_variant_needs_are_those_of_the_first_measurement_that_is_as_good() -> None:
    table, notes = steps_table(
        {
            "real-only": [curve((100, 0.2), (1000, 0.6))],
            "mixed": [curve((100, 0.2), (300, 0.6), (400, 0.7))],
            "dream-only": [curve((100, 0.2), (100, 0.3))],
        }
    )
    assert table is not None
    found = {str(row[0].value): row[3].value for row in table.rows}
    assert found == {"real-only": 1000, "mixed": 300, "dream-only": None}
    assert "mixed reaches real-only's final success in 1 of 1 repeats that learned, with 30%" in notes[0]


def test_nobody_saves_steps_where_real_only_learned_nothing() -> None:
    still, good = curve((100, 0.2), (1000, 0.2)), curve((100, 0.2), (1000, 0.7))
    table, notes = steps_table({"real-only": [still], "mixed": [curve((100, 0.2), (200, 0.2))]})
    assert table is None and notes == [
        "Repeat 0: real-only learned nothing to speak of (20.0% before, 20.0% after), so no steps are saved."
    ]
    table, notes = steps_table({"real-only": [still, good], "mixed": [good, good]})
    assert table is not None and [row[1].value for row in table.rows] == [1, 1]
    assert "in 1 of 1 repeats that learned" in notes[1]


def test_success_at_equal_true_steps_lies_on_the_line_between_two_measurements() -> None:
    table, notes = equal_steps_table(
        {
            "real-only": [curve((100, 0.0), (1000, 0.9))],
            "replay": [curve((100, 0.0), (400, 0.2))],
            "mixed": [curve((100, 0.0), (250, 0.2), (400, 0.6))],
            "dream-only": [curve((100, 0.0), (100, 0.9))],
        }
    )
    assert table is not None
    rows = {str(row[0].value): [row[place].value for place in (1, 2, 3, 5)] for row in table.rows}
    assert rows["first policy"] == pytest.approx([0.0, 0.0, 0.0, 400])
    # After 100, 200 and 300 of the 300 steps that all took.
    assert rows["real-only"] == pytest.approx([0.1, 0.2, 0.3, 400])
    assert rows["replay"] == pytest.approx([0.2 / 3, 0.4 / 3, 0.2, 400])
    assert rows["mixed"] == pytest.approx([0.4 / 3, 0.2 + 0.4 / 3, 0.6, 400])
    assert "dream-only" not in rows and notes[0].startswith("At equal true steps, success of mixed less replay: +40.0%")


def curve(*points: tuple[int, float]) -> dict[str, Any]:
    """Measurements of ten levels, of which a share is solved."""
    rounds = [
        {
            "true_steps": steps,
            "true_success": share,
            "success": [1.0] * round(10 * share) + [0.0] * round(10 - 10 * share),
        }
        for steps, share in points
    ]
    return {"rounds": rounds, "stopped": ""}


class Given(DynaVariant):
    """Its measurements are given."""

    played = ("play",)

    def __init__(self, run: Run, settings: DynaSettings, variant: Variant, gaps: list[float]) -> None:
        learner = SimpleNamespace(run=run, number=0, name_stage=lambda stage: f"{stage}-0")
        super().__init__(learner, SimpleNamespace(dyna=settings), variant)
        run.stage("play-0", lambda: {"steps": 7})
        self.gaps = gaps
        self.done: list[str] = []

    def reinforce(self, number: int) -> dict[str, Any]:
        self.done.append(f"rl {number}")
        return {"true_steps": 10 * number}

    def refresh(self, number: int) -> dict[str, Any]:
        self.done.append(f"refresh {number}")
        return {}

    def evaluate(self, number: int) -> dict[str, Any]:
        true, gap = 0.5, self.gaps[number]
        return {"true_success": true, "dreamed_success": true + gap, "gap": gap, "true_steps": self.true_steps(number)}


@pytest.mark.parametrize(
    ("variant", "gaps", "rounds", "stopped"),
    [
        ("dream-only", [0.0, 0.2, 0.25, 0.0], 2, "differs from the truth by 25.0%"),
        ("dream-only", [0.0, -0.1, -0.25, 0.0], 2, "differs from the truth by -25.0%"),  # a model that cannot teach
        ("dream-only", [0.9, 0.2, -0.2, 0.2], 3, ""),  # the bound itself is no gap, nor is the one before RL
        ("real-only", [0.0, 0.9, -0.9, 0.9], 3, ""),  # it dreams nothing
    ],
)
def test_a_variant_stops_where_dreams_and_truth_part_either_way(
    tmp_path: Path, variant: Variant, gaps: list[float], rounds: int, stopped: str
) -> None:
    with Run.open(tmp_path / "run", ToyRecipe(system="toy")) as run:
        given = Given(run, DynaSettings(rounds=3, max_gap=0.2), variant, gaps)
        found = given.train()
    assert [one["gap"] for one in found["rounds"]] == gaps[: rounds + 1] and len(given.done) == rounds
    assert bool(found["stopped"]) == bool(stopped) and stopped in found["stopped"]


def test_only_a_mixed_variant_refreshes_its_model_and_true_steps_add_up(tmp_path: Path) -> None:
    with Run.open(tmp_path / "run", ToyRecipe(system="toy")) as run:
        given = Given(run, DynaSettings(rounds=2, max_gap=0.5), "mixed", [0.0, 0.1, 0.2])
        found = given.train()
    assert given.done == ["rl 1", "refresh 1", "rl 2", "refresh 2"]
    assert [one["true_steps"] for one in found["rounds"]] == [7, 17, 37]


def test_measurements_are_means_over_levels_of_attempts_and_of_dreams(tmp_path: Path) -> None:
    def attempts(*outcomes: tuple[int, bool]) -> list[Any]:
        return [SimpleNamespace(group=group, success=success) for group, success in outcomes]

    true, dreamed = attempts((0, True), (0, False), (1, False)), attempts((0, True), (1, True), (1, True))
    assert by_level(true) == [0.5, 0.0] and by_level(dreamed) == [1.0, 1.0]
    with Run.open(tmp_path / "run", ToyRecipe(system="toy")) as run:
        given = Given(run, DynaSettings(rounds=1), "mixed", [0.0])
        found = given.measurements(0, true, dreamed, [True, False, True, True])
        assert found == {
            "true_success": 0.25, "dreamed_success": 1.0, "gap": 0.75, "model_exact": 0.75, "true_steps": 7,
            "success": [0.5, 0.0],
        }  # fmt: skip
        assert "model_exact" not in given.measurements(0, true, dreamed, [])
        given.evaluate_and_log(0, found)
        given.evaluate_and_log(1, {**found, "true_success": 1.0})
        given.evaluate_and_log(1, {**found, "true_success": 0.5})  # once more, as a resumed run does
    rows = [row for row in read_log(tmp_path / "run" / "metrics.jsonl") if row["stage"] == "rounds-mixed-0"]
    assert [(row["step"], row["true_success"], row["gap"]) for row in rows] == [(0, 0.25, 0.75), (1, 0.5, 0.75)]


def test_variants_are_shown_after_their_last_round_with_each_repeat() -> None:
    def run(*rounds: tuple[int, float, list[float]]) -> dict[str, Any]:
        measured = [
            {"true_steps": steps, "dreamed_success": dream, "gap": dream - sum(own) / len(own), "success": own}
            for steps, dream, own in rounds
        ]
        return {"rounds": measured, "stopped": ""}

    one = run((100, 0.5, [0.0, 1.0]), (301, 0.25, [1.0, 1.0]))
    two = run((100, 0.5, [0.0, 0.0]), (200, 0.75, [0.0, 1.0]))
    two["rounds"][-1]["model_exact"] = 0.9
    rows = [[cell.value for cell in row] for row in variants_table({"mixed": [one, two]}).rows]
    assert rows[0] == ["first policy", 0.25, "50.0 0.0", 100, 0.5, pytest.approx(0.25), None]
    assert rows[1] == ["mixed", 0.75, "100.0 50.0", 250, 0.5, pytest.approx(-0.25), 0.9]
    assert variants_table({"mixed": [one]}).rows[1][2].value is None
    assert equal_steps_table({"mixed": [one]}) == (None, [])
    assert steps_table({"mixed": [one]}) == (None, [])
