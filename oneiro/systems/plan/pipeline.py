"""Planning with learned worlds: a model from play, search inside it, and the rows that such a claim needs.

    play  ->  world model and policy  ->  search in the model, in its controls and in the truth  ->  tables

A world fills in what is learned and which rows are measured (`lake.py`, `physics.py`, `textgame.py`, `web.py`). Every
repeat has its own play and weights, and all are measured on the same levels. Levels are what is independent: in the
tables the repeats of one level are averaged first.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from oneiro.agents.learners import Repeat
from oneiro.agents.policies import Policy
from oneiro.episode import Episode
from oneiro.learning import stages
from oneiro.report import stats
from oneiro.report.episodes import TRACES
from oneiro.report.table import Cell, Table
from oneiro.rundir.run import Run
from oneiro.runtime import plugins
from oneiro.runtime.files import write_json
from oneiro.systems.plan.recipe import PlanRecipe

ORDER = (
    "random",
    "policy",
    "policy, and its successes",
    "policy, vote",
    "policy, vote, told",
    "policy, vote, veto at random",
    "policy, vote, veto by the model",
    "beam, no change",
    "beam, shuffled model",
    "beam, another context",
    "beam, lookup",
    "beam, copy from the prompt",
    "mpc, model",
    "beam, model",
    "mpc, true lake",
    "beam, true lake",
    "beam, true game",
    "beam, true web",
    "beam, true displacements",
    "beam, true rules",
    "best possible",
)
TITLES = {"goal": "The lake's own goal", "target": "Another goal, no new training: a cell that nothing marks"}


def run(recipe: PlanRecipe, run: Run) -> None:
    """The whole pipeline inside a run directory."""
    planning_class: type[Planning] = plugins.resolve(recipe.planning_class, f"the world of {recipe.system}")
    repeats = [planning_class(recipe, run, number) for number in range(recipe.repeats)]
    each = [[*map(one.name_stage, one.stages), one.name_stage("evaluate")] for one in repeats]
    run.plan([*(name for names in each for name in names), "reference", "compare"])
    measured = []
    for one in repeats:
        one.learn()
        measured.append(run.stage(one.name_stage("evaluate"), one.evaluate))
    reference = run.stage("reference", repeats[0].reference)
    compared = run.stage("compare", lambda: compare(planning_class, measured, reference))
    title, stage = planning_class.curve
    lines = {f"repeat {one.number}": one.name_stage(stage) for one in repeats}
    stages.summarise(run, compared, [stages.Curve(title, "loss", lines)], compared["notes"])


class Planning(Repeat):
    """One repeat in one world: what it learns, and the rows of the tables that it fills."""

    curve: ClassVar[tuple[str, str]]
    """Title and stage of the loss that the report plots."""
    steps_title: ClassVar[str] = ""
    """Which steps the model's accuracy is measured on."""
    beside: ClassVar[Sequence[str]] = ()
    """Rows whose difference from search in the model is put in words."""

    @abstractmethod
    def evaluate(self) -> dict[str, Any]:
        """`rows`: table -> row -> what `row` gives; `steps`: how true the model is, where that is measured."""

    @abstractmethod
    def reference(self) -> dict[str, Any]:
        """Table -> the rows that need no learning: chance below, the best possible above."""

    def row(self, policy: Policy, episodes: Sequence[Episode]) -> dict[str, Any]:
        """Success on each level, and tokens for a decision."""
        decisions, spent = sum(len(episode.info["turns"]) for episode in episodes), getattr(policy, "spent", None)
        tokens = spent.tokens if spent is not None else sum(episode.sampled_tokens for episode in episodes)
        return {"success": [float(episode.success) for episode in episodes], "tokens": tokens / max(1, decisions)}

    def votes(self, budget: float, reply: float, most: int) -> int:
        """Replies of the policy for the tokens that a decision of the planner takes."""
        return max(1, min(most, round(budget / max(1.0, reply))))

    def write_traces(self, decisions: Sequence[Mapping[str, Any]]) -> None:
        """A few episodes with all that was considered, for the report."""
        write_json(self.run.path / TRACES, {"traces": list(decisions)})


# Tables ---------------------------------------------------------------------------------------------------------------


def compare(
    planning: type[Planning], measured: Sequence[Mapping[str, Any]], reference: Mapping[str, Any]
) -> dict[str, Any]:
    """The tables, and in words what search in the model reaches of search in the truth."""
    tables, notes = list[Table](), list[str]()
    for title, known in reference.items():
        rows = [one["rows"][title] for one in measured]
        table, reached = planning_table(title, rows, known)
        tables.append(table)
        notes += [*reached, *(note for other in planning.beside for note in difference("beam, model", other, rows))]
    if "steps" in measured[0]:
        tables.append(steps_table([one["steps"] for one in measured], planning.steps_title))
    return {"tables": [table.data() for table in tables], "notes": notes}


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
    mine, theirs = (np.mean([row[name]["success"] for row in repeats], axis=0) for name in (one, other))
    gap = stats.paired(mine, theirs)
    value, *ends = [f"{100 * part:+.1f}" for part in (gap.value, gap.low, gap.high) if isinstance(part, float)]
    return [f"{one} less {other}: {value} points of success{f' ({ends[0]} to {ends[1]})' if ends else ''}."]


def steps_table(repeats: Sequence[Mapping[str, Any]], what: str) -> Table:
    """Exact predictions of unseen steps; a level without such steps has None."""
    table = Table(
        f"Exact predictions of {what}",
        ["row", "all steps", "steps that change something"],
        units={"all steps": "%", "steps that change something": "%"},
        note="95 % intervals, bootstrap over levels; n counts levels.",
    )
    for name in ("no change", "lookup", "model"):
        measured = [one[name] for one in repeats if name in one]
        parts = [np.array([one[part] for one in measured], float) for part in ("all", "changed")]
        known = [part[:, ~np.isnan(part).all(axis=0)] for part in parts]
        table.add(name, *(stats.bootstrap(np.nanmean(part, axis=0)) for part in known))
    return table
