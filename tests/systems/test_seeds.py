"""One command, several seeds: a run each, resumed, and tables whose unit is the seed."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

from oneiro import systems
from oneiro.cli import main
from oneiro.report.stats import T_975, over_seeds
from oneiro.report.table import Cell, Table
from oneiro.systems.seeds import pool


@pytest.fixture(autouse=True)
def with_toy_system(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(systems.SYSTEMS, "toy", "tests.toy_system:ToyRecipe")


def test_each_seed_is_a_run_and_the_same_command_goes_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    toy, out, data = tmp_path / "toy.yaml", tmp_path / "seeds", tmp_path / "tables.json"
    toy.write_text("system: toy\nseed: 3\n")
    words = ["run", str(toy), "learn.steps=5", "--seeds", "3", "--out", str(out)]
    assert main([*words, "--json", str(data)]) == 0
    assert sorted(path.name for path in out.iterdir()) == [
        "comparison.html",
        "seed-3",
        "seed-4",
        "seed-5",
        "seeds.json",
    ]
    weights = [
        json.loads((out / f"seed-{seed}" / "summary.json").read_text())["tables"][0]["rows"][0]["weight"]["value"]
        for seed in (3, 4, 5)
    ]
    assert len(set(weights)) == 3
    pooled = json.loads(data.read_text())["rows"][0]["weight"]
    assert pooled["value"] == pytest.approx(sum(weights) / 3) and pooled["n"] == 3
    # A seed that was lost is run again, the others are left as they are.
    before = (out / "seed-3" / "log.txt").read_bytes()
    (out / "seed-4" / "run.json").unlink()
    capsys.readouterr()
    assert main(words) == 0
    assert (out / "seed-3" / "log.txt").read_bytes() == before and "seed-4" in capsys.readouterr().out
    # Another recipe in the same place is a mistake.
    assert main([*words, "learn.lr=0.2"]) == 2 and "learn.lr was 0.1, now 0.2" in capsys.readouterr().err
    assert (
        main(["run", str(out / "seed-3"), "--seeds", "2"]) == 2 and "give --seeds a recipe" in capsys.readouterr().err
    )


def result(*rows: tuple[str, float, float | None]) -> list[Table]:
    table = Table("Lake, 4 levels", ["agent", "success", "pass@2"], {"success": "%"})
    for name, success, passed in rows:
        table.add(name, Cell(success, 0.0, 1.0, 4), passed)
    return [table]


def test_numbers_are_means_over_seeds_and_differences_are_taken_within_a_seed() -> None:
    seeds = [
        result(("ceiling", 1.0, 1.0), ("spa", 0.5, None), ("control", 0.4, 0.0)),
        result(("ceiling", 1.0, 1.0), ("spa", 0.7, 0.5), ("control", 0.5, 1.0)),
        result(("ceiling", 1.0, 1.0), ("spa", 0.6, 0.5), ("control", 0.3, 0.5)),
    ]
    means, differences = pool(seeds)
    assert means.title == "Lake, 4 levels: 3 seeds" and [row[0].value for row in means.rows] == [
        "ceiling",
        "spa",
        "control",
    ]
    # 0.5, 0.7, 0.6: standard deviation 0.1, Student's quantile for 2 degrees of freedom 4.303.
    half = 4.303 * 0.1 / math.sqrt(3)
    spa = means.rows[1][1]
    assert (spa.value, spa.low, spa.high, spa.n) == (
        pytest.approx(0.6),
        pytest.approx(0.6 - half),
        pytest.approx(0.6 + half),
        3,
    )
    assert means.rows[1][2].value is None  # not every seed has it
    # Seed by seed 0.1, 0.2, 0.3; the ceiling, which no seed changes, is compared with nothing.
    assert [[cell.value for cell in row[:2]] for row in differences.rows] == [["spa", "control"]]
    paired = differences.rows[0][2]
    assert (paired.value, paired.low) == (pytest.approx(0.2), pytest.approx(0.2 - half))


def test_rows_that_one_seed_lacks_are_left_out() -> None:
    (table,) = pool([result(("a", 0.1, 0.0), ("b", 0.2, 0.0)), result(("a", 0.1, 0.0))])
    assert [row[0].value for row in table.rows] == ["a"]


def test_intervals_over_seeds() -> None:
    assert over_seeds([]).value is None and over_seeds([0.5]) == Cell(0.5, n=1)
    eight = over_seeds([0, 0, 0, 0, 1, 1, 1, 1])
    assert eight.high == pytest.approx(0.5 + 2.365 * math.sqrt(2 / 7) / math.sqrt(8), abs=1e-6)
    # The quantile of 30 degrees of freedom is 2.042.
    many = over_seeds([-1.0, 1.0] * 15 + [0.0])
    assert many.high == pytest.approx(2.042 * math.sqrt(30 / 30) / math.sqrt(31), rel=2e-3)


def test_the_quantiles_are_students() -> None:
    """The density integrated up to each of them, by Simpson's rule over 2,000 steps, is 0.975."""
    for freedom, quantile in enumerate(T_975, start=1):
        x = np.linspace(0, quantile, 2001)
        scale = math.gamma((freedom + 1) / 2) / math.sqrt(freedom * math.pi) / math.gamma(freedom / 2)
        y = scale * (1 + x**2 / freedom) ** (-(freedom + 1) / 2)
        area = (y[0] + y[-1] + 4 * y[1:-1:2].sum() + 2 * y[2:-1:2].sum()) * (x[1] - x[0]) / 3
        assert 0.5 + area == pytest.approx(0.975, abs=5e-5)  # quantiles have three decimals
