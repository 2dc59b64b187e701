"""Runs of planning leave behind what their claims need: rows, controls, ceilings and traces."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from oneiro import systems
from oneiro.agents.evaluate import evaluate_agent
from oneiro.agents.learners.lake import random_play, transitions
from oneiro.agents.planning.base import PlannerSettings
from oneiro.recipe import load
from oneiro.report import page
from oneiro.runtime.errors import OneiroError
from oneiro.systems.plan.lake import LakePlanning
from oneiro.systems.plan.pipeline import Planning, compare, difference, planning_table, steps_table, verdict
from oneiro.worlds.grid.frozen_lake.world import FrozenLake, FrozenLakeConfig

Finished = Callable[[str, str], Path]


def names(run: Path, table: int = 0) -> list[str]:
    return [str(row[0].value) for row in page.tables(run)[table].rows]


def test_a_planning_run_has_every_row_for_both_goals_and_traces(finished: Finished) -> None:
    run = finished("plan/frozen-lake", "smoke")
    wanted = {"random", "policy, vote", "beam, shuffled model", "beam, lookup", "mpc, model", "beam, model"}
    wanted |= {"policy, vote, veto by the model", "policy, vote, veto at random"}
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


def test_a_physics_run_has_every_row_for_both_goals(finished: Finished) -> None:
    run = finished("plan/physics", "smoke")
    rows = {"random", "policy", "policy, vote", "best possible"}
    controls = ("no change", "lookup", "copy from the prompt", "shuffled model", "another context")
    rows |= {f"beam, {name}" for name in (*controls, "model", "true displacements", "true rules")}
    assert set(names(run)) == rows
    assert set(names(run, 1)) == rows | {"policy, vote, told"}
    summary = json.loads((run / "summary.json").read_text())
    assert sum("less policy, vote, told:" in note for note in summary["notes"]) == 1  # where the policy can be told
    for table in page.tables(run)[:2]:
        measured = {str(row[0].value): row[1].value for row in table.rows}
        assert measured["beam, true rules"] == measured["best possible"] == 1.0


def test_planning_from_a_predictor_needs_the_prompts_that_it_was_trained_with(
    finished: Finished, tmp_path: Path
) -> None:
    weights = finished("plan/physics", "smoke") / "checkpoints" / "sft"
    settings = ["preset=smoke", f"model={weights}", "sft_data.rows=0", "task.repeat_word=false"]
    with pytest.raises(OneiroError, match=r'task.view="sight" task.explain=false task.repeat_word=true'):
        systems.run("plan/physics", tmp_path / "run", settings)


def test_a_web_run_has_every_row_the_control_of_the_same_data_and_traces(finished: Finished) -> None:
    run = finished("plan/web", "smoke")
    rows = {"random", "policy", "policy, vote", "policy, and its successes", "best possible"}
    searched = {f"beam, {name}" for name in ("model", "no change", "lookup", "shuffled model", "true web")}
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


def test_recipes_of_the_web_refuse_tasks_without_a_page_to_reach() -> None:
    with pytest.raises(OneiroError, match="map/phone does not end on a page"):
        load("plan/web", ["templates=[map/phone]"])
    with pytest.raises(OneiroError, match="named in templates"):
        load("dyna/web", ["world.sites=[map]"])


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


def test_a_row_is_success_by_level_and_tokens_for_a_decision() -> None:
    turns = [[{}, {}], [{}], [{}, {}, {}]]
    episodes: Any = [
        SimpleNamespace(success=number != 1, info={"turns": own}, sampled_tokens=10 * number)
        for number, own in enumerate(turns)
    ]
    own = object.__new__(LakePlanning)
    assert own.row(SimpleNamespace(), episodes) == {"success": [1.0, 0.0, 1.0], "tokens": 5.0}
    spent = SimpleNamespace(spent=SimpleNamespace(tokens=12))
    assert own.row(spent, episodes)["tokens"] == 2.0 and own.row(spent, [])["tokens"] == 12  # type: ignore[arg-type]
    assert [own.votes(budget, 4.0, 16) for budget in (1.0, 6.0, 14.0, 400.0)] == [1, 2, 4, 16]
    assert own.votes(3.0, 0.5, 16) == 3


def test_rows_stand_in_their_order_with_each_repeats_success_and_mean_tokens() -> None:
    row = lambda tokens, *success: {"success": list(success), "tokens": tokens}  # noqa: E731
    repeats = [
        {"own row": row(1.0, 0, 0), "beam, model": row(10.0, 1, 0)},
        {"own row": row(1.0, 0, 1), "beam, model": row(15.0, 1, 1)},
    ]
    reference = {"beam, true lake": row(7.4, 1, 0), "random": row(0.0, 0, 1)}
    table, notes = planning_table("goal", repeats, reference)
    assert "success on 2 distinct unseen levels" in table.title
    shown = [[cell.value for cell in line] for line in table.rows]
    assert shown == [
        ["random", 0.5, None, None],
        ["beam, model", 0.75, "50.0 100.0", 12],
        ["beam, true lake", 0.5, None, 7],
        ["own row", 0.25, "0.0 50.0", 1],
    ]
    assert "solves 100.0%" in notes[0].replace(" (20.7% to 100.0%)", "")  # the one level that the truth solves
    assert verdict("g", {"beam, model": repeats}) == [] == verdict("g", {"beam, true lake": [row(0, 1)]})  # type: ignore[arg-type]
    assert verdict("g", {"beam, model": [row(0, 1)], "beam, true web": [row(0, 0)]}) == []
    assert difference("own row", "nothing", repeats) == []
    assert difference("beam, model", "own row", repeats)[0].startswith("beam, model less own row: +50.0 points")


def test_levels_without_steps_that_change_something_are_left_out() -> None:
    none = float("nan")
    repeats = [
        {"model": {"all": [1.0, 0.5], "changed": [0.5, none]}},
        {"model": {"all": [0.0, 0.5], "changed": [1.0, none]}},
    ]
    known = [
        {**one, "no change": {"all": [0.0, 0.0], "changed": [0.0, 0.0]}, "lookup": one["model"]} for one in repeats
    ]
    table = steps_table(known, "unseen steps")
    cells = {str(row[0].value): [(cell.value, cell.n) for cell in row[1:]] for row in table.rows}
    assert cells == {"no change": [(0.0, 2), (0.0, 2)], "lookup": [(0.5, 2), (0.75, 1)], "model": [(0.5, 2), (0.75, 1)]}


def test_tables_of_all_goals_and_the_differences_that_a_world_asks_for() -> None:
    row = lambda *success: {"success": list(success), "tokens": 1.0}  # noqa: E731

    class Beside(Planning):
        beside = ("policy",)
        steps_title = "steps"

    rows = {"goal": {"beam, model": row(1, 1), "policy": row(0, 1)}}
    reference = {"goal": {"beam, true lake": row(1, 1)}}
    found = compare(Beside, [{"rows": rows}], reference)
    assert len(found["tables"]) == 1 and found["notes"][1].startswith("beam, model less policy: +50.0 points")
    step = {name: {"all": [1.0, 0.0], "changed": [1.0, 1.0]} for name in ("no change", "lookup", "model")}
    assert len(compare(Beside, [{"rows": rows, "steps": step}], reference)["tables"]) == 2
