"""Runs of planning and dreaming leave behind what their claims need: rows, controls, ceilings, traces and counts."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from oneiro.agents.evaluate import evaluate_agent
from oneiro.agents.learners.lake import random_play, steps_in, transitions
from oneiro.agents.planning.settings import PlannerSettings
from oneiro.recipe import load
from oneiro.report import page
from oneiro.rundir.records import read_lines, read_log
from oneiro.runtime.errors import OneiroError
from oneiro.systems.dyna.pipeline import steps_table
from oneiro.systems.plan.pipeline import difference, planning_table
from oneiro.tasks.webpage.parquet import read_parquet
from oneiro.worlds.grid.frozen_lake.world import FrozenLake, FrozenLakeConfig

Finished = Callable[[str, str], Path]


def names(run: Path, table: int = 0) -> list[str]:
    return [str(row[0].value) for row in page.tables(run)[table].rows]


def test_a_planning_run_has_every_row_for_both_goals_and_traces(finished: Finished) -> None:
    run = finished("plan/frozen-lake", "smoke")
    wanted = {"random", "policy, vote", "beam, shuffled model", "beam, lookup", "mpc, model", "beam, model"}
    for table in (0, 1):
        assert wanted | {"beam, true lake", "best possible"} <= set(names(run, table))
    text = (run / "report.html").read_text()
    assert "Decisions of the planner" in text and "What happened" in text
    traces = json.loads((run / "traces.json").read_text())["traces"]
    assert traces and all(turn["choice"] for trace in traces for turn in trace["turns"])


def test_search_in_the_true_lake_is_the_ceiling_of_a_run(finished: Finished) -> None:
    table = page.tables(finished("plan/frozen-lake", "smoke"))[0]
    rows = {str(row[0].value): row[1].value for row in table.rows}
    assert rows["best possible"] == 1.0
    assert rows["beam, true lake"] == max(value for name, value in rows.items() if "true lake" in name)


def test_a_text_game_run_has_every_row(finished: Finished) -> None:
    run = finished("plan/text-game", "smoke")
    assert {"random", "policy", "policy, vote", "beam, model", "beam, lookup", "beam, true game"} <= set(names(run))


def test_a_web_run_has_every_row_the_control_of_the_same_data_and_traces(finished: Finished) -> None:
    run = finished("plan/web", "smoke")
    rows = {"random", "policy", "policy, vote", "policy, and its successes", "best possible"}
    searched = {f"beam, {name}" for name in ("model", "lookup", "shuffled model", "true web")}
    assert rows | searched == set(names(run))
    assert names(run, 1) == ["no change", "lookup", "model"]
    traces = json.loads((run / "traces.json").read_text())["traces"]
    assert traces and all(turn["choice"] and turn["candidates"] for trace in traces for turn in trace["turns"])
    for number in (0, 1):  # both folders play: the policy alone, and search in the model with it
        assert (run / "checkpoints" / f"policy-{number}" / "linear.npy").is_file()
        assert (run / "checkpoints" / f"world-model-{number}" / "page_model.json").is_file()


def test_a_page_model_of_a_run_is_searched_from_its_folder(finished: Finished) -> None:
    folder = str(finished("plan/web", "smoke") / "checkpoints" / "world-model-0")
    for name in ("beam", "mpc"):
        settings = PlannerSettings.model_validate(
            {"name": name, "depth": 2, "width": 2, "sequences": 3, "proposals": 3}
        )
        table = evaluate_agent("web", folder, levels=2, samples=1, plan=settings)
        assert [str(row[0].value) for row in table.rows][1].endswith(f"{name} depth 2")
    with pytest.raises(OneiroError, match="cannot plan in frozen-lake"):
        evaluate_agent("frozen-lake", folder, plan=PlannerSettings())


def test_a_dyna_run_on_the_web_counts_true_steps_and_learns_in_dreams_without_any(finished: Finished) -> None:
    run = finished("dyna/web", "smoke")
    log = (run / "log.txt").read_text()
    assert "stage 1 of 15: policy-0" in log and "stage 15 of 15: compare" in log
    before = sum(len(read_parquet(run / "data" / f"{name}-0.parquet")) for name in ("demonstrations", "play"))
    logged = {
        name: [row for row in read_log(run / "metrics.jsonl") if row["stage"] == f"{name}-0"]
        for name in ("real-only", "dream-only", "mixed")
    }
    true = {name: len(read_parquet(run / "data" / f"rl-{name}-0-1.parquet")) for name in logged}
    for name, rows in logged.items():
        assert [row["step"] for row in rows] == [before, before + true[name]]
        assert all(row["gap"] == pytest.approx(row["dreamed_success"] - row["true_success"]) for row in rows)
    assert true["dream-only"] == 0 < true["mixed"] < true["real-only"]
    folders = {path.name for path in (run / "checkpoints").iterdir()}
    assert "refresh-mixed-0-1" in folders and "refresh-dream-only-0-1" not in folders


def test_recipes_of_the_web_refuse_tasks_without_a_page_to_reach() -> None:
    with pytest.raises(OneiroError, match="map/phone does not end on a page"):
        load("plan/web", ["templates=[map/phone]"])
    with pytest.raises(OneiroError, match="named in templates"):
        load("dyna/web", ["world.sites=[map]"])


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
    true = [row for file in run.glob("episodes/rl-real-only-0-1-*") for row in read_lines(file)]
    assert logged["real-only"][-1]["step"] == played + sum(len(row["turns"]) for row in true)
    dreams = {row["world"] for file in run.glob("episodes/rl-mixed-0-1-*") for row in read_lines(file)}
    assert dreams == {"frozen-lake", "learned-frozen-lake"}


def test_random_play_is_the_same_again_and_its_steps_are_true() -> None:
    world = FrozenLake(FrozenLakeConfig(view="spaced"))
    records = list(random_play(world, range(20), "train", 3))
    assert records == list(random_play(world, range(20), "train", 3))
    assert {record["finish_reason"] for record in records} <= {"goal", "failed", "budget"}
    for case in transitions(records):
        before, after = world.parse(case.state), world.parse(case.after)
        assert before is not None and after is not None and not before.fallen and not before.arrived
        assert before.holes == after.holes and before.goal == after.goal


def test_repeats_of_a_level_are_averaged_before_levels_are_drawn_again() -> None:
    row = lambda *success: {"success": list(success), "tokens": 10.0}  # noqa: E731
    reference = {"random": row(0, 0, 1), "beam, true lake": row(1, 1, 0)}
    table, notes = planning_table("goal", [{"beam, model": row(1, 0, 1)}, {"beam, model": row(1, 1, 1)}], reference)
    cells = {str(cells[0].value): cells[1] for cells in table.rows}
    assert cells["beam, model"].value == pytest.approx((1 + 0.5 + 1) / 3) and cells["beam, model"].n == 3
    assert "75.0%" in notes[0]  # of the two levels that the truth solves: (1 + 0.5) / 2


def test_the_steps_that_a_variant_needs_are_those_of_the_first_measurement_that_is_as_good() -> None:
    def curve(*points: tuple[int, float]) -> dict[str, object]:
        return {"rounds": [{"true_steps": steps, "true_success": success} for steps, success in points], "stopped": ""}

    table, notes = steps_table(
        {
            "real-only": [curve((100, 0.2), (1000, 0.6))],
            "mixed": [curve((100, 0.2), (300, 0.65), (400, 0.7))],
            "dream-only": [curve((100, 0.2), (100, 0.3))],
        }
    )
    assert table is not None
    found = {str(row[0].value): row[3].value for row in table.rows}
    assert found == {"real-only": 1000, "mixed": 300, "dream-only": None}
    assert "mixed reaches real-only's final success in 1 of 1 repeats, with 30%" in notes[0]


def test_settings_that_make_no_sense_are_one_line() -> None:
    with pytest.raises(OneiroError, match="is about lakes"):
        load("plan/frozen-lake", ["world=sokoban"])
    with pytest.raises(OneiroError, match="from scratch"):
        load("dyna/frozen-lake", ["model=smollm2-135m"])


def test_a_difference_on_one_level_has_no_interval() -> None:
    level = {"a": {"success": [0.75]}, "b": {"success": [0.5]}}
    assert difference("a", "b", [level]) == ["a less b: +25.0 points of success."]
    two = {"a": {"success": [1.0, 0.5]}, "b": {"success": [0.5, 0.0]}}
    assert difference("a", "b", [two]) == ["a less b: +50.0 points of success (+50.0 to +50.0)."]
