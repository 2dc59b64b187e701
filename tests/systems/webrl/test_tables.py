"""WebRL's tables on results made up by hand."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from oneiro.recipe import load
from oneiro.systems.webrl import tables
from oneiro.systems.webrl.phases import Phases
from oneiro.systems.webrl.recipe import WebrlRecipe

SITES = ["map", "map", "reddit", "reddit"]


def measured(*success: int, **ends: int) -> dict[str, Any]:
    """The same results on both splits, but for the first task."""
    split = {"success": list(success), "sites": SITES, "ends": ends}
    return {"test-seen": split, "test-unseen": {**split, "success": [1 - success[0], *success[1:]]}}


def outcome(right: int, wrong: int) -> dict[str, Any]:
    counts = {"true_positives": right, "true_negatives": 2 * right, "false_positives": wrong, "false_negatives": 7}
    return {"rules": {**counts, "accuracy": 0.5, "precision": 0.25, "recall": 0.125}}


RESULTS: dict[str, dict[str, Any]] = {
    "tests": {"test-seen": 4, "test-unseen": 5},
    "evaluate-sft": measured(0, 0, 1, 0, wrong=3, done=1),
    "outcome": {"measured": outcome(1, 2)},
    "phase-1-tasks": {"counts": {"kept": 6, "gate": 2}, "origins": {"new": 4, "values": 2}},
    "phase-1-rollout": {"steps": 11, "success": 0.25},
    "phase-1-labels": {"outcome": outcome(3, 4)},
    "phase-1-replay": {"stored": 8, "in_band": 6, "selected": 5},
    "phase-1-critic": {"loss": 0.75, "auc": 0.625},
    "phase-1-actor": {"positive": 0.5, "log_ratio": -0.125},
    "phase-1-evaluate": measured(0, 1, 1, 0, done=2),
    "phase-2-actor": {"positive": 0.75, "log_ratio": 0.5},
    "phase-2-evaluate": measured(1, 1, 1, 0, stuck=1, done=3),
    "no-curriculum-phase-2-evaluate": measured(1, 1, 1, 0, done=3),
    "filtered-bc-phase-2-evaluate": measured(0, 0, 1, 1, unparsable=2, done=2),
}
RUN: Any = SimpleNamespace(path=Path("run"), result=lambda name: RESULTS[name], done=lambda name: name in RESULTS)


@pytest.fixture(scope="module")
def recipe() -> WebrlRecipe:
    return load("webrl/sandbox", ["phases=2"], WebrlRecipe)


@pytest.fixture(scope="module")
def compared(recipe: WebrlRecipe) -> dict[str, list[dict[str, Any]]]:
    """The rows of a run's tables, by the first words of their titles."""
    variants = [Phases(recipe, RUN, name) for name in ("", "no-curriculum", "filtered-bc")]
    found = tables.compare(recipe, RUN, variants)["tables"]
    return {table["title"]: table["rows"] for table in found}


def rows_of(compared: dict[str, list[dict[str, Any]]], words: str) -> list[dict[str, Any]]:
    (rows,) = [rows for title, rows in compared.items() if title.startswith(words)]
    return rows


def test_success_has_a_row_for_every_phase_that_was_evaluated(compared: Any) -> None:
    rows = rows_of(compared, "Success on test tasks by phase")
    found = [(row["agent"], row["phase"], row["test-seen"]["value"], row["test-unseen"]["value"]) for row in rows]
    assert found == [
        ("SFT", "0", 0.25, 0.5),
        ("webrl", "1", 0.5, 0.75),
        ("webrl", "2", 0.75, 0.5),
        ("no-curriculum", "2", 0.75, 0.5),
        ("filtered-bc", "2", 0.5, 0.75),
    ]


def test_differences_are_the_main_runs_last_phase_less_the_others_task_by_task(compared: Any) -> None:
    rows = rows_of(compared, "Paired differences")
    assert [row["difference"] for row in rows] == ["webrl - SFT", "webrl - no-curriculum", "webrl - filtered-bc"]
    assert [row["test-seen"]["value"] for row in rows] == [0.5, 0.0, 0.25]
    assert [row["test-unseen"]["value"] for row in rows] == [0.0, 0.0, -0.25]
    # No task differs: no interval. +1 and -1 in two tasks of four: a mean of zero that has one.
    assert rows[1]["test-seen"] == {"value": 0.0, "low": None, "high": None, "n": 4}
    assert rows[0]["test-unseen"]["low"] < 0 < rows[0]["test-unseen"]["high"]


def test_a_run_without_variants_or_phases_has_no_differences(recipe: WebrlRecipe) -> None:
    assert tables.paired_table(recipe, {"SFT": (0, RESULTS["evaluate-sft"])}).rows == []


def test_sites_and_ends_are_those_of_each_ones_last_phase(compared: Any) -> None:
    rows = rows_of(compared, "Success on test-seen by site")
    assert [(row["agent"], row["map"]["value"], row["reddit"]["value"]) for row in rows] == [
        ("SFT", 0.0, 0.5),
        ("webrl", 1.0, 0.5),
        ("no-curriculum", 1.0, 0.5),
        ("filtered-bc", 0.0, 1.0),
    ]
    ends = ("done", "wrong", "stuck", "unparsable", "out of actions")
    assert [[row[end] for end in ends] for row in rows] == [
        [1, 3, 0, 0, 0], [3, 0, 1, 0, 0], [3, 0, 0, 0, 0], [2, 0, 0, 2, 0],
    ]  # fmt: skip


def test_phases_tell_where_tasks_came_from_and_what_was_learned(compared: Any) -> None:
    (growth,) = rows_of(compared, "Tasks of webrl by phase")
    assert growth == {
        "phase": "1", "kept": 6, "duplicate": 0, "test overlap": 0, "gate": 2, "outside the band": 0, "none drawn": 0,
        "grown by": "new 4, values 2", "done": 0.25,
    }  # fmt: skip
    first, second = rows_of(compared, "Training of webrl by phase")
    assert first == {
        "phase": "1", "new steps": 11, "stored": 8, "in band": 0.75, "replayed": 5, "critic loss": 0.75,
        "critic AUC": 0.625, "positive": 0.5, "log-ratio": -0.125,
    }  # fmt: skip
    assert second["phase"] == "2" and second["positive"] == 0.75 and second["in band"] is None is second["stored"]


def test_outcome_models_are_shown_where_they_were_measured(compared: Any) -> None:
    rows = rows_of(compared, "Outcome models against the graders")
    assert [(row["where"], row["true"], row["false positives"], row["false negatives"]) for row in rows] == [
        ("held-out trajectories", 3, 2, 7),
        ("phase 1", 9, 4, 7),
    ]
    assert [rows[0][key] for key in ("outcome model", "accuracy", "precision", "recall")] == ["rules", 0.5, 0.25, 0.125]


def test_a_main_run_is_called_by_its_objective() -> None:
    names = [("paper", "", "webrl"), ("official", "", "official"), ("paper", "no-curriculum", "no-curriculum")]
    for algorithm, variant, name in names:
        phases: Any = SimpleNamespace(variant=variant, algorithm=SimpleNamespace(name=algorithm))
        assert tables.name_of(phases) == name
