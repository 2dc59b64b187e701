"""A recipe with several seeds: one run a seed, and tables over the seeds.

    tables = run_seeds("spa/frozen-lake", 8, "runs/lake-seeds")

Each run is a folder of its own, `seed-0`, `seed-1`, ... The same call goes on where it was stopped: finished runs are
left as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from pathlib import Path

from oneiro import systems
from oneiro.recipe import load
from oneiro.report import page
from oneiro.report.stats import over_seeds
from oneiro.report.table import Cell, Table
from oneiro.rundir.records import first_difference, read_info
from oneiro.rundir.run import holds_run
from oneiro.runtime import distributed
from oneiro.runtime.errors import OneiroError
from oneiro.runtime.files import write_json


def run_seeds(recipe: str, seeds: int, out: str | Path | None = None, overrides: Sequence[str] = ()) -> list[Table]:
    """Run `recipe` with `seeds` seeds, the recipe's own and those after it, below `out`; gives the tables over them.

    They are also written as `seeds.json`, and `comparison.html` compares the runs.
    """
    if holds_run(recipe):
        raise OneiroError(f"{recipe} is a run, which has one seed; give --seeds a recipe")
    if distributed.is_launched():
        raise OneiroError("--seeds runs one process after the other; under torchrun start one command for each seed=N")
    folder = Path(out) if out is not None else Path("runs") / f"{systems.stem_of(recipe)}-seeds"
    first, paths = load(recipe, overrides).seed, []
    for seed in range(first, first + seeds):
        path, own = folder / f"seed-{seed}", [*overrides, f"seed={seed}"]
        finished = holds_run(path) and read_info(path).get("status") == "done"
        if not finished or first_difference(path, load(recipe, own)):
            systems.run(recipe, path, own)
        paths.append(path)
    tables = pool([page.tables(path) for path in paths])
    write_json(folder / "seeds.json", {"seeds": seeds, "tables": [table.data() for table in tables]})
    page.write(paths, folder / "comparison.html")
    return tables


def pool(by_seed: Sequence[Sequence[Table]]) -> list[Table]:
    """The tables that all runs have, each number as its mean over seeds; then differences between rows of the first."""
    pooled = [
        _pool(same)
        for same in zip(*by_seed, strict=False)
        if len({tuple(table.columns) for table in same}) == 1 and _common_rows(same)
    ]
    return [*pooled, *(_differences(by_seed) if pooled else [])]


Rows = dict[tuple[str, ...], list[list[Cell]]]
"""What names a row -> its cells with every seed."""


def _common_rows(same: Sequence[Table]) -> Rows:
    """The rows that every seed has, by the texts that name them."""
    named = [{_name(table, row): row for row in table.rows} for table in same]
    return {name: [rows[name] for rows in named] for name in named[0] if all(name in rows for rows in named)}


def _name(table: Table, row: Sequence[Cell]) -> tuple[str, ...]:
    return tuple(str(cell.value) for cell in row[: table.names()])


def _pool(same: Sequence[Table]) -> Table:
    table = same[0]
    pooled = Table(f"{table.title}: {len(same)} seeds", table.columns, table.units, "mean over seeds, 95 % (Student)")
    for cells in _common_rows(same).values():
        pooled.add(*(_mean([row[place] for row in cells]) for place in range(len(table.columns))))
    return pooled


def _mean(cells: Sequence[Cell]) -> Cell:
    numbers = [cell.value for cell in cells if isinstance(cell.value, int | float)]
    if len(numbers) == len(cells):
        return over_seeds(numbers)
    return Cell(cells[0].value) if not numbers else Cell(None)  # a text that names, or nothing in some seed


def _differences(by_seed: Sequence[Sequence[Table]]) -> list[Table]:
    """Row minus row of the first table, seed by seed. Rows that no seed changes (a ceiling) are compared by none."""
    same = [tables[0] for tables in by_seed]
    table, names = same[0], same[0].names()
    columns = list(table.columns[names:])
    learned = {name: cells for name, cells in _common_rows(same).items() if any(row != cells[0] for row in cells)}
    differences = Table(
        f"{table.title}: differences within a seed, {len(same)} seeds",
        ["row", "minus", *columns],
        table.units,
        "mean over seeds of the difference, 95 % (Student); an interval without 0 is a difference",
    )
    for (one, first), (two, second) in combinations(learned.items(), 2):
        cells = [
            _mean([_minus(a[place], b[place]) for a, b in zip(first, second, strict=True)])
            for place in range(names, len(table.columns))
        ]
        differences.add(" ".join(one), " ".join(two), *cells)
    return [differences] if differences.rows else []


def _minus(one: Cell, two: Cell) -> Cell:
    if isinstance(one.value, int | float) and isinstance(two.value, int | float):
        return Cell(one.value - two.value)
    return Cell(None)
