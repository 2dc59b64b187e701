"""The tables of planning runs. Levels are what is independent: repeats of one level are averaged first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from oneiro.report import stats, traces
from oneiro.report.table import Cell, Table
from oneiro.rundir.run import Run
from oneiro.runtime.files import write_json

ORDER = (
    "random",
    "policy",
    "policy, vote",
    "policy, and its successes",
    "beam, shuffled model",
    "beam, lookup",
    "mpc, model",
    "beam, model",
    "mpc, true lake",
    "beam, true lake",
    "beam, true game",
    "beam, true web",
    "best possible",
)
TITLES = {"goal": "The lake's own goal", "target": "Another goal, no new training: a cell that nothing marks"}


def write_traces(run: Run, found: Sequence[Mapping[str, Any]]) -> None:
    """Decisions for the report's viewer."""
    write_json(run.path / traces.FILE, {"traces": list(found)})


def planning_table(
    goal: str, repeats: Sequence[Mapping[str, Any]], reference: Mapping[str, Any]
) -> tuple[Table, list[str]]:
    """Success of every row, each repeat's own besides; and what search in the model reaches of search in the truth."""
    rows: dict[str, list[Mapping[str, Any]]] = {name: [row] for name, row in reference.items()}
    for one in repeats:
        for name, row in one.items():
            rows.setdefault(name, []).append(row)
    levels = len(next(iter(reference.values()))["success"])
    table = Table(
        f"{TITLES.get(goal, goal)}: success on {levels} distinct unseen levels",
        ["row", "success", "repeats", "tokens a decision"],
        units={"success": "%"},
        note="95 % intervals, bootstrap over levels; the repeats of a level are averaged first. `repeats`: success of "
        "each trained model. A cached prediction costs no tokens.",
    )
    cells: dict[str, Cell] = {}
    for name in [*(name for name in ORDER if name in rows), *(name for name in rows if name not in ORDER)]:
        successes = np.array([row["success"] for row in rows[name]])
        cells[name] = stats.bootstrap(successes.mean(axis=0))
        each = " ".join(f"{100 * value:.1f}" for value in successes.mean(axis=1)) if len(rows[name]) > 1 else None
        tokens = float(np.mean([row["tokens"] for row in rows[name]]))
        table.add(name, cells[name], each, round(tokens) if tokens else None)
    return table, verdict(goal, rows)


def verdict(goal: str, rows: Mapping[str, Sequence[Mapping[str, Any]]]) -> list[str]:
    """How much of what search in the truth reaches search in the model reaches, over the same levels."""
    truth = next((name for name in rows if name.startswith("beam, true")), None)
    if truth is None or "beam, model" not in rows:
        return []
    model = np.array([row["success"] for row in rows["beam, model"]]).mean(axis=0)
    ceiling = np.array([row["success"] for row in rows[truth]]).mean(axis=0)
    if not ceiling.any():
        return []
    share = stats.bootstrap(model[ceiling > 0])
    return [
        f"{goal}: of the levels that beam search solves with the truth as its model, it solves "
        f"{share.words('{:.1%}')} with the learned model."
    ]


def difference(one: str, other: str, repeats: Sequence[Mapping[str, Any]]) -> list[str]:
    """How far two rows are apart on the same levels, in words."""
    if not all(one in row and other in row for row in repeats):
        return []
    apart = np.array([np.subtract(row[one]["success"], row[other]["success"]) for row in repeats]).mean(axis=0)
    found = stats.bootstrap(apart)
    value, *ends = [f"{100 * part:+.1f}" for part in (found.value, found.low, found.high) if isinstance(part, float)]
    return [f"{one} less {other}: {value} points of success{f' ({ends[0]} to {ends[1]})' if ends else ''}."]


def steps_table(repeats: Sequence[Mapping[str, Any]], what: str = "unseen steps of random play") -> Table:
    """Exact predictions of unseen steps; a level without such steps has None."""
    table = Table(
        f"Exact predictions of {what}",
        ["row", "all steps", "steps that change something"],
        units={"all steps": "%", "steps that change something": "%"},
        note="95 % intervals, bootstrap over levels; n counts levels.",
    )
    for name in ("no change", "lookup", "model"):
        found = [one[name] for one in repeats if name in one]
        parts = [np.array([one[part] for one in found], float) for part in ("all", "changed")]
        known = [part[:, ~np.isnan(part).all(axis=0)] for part in parts]
        table.add(name, *(stats.bootstrap(np.nanmean(part, axis=0)) for part in known))
    return table
