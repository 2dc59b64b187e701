"""The tables of an evaluation, for the console and the report: accuracy, games, errors, depth, planning."""

from __future__ import annotations

from typing import Any

from oneiro.report.table import Cell, Table
from oneiro.tasks.textgame.score import Error
from oneiro.worlds.textgame.state import Kind

PARTS = ("unchanged", "changed", "overall")

ASKED: dict[Kind, str] = {
    "full": "exact next states",
    "action": "exact states after the command alone",
    "tick": "exact states after time alone",
    "score": "exact scores",
}
"""What is right or wrong in a table, by the kind of transition; changed and unchanged are about the same."""

SUBSETS = {
    "all": ("", ""),
    "clean": (", clean rows", "Clean: the same question is known not to be in train."),
    "held_out": (", held-out games", "Games that training never saw."),
}
"""Subsets of an evaluation with a table of their own: what its title adds, and its note."""


def tables(compared: dict[str, Any]) -> list[Table]:
    """Three tables of what `evaluate.compare` found."""
    return [_accuracy(compared), _games(compared["rows"]), _errors(compared["rows"])]


def subset_tables(compared: dict[str, Any]) -> list[Table]:
    """The first of them again for the clean rows and for held-out games, where there are such."""
    first = next(iter(compared["rows"].values()))
    everything = first["all"]["overall"]["cases"]
    return [
        _accuracy(compared, subset)
        for subset in ("clean", "held_out")
        if (cases := first[subset]["overall"]["cases"]) and (cases != everything or subset == "held_out")
    ]


def cell(entry: dict[str, Any]) -> Cell:
    """An accuracy in percent as a measured fraction."""
    value, low, high = (entry.get(key) for key in ("accuracy", "low", "high"))
    parts = [number / 100 if number is not None else None for number in (value, low, high)]
    return Cell(parts[0], parts[1], parts[2], entry.get("cases"))


def _accuracy(compared: dict[str, Any], subset: str = "all") -> Table:
    """Under the scorer that was asked for and, where every row has both, under the other one beside it."""
    title, note = SUBSETS[subset]
    rows = list(compared["rows"].values())
    scored = [[row, *([row["other"]] if all("other" in each for each in rows) else [])] for row in rows]
    scorers = [each["scorer"] for each in scored[0]]
    columns = [f"{part} ({scorer})" if len(scorers) > 1 else part for scorer in scorers for part in PARTS]
    table = Table(
        f"Text games: {ASKED[rows[0]['transition']]}{title}", ["answers", *columns], dict.fromkeys(columns, "%")
    )
    for name, scores in zip(compared["rows"], scored, strict=True):
        table.add(name, *(cell(each[subset][part]) for each in scores for part in PARTS))
    published = compared["published"] if subset == "all" else []
    official = scorers.index("official") if "official" in scorers else 0
    for row in published:
        figures: list[float | None] = [None] * len(columns)
        figures[official * len(PARTS) : (official + 1) * len(PARTS)] = [row[part] / 100 for part in PARTS]
        table.add(row["name"], *figures)
    notes = [note, over(rows[0], subset), unknown_note(rows[0])]
    if published:
        ours = "" if "official" in scorers else ", ours by the strict one"
        notes.append(f"Published rows are scored by the official scorer{ours}.")
    table.note = " ".join(filter(None, notes))
    return table


def over(row: dict[str, Any], subset: str = "all") -> str:
    """What the intervals of a subset are over."""
    count = row[subset]["overall"].get("clusters", 0)
    if subset == "held_out":
        return f"Intervals are over {count} games." if count > 1 else "There is one game, so there are no intervals."
    if count == 1:
        return "There is one start state, so there are no intervals."
    return f"Intervals are over {count:,} start states: all commands tried in one state are drawn together."


def unknown_note(row: dict[str, Any]) -> str:
    """How many rows nobody knows to be clean or not; they are not among the clean ones."""
    count = row.get("unknown", 0)
    return f"Of {count:,} rows it is not known whether train has the same question." if count else ""


def _games(rows: dict[str, Any]) -> Table:
    """The last set of answers, game by game; the rows before it are the baselines."""
    name, row = list(rows.items())[-1]
    note = "Intervals are over start states, of the mean over games; a game with one start state has none."
    table = Table(f"Game by game: {name}", ["game", *PARTS], dict.fromkeys(PARTS, "%"), note)
    for game, split in row["games"].items():
        table.add(game, *(cell(split[part]) for part in PARTS))
    table.add("mean of games", *(cell(row["macro"][part]) for part in PARTS))
    return table


def _errors(rows: dict[str, Any]) -> Table:
    """By kind where the scorer tells kinds apart."""
    strict = all("with" in row["errors"] for row in rows.values())
    kinds = [str(kind) for kind in Error] if strict else []
    title, note = ("Wrong answers by what is wrong", "One may show several.") if strict else ("Wrong answers", "")
    table = Table(title, ["answers", "wrong", *kinds, "missing"], note=note)
    for name, row in rows.items():
        errors = row["errors"]
        table.add(name, errors["wrong"], *(errors["with"][kind] for kind in kinds), errors["missing answers"])
    return table


def sampled_table(rows: dict[str, dict[str, Any]], over: str = "rows") -> Table:
    """Exact answers among those sampled to each test row, model by model; `over` says what intervals are over."""
    samples = {str(row["samples"]) for row in rows.values()}
    table = Table(
        f"Exact answers to test rows, {' or '.join(sorted(samples))} sampled to each",
        ["answers", *PARTS],
        dict.fromkeys(PARTS, "%"),
        note=f"Sampled as RL samples them: what it is paid for. Intervals are over {over}.",
    )
    for name, row in rows.items():
        table.add(name, *(Cell(**row[part]) if part in row else Cell(None) for part in PARTS))
    return table


def depth_table(rows: dict[str, list[dict[str, Any]]], note: str = "") -> Table:
    """What `rollout.accuracy_by_depth` found for each predictor, on the same trajectories; `note` says which."""
    table = Table(
        "Simulating winning plans: right at every step so far",
        ["depth", *rows],
        dict.fromkeys(rows, "%"),
        note=f"Each prediction is the next question. Plans that have ended drop out. {note}".rstrip(),
    )
    for steps in zip(*rows.values(), strict=True):
        table.add(str(steps[0]["depth"]), *(cell(step["unbroken"]) for step in steps))
    return table


def planning_table(rows: dict[str, dict[str, Any]]) -> Table:
    """What `rollout.plan_in_model` found for each predictor, on the same levels."""
    columns = {"found": "plan found in the model", "won": "plan wins the true game"}
    table = Table(
        "Planning inside the model",
        ["model", *columns.values()],
        dict.fromkeys(columns.values(), "%"),
        note="perfect: the same search with true predictions.",
    )
    for name, tallies in rows.items():
        table.add(name, *(cell(tallies[key]) for key in columns))
    return table
