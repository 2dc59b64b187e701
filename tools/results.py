"""Write every table of results in README and docs from `results/*.json`: `make results`.

`python -m tools.results --check` changes nothing and fails where a page and a file differ; `make lint` runs it.
`python -m tools.results --runs demo RUN...` first takes the numbers of `results/demo.json` from finished runs, one per
seed: rows and columns that the file names are looked for in the runs' first table.

A page marks where a table goes, and never repeats its numbers:

    <!-- results: demo -->
    ... written by this script ...
    <!-- end -->

`demo` is `results/demo.json`, an `Experiment`. `claims` is the table of the README: the `claim` of every experiment.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from oneiro.report.stats import over_seeds
from oneiro.runtime.files import read_json, write_text

ROOT = Path(__file__).parents[1]
MOST_SEEDS_SHOWN = 4  # a row with more is shown as mean and interval; the file has them all
MARKER = re.compile(r"(<!-- results: ([\w-]+) -->\n)(.*?)(<!-- end -->)", re.DOTALL)
REFERENCE = re.compile(r"\{([^{}|]+)\|([^{}|]+)(?:\|(seeds|interval))?\}")
"""`{row|column}` in a claim: the number; `{row|column|seeds}` and `{row|column|interval}`: all of the cell."""


def digits(number: float, decimals: int, sign: str = "") -> str:
    """With thousands apart; a whole number of the file stays whole, and -0.0 is 0.0."""
    return f"{number:,}" if isinstance(number, int) else f"{round(number, decimals) + 0.0:{sign},.{decimals}f}"


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Cell(Strict):
    """One number with what is known of its noise: an interval over cases, or one number per seed."""

    value: float | None = None
    low: float | None = None
    high: float | None = None
    seeds: list[float] = Field(default_factory=list)

    @model_validator(mode="after")
    def _has_a_number(self) -> Cell:
        if (self.value is None) == (not self.seeds) or (self.low is None) != (self.high is None):
            raise ValueError("a cell has either a value or seeds, and both ends of an interval or none")
        return self

    @property
    def mean(self) -> float:
        return sum(self.seeds) / len(self.seeds) if self.value is None else self.value

    def text(self, decimals: int) -> str:
        """`87.5 (84.6 to 90.2)`: an interval; `90.5 (89.6, 89.7, 92.2)`: each seed."""
        number = digits(self.mean, decimals)
        if len(set(self.seeds)) > 1 and len(self.seeds) > MOST_SEEDS_SHOWN:
            whole = over_seeds(self.seeds)
            return Cell(value=self.mean, low=whole.low, high=whole.high).text(decimals)
        if len(set(self.seeds)) > 1:
            return f"{number} ({', '.join(digits(seed, decimals) for seed in self.seeds)})"
        if self.low is None or self.high is None:
            return number
        return f"{number} ({digits(self.low, decimals)} to {digits(self.high, decimals)})"


class Row(Strict):
    """A line of the table. A string cell is shown as it is; null is an empty one."""

    name: str
    role: str = ""
    """floor, control, ours, ceiling or published; empty where none fits"""
    cells: list[Cell | int | float | str | None]


class Claim(Strict):
    """A line of the README's table. Numbers are references: `TRL: {TRL 1.16|seconds} s`."""

    order: int
    what: str
    compared: str
    ours: str
    page: str
    checkpoint: str = ""
    """where the row's model lies in a run of the command; empty for a row without one"""


class Experiment(Strict):
    """One file of results. What is not known is null, and the page says so."""

    about: str
    """what was measured, with the number of cases and what an interval is over; one or two sentences"""
    command: str | None
    commit: str | None
    seeds: list[int] | None
    weights: str | None
    """where the weights came from: random, or the name and source of a checkpoint"""
    hardware: str | None
    first: str = "row"
    """heading of the first column"""
    columns: list[str]
    decimals: int | list[int] = 1
    """digits behind the point: for all columns, or one number per column"""
    rows: list[Row]
    differences: list[tuple[str, str, str]] = Field(default_factory=list)
    """(row, minus row, column): the paired difference over seeds, printed below the table"""
    claim: Claim | None = None

    @model_validator(mode="after")
    def _fits(self) -> Experiment:
        for row in self.rows:
            if len(row.cells) != len(self.columns):
                raise ValueError(f"row '{row.name}' has {len(row.cells)} cells for {len(self.columns)} columns")
        if isinstance(self.decimals, list) and len(self.decimals) != len(self.columns):
            raise ValueError("decimals has another length than columns")
        return self

    def digits(self, column: int) -> int:
        return self.decimals[column] if isinstance(self.decimals, list) else self.decimals

    def show(self, row: Row, column: int) -> str:
        cell = row.cells[column]
        if isinstance(cell, Cell):
            again = cell.seeds and cell in row.cells[:column]  # its seeds stand in the row already
            return digits(cell.mean, self.digits(column)) if again else cell.text(self.digits(column))
        return cell or "" if cell is None or isinstance(cell, str) else digits(cell, self.digits(column))

    def cell(self, name: str, column: str) -> Cell | int | float | str | None:
        place = self.columns.index(column)
        (cell,) = (row.cells[place] for row in self.rows if row.name == name)
        return cell

    def find(self, name: str, column: str) -> tuple[Cell, int]:
        """The number of a row and a column, and its decimals."""
        cell, place = self.cell(name, column), self.columns.index(column)
        if cell is None or isinstance(cell, str):
            raise ValueError(f"{name}, {column}: not a number")
        if isinstance(cell, int):
            return Cell(value=cell), 0
        return cell if isinstance(cell, Cell) else Cell(value=cell), self.digits(place)

    def table(self) -> list[str]:
        roles = any(row.role for row in self.rows)
        lines = [line([self.first, *(["role"] if roles else []), *self.columns])]
        lines.append("|---" * (1 + roles + len(self.columns)) + "|")
        for row in self.rows:
            name = f"**{row.name}**" if row.role == "ours" else row.name
            cells = [self.show(row, column) for column in range(len(self.columns))]
            lines.append(line([name, *([row.role] if roles else []), *cells]))
        return lines

    def caption(self) -> str:
        """What a reader needs to repeat it."""
        if all(row.role == "published" for row in self.rows):
            return self.about
        seeds = (
            "seeds not recorded"
            if self.seeds is None
            else f"seed{'s' * (len(self.seeds) > 1)} " + ", ".join(map(str, self.seeds))
        )
        facts = [
            f"commit {self.commit}" if self.commit else "commit not recorded",
            *([seeds] if self.seeds != [] else []),
            *([f"weights: {self.weights}"] if self.weights else []),
            self.hardware or "hardware not recorded",
        ]
        command = f"`{self.command}`. " if self.command else "The command was not recorded. "
        listed = "; ".join(facts)
        return f"{self.about} {command}{listed[0].upper()}{listed[1:]}."

    def compare(self, row: str, minus: str, column: str) -> str:
        """`minus policy +2.0 (-0.5 to +4.5)`."""
        (ours, decimals), (other, _) = self.find(row, column), self.find(minus, column)
        cell = over_seeds([a - b for a, b in zip(ours.seeds, other.seeds, strict=True)])
        if not isinstance(cell.value, float) or cell.low is None or cell.high is None:
            raise ValueError(f"{row} minus {minus}: one seed has no interval")
        mean, low, high = (digits(number, decimals, "+") for number in (cell.value, cell.low, cell.high))
        return f"minus {minus} {mean} ({low} to {high})"

    def list_differences(self) -> list[str]:
        """A line for each row and column that others are subtracted from."""
        lines: dict[tuple[str, str], list[str]] = {}
        for row, minus, column in self.differences:
            lines.setdefault((column, row), []).append(self.compare(row, minus, column))
        listed = [f"- {column}: {row} {'; '.join(texts)}" for (column, row), texts in lines.items()]
        counts = {len(self.find(row, column)[0].seeds) for column, row in lines}
        seeds = " or ".join(map(str, sorted(counts)))
        return [f"Differences, paired, with 95 % intervals over {seeds} seeds:", "", *listed, ""]

    def page(self) -> str:
        """Caption, table, differences."""
        lines = ["", self.caption(), "", *self.table(), ""]
        if self.differences:
            lines += self.list_differences()
        return "\n".join(lines) + "\n"

    def fill(self, text: str) -> str:
        """A claim's sentence with its numbers."""

        def number(reference: re.Match[str]) -> str:
            written = self.cell(reference[1], reference[2])
            if isinstance(written, str):
                return written  # such as memory in GB, in a column of seconds with other decimals
            cell, decimals = self.find(reference[1], reference[2])
            if reference[3] == "interval" and cell.seeds:
                whole = over_seeds(cell.seeds)
                return Cell(value=whole.value, low=whole.low, high=whole.high).text(decimals)
            return cell.text(decimals) if reference[3] else digits(cell.mean, decimals)

        return REFERENCE.sub(number, text)


def line(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def read(folder: Path) -> dict[str, Experiment]:
    experiments = {}
    for file in sorted(folder.glob("*.json")):
        try:
            experiments[file.stem] = Experiment.model_validate_json(file.read_text(encoding="utf-8"))
        except ValidationError as error:
            raise SystemExit(f"{file}: {error}") from None
    return experiments


def claims(experiments: dict[str, Experiment]) -> str:
    """The README's table: every claim, with its numbers from its own file."""
    made = [(experiment.claim, experiment) for experiment in experiments.values() if experiment.claim]
    lines = ["", line(["what", "compared with", "Oneiro"]), "|---" * 3 + "|"]
    for claim, experiment in sorted(made, key=lambda pair: pair[0].order):
        what = f"[{claim.what}]({claim.page})"
        cells = [what, experiment.fill(claim.compared), experiment.fill(claim.ours)]
        lines.append(line(cells).replace(" %", "\N{NO-BREAK SPACE}%"))  # on a phone columns are a few words wide
    return "\n".join([*lines, "", ""])


def rewrite(text: str, experiments: dict[str, Experiment]) -> str:
    """A page with all of its tables as the files have them."""

    def table(marked: re.Match[str]) -> str:
        name = marked[2]
        if name != "claims" and name not in experiments:
            raise SystemExit(f"no results/{name}.json for <!-- results: {name} -->")
        return marked[1] + (claims(experiments) if name == "claims" else experiments[name].page()) + marked[4]

    return MARKER.sub(table, text)


def with_runs(experiment: Experiment, runs: list[Path]) -> Experiment:
    """The experiment with the numbers, seeds and commit of these runs; cells that no run has stay."""
    tables = [read_json(run / "summary.json")["tables"][0] for run in runs]
    infos = [read_json(run / "run.json") for run in runs]
    key = tables[0]["columns"][0]
    rows_of = [{row[key]: row for row in table["rows"]} for table in tables]

    def cell(name: str, column: str, old: Any) -> Any:
        # A run puts the model's name before the variant's: `tiny spa`.
        none: dict[str, Any] = {}
        rows = [next((row for agent, row in table.items() if agent.endswith(name)), none) for table in rows_of]
        cells: list[Any] = [row.get(column.removesuffix(", %")) for row in rows]
        if not all(isinstance(one, dict) and one.get("value") is not None for one in cells):
            return old
        scale = 100 if tables[0]["units"].get(column.removesuffix(", %")) == "%" else 1
        if len(runs) > 1:
            return Cell(seeds=[round(scale * one["value"], 3) for one in cells])
        return Cell(**{name: round(scale * cells[0][name], 3) for name in ("value", "low", "high")})

    rows = [
        row.model_copy(
            update={"cells": [cell(row.name, *pair) for pair in zip(experiment.columns, row.cells, strict=True)]}
        )
        for row in experiment.rows
    ]
    commits = {(info.get("commit") or "")[:7] for info in infos}
    commit = commits.pop() or None if len(commits) == 1 else None
    return experiment.model_copy(update={"rows": rows, "seeds": [info["seed"] for info in infos], "commit": commit})


def dump(experiment: Experiment) -> str:
    """JSON with one line per row, so that a changed number is a changed line."""
    data = experiment.model_dump(exclude_defaults=True) | {
        name: getattr(experiment, name) for name in ("command", "commit", "seeds", "weights", "hardware")
    }
    lines = []
    for name in (name for name in type(experiment).model_fields if name in data):
        if name == "rows":
            rows = ",\n    ".join(json.dumps(row, ensure_ascii=False) for row in data["rows"])
            lines.append(f'  "rows": [\n    {rows}\n  ]')
        else:
            lines.append(f"  {json.dumps(name)}: {json.dumps(data[name], ensure_ascii=False)}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def pages(root: Path) -> list[Path]:
    return [root / "README.md", root / "web" / "README.md", *sorted((root / "docs").rglob("*.md"))]


def main(given: list[str] | None = None, root: Path = ROOT) -> int:
    arguments = argparse.ArgumentParser(description="Write the tables of README and docs from results/*.json.")
    arguments.add_argument("--check", action="store_true", help="change nothing; fail where a page differs")
    arguments.add_argument("--runs", nargs="+", metavar=("NAME", "RUN"), help="take results/NAME.json from runs")
    chosen = arguments.parse_args(given)
    check = chosen.check
    if chosen.runs:
        file = root / "results" / f"{chosen.runs[0]}.json"
        old = Experiment.model_validate_json(file.read_text(encoding="utf-8"))
        write_text(file, dump(with_runs(old, [Path(run) for run in chosen.runs[1:]])))
    experiments, stale = read(root / "results"), []
    shown: set[str] = set()
    for page in pages(root):
        text = page.read_text(encoding="utf-8")
        shown |= {name for _, name, _, _ in MARKER.findall(text)}
        if (new := rewrite(text, experiments)) != text:
            stale.append(page.relative_to(root))
            if not check:
                write_text(page, new)
    unused = set(experiments) - shown
    if unused:
        print(f"no page shows results/{', '.join(sorted(unused))}.json", file=sys.stderr)
    if check and stale:
        print(f"{', '.join(map(str, stale))}: not what results/ says; run `make results`", file=sys.stderr)
    return int(bool(unused or (check and stale)))


if __name__ == "__main__":
    sys.exit(main())
