"""The tables of an evaluation, for the console and the report: accuracy, games, errors."""

from __future__ import annotations

from typing import Any

from oneiro.predictors.textgame_score import Error
from oneiro.report.table import Cell, Table

PARTS = ("unchanged", "changed", "overall")


def tables(compared: dict[str, Any]) -> list[Table]:
    """Three tables of what `textgame_eval.compare` found."""
    return [_accuracy(compared), _games(compared["rows"]), _errors(compared["rows"])]


def _cell(found: dict[str, Any]) -> Cell:
    """An accuracy in percent as a measured fraction."""
    value, low, high = (found.get(key) for key in ("accuracy", "low", "high"))
    parts = [number / 100 if number is not None else None for number in (value, low, high)]
    return Cell(parts[0], parts[1], parts[2], found.get("cases"))


def _accuracy(compared: dict[str, Any]) -> Table:
    subsets = {"": "all", "clean ": "clean", "held-out ": "held_out"}
    columns = [f"{prefix}{part}" for prefix in subsets for part in PARTS]
    table = Table(
        "Text games: exact next states",
        ["answers", *columns],
        dict.fromkeys(columns, "%"),
        note="clean: rows whose question is not in train. Published rows are scored by the published scorer.",
    )
    for name, found in compared["rows"].items():
        table.add(name, *(_cell(found[subset][part]) for subset in subsets.values() for part in PARTS))
    for row in compared["published"]:
        table.add(row["name"], *(row[part] / 100 for part in PARTS), *[None] * (len(columns) - len(PARTS)))
    return table


def _games(rows: dict[str, Any]) -> Table:
    """The last set of answers, game by game; the rows before it are the baselines."""
    name, found = list(rows.items())[-1]
    table = Table(f"Game by game: {name}", ["game", *PARTS], dict.fromkeys(PARTS, "%"))
    for game, split in found["games"].items():
        table.add(game, *(_cell(split[part]) for part in PARTS))
    table.add("mean of games", *(_cell(found["macro"][part]) for part in PARTS))
    return table


def _errors(rows: dict[str, Any]) -> Table:
    kinds = [str(kind) for kind in Error]
    table = Table(
        "Wrong answers by what is wrong", ["answers", "wrong", *kinds, "missing"], note="One may show several."
    )
    for name, found in rows.items():
        errors = found["errors"]
        table.add(name, errors["wrong"], *(errors["with"][kind] for kind in kinds), errors["missing answers"])
    return table
