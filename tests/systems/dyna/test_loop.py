"""Dyna's rounds: when they stop, what they count, with measurements given by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from oneiro.systems.dyna.loop import VariantRun

from oneiro.rundir.run import Run
from oneiro.systems.dyna.recipe import DynaSettings, Variant
from tests.toy_system import ToyRecipe


class Given(VariantRun):
    """Its measurements are given."""

    def __init__(self, run: Run, settings: DynaSettings, variant: Variant, gaps: list[float]) -> None:
        super().__init__(run, settings, variant, 0)
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

    def steps_before(self) -> int:
        return 7


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
