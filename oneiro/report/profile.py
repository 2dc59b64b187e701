"""Where the steps of a run spent their time, from `timings.jsonl`: the table of `oneiro run ... profile=true`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from oneiro.report.table import Table
from oneiro.rundir.records import read_log
from oneiro.rundir.run import TIMINGS, Run
from oneiro.runtime.files import read_json

TITLE = "Where the time went"
PARTS = {
    "sampling": "the model's own tokens",
    "waiting": "for a server's answers, or for play that was begun ahead",
    "worlds": "stepping worlds, putting states into words",
    "scoring": "verifying answers",
    "measuring": "further metrics of a step",
    "learning": "advantages and updates",
    "checkpointing": "weights, metrics and episodes written",
}
"""The names that `clock.spent` takes, and what they mean."""


def table(lines: Iterable[Mapping[str, Any]]) -> Table:
    """Seconds a step and share of all seconds, part by part, for every stage that was timed."""
    stages: dict[str, list[Mapping[str, Any]]] = {}
    for line in lines:
        stages.setdefault(line["stage"], []).append(line)
    summary = Table(TITLE, ["stage", "part", "seconds a step", "share", "what"], {"share": "%"})
    for stage, timed in stages.items():
        steps = len({line["step"] for line in timed})  # a checkpoint is timed by a line of its own
        sums = {part: sum(line.get(part) or 0.0 for line in timed) for part in PARTS}
        total = sum(sums.values())
        for part, seconds in sums.items():
            if seconds:
                summary.add(stage, part, seconds / steps, seconds / total, PARTS[part])
        summary.add(stage, "all", total / steps, 1.0 if total else None, f"{steps} steps")
    return summary


def add(run: Run) -> None:
    """Put the table among those that the run ends with; anew where it stands there already."""
    path = run.path / "summary.json"
    summary = read_json(path) if path.exists() else {}
    others = [data for data in summary.get("tables", []) if data.get("title") != TITLE]
    run.summary({**summary, "tables": [*others, table(read_log(run.path / TIMINGS)).data()]})
