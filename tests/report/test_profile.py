"""The profile's table: worked by hand from a few lines of timings."""

from __future__ import annotations

from pathlib import Path

import pytest

from oneiro.recipe import Recipe
from oneiro.report import page
from oneiro.rundir.run import Run

LINES = [
    {"stage": "rl", "step": 1, "sampling": 3.0, "learning": 1.0},
    {"stage": "rl", "step": 2, "sampling": 3.0, "learning": 2.0, "checkpointing": 1.0},
]


def test_parts_are_told_in_seconds_a_step_and_as_a_share_of_all() -> None:
    rows = page.times_table(LINES).data()["rows"]
    assert [(row["part"], row["seconds a step"], row["share"]) for row in rows] == [
        ("sampling", 3.0, 0.6),
        ("learning", 1.5, pytest.approx(0.3)),
        ("checkpointing", 0.5, pytest.approx(0.1)),
        ("all", 5.0, 1.0),
    ]


def test_the_table_joins_those_of_the_run_once(tmp_path: Path) -> None:
    with Run.open(tmp_path / "run", Recipe(system="spa")) as run:
        run.summary({"tables": [], "notes": ["a note"]})
        for line in LINES:
            run.time("rl", int(line["step"]), {k: float(v) for k, v in line.items() if k not in ("stage", "step")})  # type: ignore[arg-type]
        page.add_times(run)
        page.add_times(run)
    (table,) = page.tables(tmp_path / "run")
    assert table.data() == page.times_table(LINES).data()
    assert page.find(tmp_path / "run").summary["notes"] == ["a note"]
