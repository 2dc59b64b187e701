"""The report: success by phase and split, paired differences, sites, outcome models, replay, where tasks came from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from oneiro.learning import stages
from oneiro.learning.stages import Curve
from oneiro.report import stats
from oneiro.report.table import Cell, Table
from oneiro.rundir.run import Run
from oneiro.systems.webrl.phases import Phases
from oneiro.systems.webrl.recipe import WebrlRecipe

PERCENT = "%"
CONTROL_EVALUATION = "evaluate-sft-continued"


def name_of(phases: Phases) -> str:
    """A variant's name in tables: the main run is called by its objective."""
    if phases.variant:
        return phases.variant
    return "webrl" if phases.algorithm.name == "paper" else phases.algorithm.name


def compare(recipe: WebrlRecipe, run: Run, variants: Sequence[Phases]) -> dict[str, Any]:
    """All tables of a run."""
    sft = run.result("evaluate-sft")
    rows: list[tuple[str, int, dict[str, Any]]] = [("SFT", 0, sft)]
    for phases in variants:
        rows += [
            (name_of(phases), k, run.result(phases.stage(k, "evaluate")))
            for k in range(1, recipe.phases + 1)
            if run.done(phases.stage(k, "evaluate"))
        ]
    if recipe.sft_continued:
        rows.append((stages.CONTROL, recipe.phases, run.result(CONTROL_EVALUATION)))
    last = {name: (k, result) for name, k, result in rows}
    tables = [
        success_table(recipe, rows),
        paired_table(recipe, last),
        *(site_table(split, last) for split in recipe.splits),
        *phase_tables(recipe, run, variants[0]),
        outcome_table(recipe, run, variants[0]),
    ]
    return {"tables": [table.data() for table in tables if table.rows]}


def success_table(recipe: WebrlRecipe, rows: Sequence[tuple[str, int, dict[str, Any]]]) -> Table:
    table = Table(
        "Success on test tasks by phase: test-seen has other content, test-unseen other templates",
        ["agent", "phase", *recipe.splits],
        units=dict.fromkeys(recipe.splits, PERCENT),
        note="95 % intervals: bootstrap over tasks, Wilson's where all succeed or fail. One greedy attempt at each; "
        "the oracle scores 100 %, agents that do nothing 0 %",
    )
    for name, k, result in rows:
        table.add(name, str(k), *(stats.bootstrap(result[split]["success"]) for split in recipe.splits))
    return table


def paired_table(recipe: WebrlRecipe, last: dict[str, tuple[int, dict[str, Any]]]) -> Table:
    """The main run's last phase minus each other's, task by task."""
    names = list(last)
    table = Table(
        "Paired differences on the same test tasks, last phase of each",
        ["difference", *recipe.splits],
        units=dict.fromkeys(recipe.splits, PERCENT),
        note="95 % intervals: bootstrap over tasks, none where no task differs. An interval without 0 shows a "
        "difference on such tasks; how much another training seed changes is not in it",
    )
    if len(names) < 2:
        return table
    main = names[1]
    mine = last[main][1]
    for other in names:
        if other != main:
            theirs = last[other][1]
            cells = [stats.paired(mine[split]["success"], theirs[split]["success"]) for split in recipe.splits]
            table.add(f"{main} - {other}", *cells)
    return table


def site_table(split: str, last: dict[str, tuple[int, dict[str, Any]]]) -> Table:
    sites = sorted({site for _, result in last.values() for site in result[split]["sites"]})
    table = Table(
        f"Success on {split} by site, last phase of each",
        ["agent", *sites, *ENDS],
        units=dict.fromkeys(sites, PERCENT),
        note="columns after the sites count how attempts ended",
    )
    for name, (_, result) in last.items():
        here = result[split]
        cells = [
            stats.bootstrap([s for s, place in zip(here["success"], here["sites"], strict=True) if place == site])
            for site in sites
        ]
        table.add(name, *cells, *(Cell(here["ends"].get(end, 0)) for end in ENDS))
    return table


ENDS = ("done", "wrong", "stuck", "unparsable", "out of actions")


def phase_tables(recipe: WebrlRecipe, run: Run, phases: Phases) -> list[Table]:
    """Where the tasks came from, what was replayed, what critic and actor did."""
    growth = Table(
        f"Tasks of {name_of(phases)} by phase: candidates and what became of them",
        ["phase", "kept", "duplicate", "test overlap", "gate", "outside the band", "none drawn", "grown by", "done"],
        units={"done": PERCENT},
    )
    training = Table(
        f"Training of {name_of(phases)} by phase",
        ["phase", "new steps", "stored", "in band", "replayed", "critic loss", "critic AUC", "positive", "log-ratio"],
        units={"in band": PERCENT, "positive": PERCENT},
        note="log-ratio: mean over tokens of log pi / pi_ref after the phase",
    )
    for k in range(1, recipe.phases + 1):
        if not run.done(phases.stage(k, "actor")):
            continue
        result = {
            name: run.result(phases.stage(k, name)) if run.done(phases.stage(k, name)) else {}
            for name in ("tasks", "rollout", "replay", "critic", "actor")
        }
        if result["tasks"]:
            counts = result["tasks"]["counts"]
            origins = ", ".join(f"{name} {count}" for name, count in result["tasks"].get("origins", {}).items())
            growth.add(
                str(k),
                *(counts.get(name, 0) for name in growth.columns[1:-2]),
                origins or "the first phase's",
                Cell(result["rollout"].get("success")),
            )
        replayed, critic, actor = result["replay"], result["critic"], result["actor"]
        share = replayed["in_band"] / max(1, replayed["stored"]) if replayed else None
        training.add(
            str(k),
            result["rollout"].get("steps"),
            replayed.get("stored"),
            Cell(share),
            replayed.get("selected"),
            critic.get("loss"),
            critic.get("auc"),
            actor.get("positive"),
            actor.get("log_ratio"),
        )
    return [growth, training]


def outcome_table(recipe: WebrlRecipe, run: Run, phases: Phases) -> Table:
    table = Table(
        "Outcome models against the graders",
        ["outcome model", "where", "accuracy", "precision", "recall", "true", "false positives", "false negatives"],
        units=dict.fromkeys(("accuracy", "precision", "recall"), PERCENT),
        note=f"{recipe.outcome.name} labels; the others are only reported",
    )
    places = [("held-out trajectories", run.result("outcome")["measured"])]
    for k in range(1, recipe.phases + 1):
        if run.done(phases.stage(k, "labels")):
            places.append((f"phase {k}", run.result(phases.stage(k, "labels"))["outcome"]))
    for where, measured in places:
        for name, counts in measured.items():
            right = counts["true_positives"] + counts["true_negatives"]
            table.add(
                name,
                where,
                *(Cell(counts[key]) for key in ("accuracy", "precision", "recall")),
                right,
                counts["false_positives"],
                counts["false_negatives"],
            )
    return table


def summarise(recipe: WebrlRecipe, run: Run, variants: Sequence[Phases], compared: dict[str, Any]) -> None:
    """Tables, curves and notes."""
    last = recipe.phases
    names = {
        f"{name_of(phases)} phase {k}": phases.stage(k, "actor") for phases in variants for k in range(1, last + 1)
    }
    critics = {name.replace("actor", "critic"): stage.replace("-actor", "-critic") for name, stage in names.items()}
    curves = [
        Curve("Cross-entropy of SFT", "ce", {"SFT": "sft"}),
        Curve("Loss of the actor", "loss", names),
        Curve("Loss of the critic", "loss", critics),
    ]
    notes = []
    tests = run.result("tests")
    notes.append(
        f"{', '.join(f'{tests[split]} tasks of {split}' for split in recipe.splits)}, on content that is never "
        "trained on; no training task is one of them."
    )
    stages.summarise(run, compared, curves, notes)
