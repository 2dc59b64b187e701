"""What an RLVR run reports of a model: single steps, trajectories on its own predictions, and plans found inside it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from oneiro.report import stats
from oneiro.report.table import Cell, Table
from oneiro.rundir.run import Run
from oneiro.runtime import seeds
from oneiro.tasks.answering import AT_ONCE
from oneiro.tasks.textgame.accuracy import Answers, evaluate_answers, published_rows, start_states
from oneiro.tasks.textgame.data import TextGameData, some_rows
from oneiro.tasks.textgame.lookup import TextGameLookup
from oneiro.tasks.textgame.model import TextGameModel
from oneiro.tasks.textgame.predictor import Scorer, TextGamePredictor
from oneiro.tasks.textgame.recipe import TextGameRecipe
from oneiro.tasks.textgame.rollout import (
    Plans,
    Predict,
    TrueRollout,
    accuracy_by_depth,
    find_plans,
    plan_in_model,
    true_predictor,
)
from oneiro.tasks.textgame.score import Error
from oneiro.worlds.base import draw_level, level_key
from oneiro.worlds.textgame.dataset import Dataset
from oneiro.worlds.textgame.game import GameRules, solve
from oneiro.worlds.textgame.games import game_named
from oneiro.worlds.textgame.scene import Scene
from oneiro.worlds.textgame.state import Kind, Transition

OFFICIAL, OFFICIAL_ROWS = "bytesized32", 2954
"""The data whose published results stand beside ours, and how many test rows those are about."""


@dataclass(frozen=True)
class StepEvaluation:
    """The rows that are asked."""

    cases: Sequence[Transition]
    unseen: Sequence[Transition] = ()
    """Rows of held-out games that have a split of their own."""
    held_out: Collection[str] = ()
    """Held-out games that stand among `cases`."""
    official: bool = False
    """`cases` are all official test rows, so published figures belong beside them."""

    @classmethod
    def of(
        cls, test: Dataset, unseen: Dataset | None, held_out: Collection[str], rows: int, seed: int
    ) -> StepEvaluation:
        """At most `rows` of each; 0: all."""
        cases = some_rows(test, rows, seed)
        official = (test.name, test.split, len(cases)) == (OFFICIAL, "test", OFFICIAL_ROWS)
        return cls(cases, some_rows(unseen, rows, seed) if unseen is not None else (), held_out, official)

    @property
    def rows(self) -> list[Transition]:
        return [*self.cases, *self.unseen]

    def measure(self, task: TextGamePredictor, answers: Answers, scorer: Scorer) -> dict[str, Any]:
        """The row of one set of answers, under both scorers (see `evaluate_answers`)."""
        if not self.unseen:
            return evaluate_answers(self.cases, answers, scorer, task=task, held_out=self.held_out, both=True)
        aside = {case.id for case in self.unseen}
        known = answers if callable(answers) else {key: text for key, text in answers.items() if key not in aside}
        row = evaluate_answers(self.cases, known, scorer, task=task, held_out=self.held_out, both=True)
        rest = answers if callable(answers) else lambda case: answers.get(case.id, "")
        games = {case.game for case in self.unseen}
        apart = evaluate_answers(self.unseen, rest, scorer, task=task, held_out=games, both=True)
        other = {"other": {**row["other"], "held_out": apart["other"]["held_out"]}} if "other" in row else {}
        return row | {"held_out": apart["held_out"]} | other

    def compare(
        self,
        task: TextGamePredictor,
        rows: Mapping[str, dict[str, Any]],
        scorer: Scorer,
        baselines: Mapping[str, Answers],
    ) -> dict[str, Any]:
        """Measured rows with the baselines above them and, where they belong, the published ones below."""
        trivial = {name: self.measure(task, answers, scorer) for name, answers in baselines.items() if name not in rows}
        published = published_rows(task.config.transition) if self.official else []
        return {"rows": {**trivial, **rows}, "published": published}


def step_tables(compared: dict[str, Any]) -> list[Table]:
    """Accuracy on all rows, on clean ones and on held-out games; then game by game, errors, and depth if measured."""
    accuracy, games, errors = accuracy_tables(compared)
    deep = [depth_table(compared["depth"], compared["plans"])] if "depth" in compared else []
    return [accuracy, *subset_tables(compared), games, errors, *deep]


# In a run -----------------------------------------------------------------------------------------------------------


def evaluation_of(recipe: TextGameRecipe, data: TextGameData) -> StepEvaluation:
    return StepEvaluation.of(data.test, data.unseen, recipe.data.held_out, recipe.evaluation.rows, recipe.seed)


def evaluate_samples(
    recipe: TextGameRecipe, run: Run, model: TextGameModel, cases: Sequence[Transition], stage: str
) -> dict[str, Any]:
    """How often a sampled answer is exact: by changed and unchanged steps, intervals over start states."""
    count, right = recipe.evaluation.samples, []
    seed = seeds.derive(recipe.seed, "sampled answers")
    with run.progress(f"{stage}, sampled", len(cases)) as bar:
        for start in range(0, len(cases), AT_ONCE):
            part = cases[start : start + AT_ONCE]
            for case, samples in zip(part, model.sample(part, count, seeds.derive(seed, start)), strict=True):
                right.append([model.task.exact(model.text(sample), case) for sample in samples])
            bar.advance(len(part))
    exact, changed = np.array(right).mean(axis=1), np.array([model.task.changes(case) for case in cases])
    parts, starts = {"changed": changed, "unchanged": ~changed, "overall": np.ones_like(changed)}, start_states(cases)
    shares = {name: vars(stats.clustered(exact[part], starts[part])) for name, part in parts.items() if part.any()}
    return {"samples": count, **shares}


def by_own_steps(
    recipe: TextGameRecipe,
    data: TextGameData,
    memories: Mapping[int, TextGameLookup],
    predict: Callable[[TextGameLookup], Predict],
) -> dict[int, dict[str, Any]]:
    """How many clean test steps of held-out games that change something are right, by what the lookup knows of the
    games.
    """
    task, held_out = TextGamePredictor(recipe.task), recipe.data.held_out
    cases = [case for case in data.test if case.game in held_out and task.changes(case) and case.duplicate is False]
    games = np.array([case.game for case in cases])
    return {
        count: vars(stats.clustered(np.array([*map(task.exact, predict(memory)(cases), cases)], float), games))
        for count, memory in memories.items()
    }


# Beyond one step -----------------------------------------------------------------------------------------------------


def beyond(recipe: TextGameRecipe, task: TextGamePredictor, predict: Predict) -> dict[str, Any]:
    """Accuracy against depth, and in our own games planning; only whole steps can follow one another."""
    settings, results = recipe.evaluation, dict[str, Any]()
    if task.config.transition != "full":
        return results
    if not recipe.data.own:
        return {"depth": plans.measure(task, predict)} if (plans := recorded_plans(recipe)) else results
    if settings.trajectories:
        trajectories = [
            TrueRollout.play(game, start, plan)
            for game, start in levels(recipe, settings.trajectories)
            if (plan := solve(game, start))
        ]
        results["depth"] = accuracy_by_depth(task, predict, trajectories, settings.depth)
    if (search := recipe.planning).levels:
        starts = levels(recipe, search.levels)
        results["planning"] = plan_in_model(task, predict, starts, breadth=search.breadth, depth=search.depth)
    return results


def recorded_plans(recipe: TextGameRecipe) -> Plans:
    """The plans among the rows of an imported folder."""
    data, settings = recipe.data, recipe.evaluation
    folder = Path(data.name).expanduser()
    plans = find_plans(folder, "test", settings.depth, games=data.games, held_out=data.held_out)
    return plans.some(settings.trajectories, recipe.seed)


def levels(recipe: TextGameRecipe, count: int) -> Iterator[tuple[GameRules, Scene]]:
    """Unseen levels of the games that were learned, game after game."""
    names = recipe.data.trained
    for number in range(count):
        game = game_named(names[number % len(names)])
        seed = seeds.derive(recipe.seed, "evaluation level", number)
        yield game, draw_level(game.name, seed, "eval", game.level, lambda scene: level_key(scene.key()))[0]


# Tables --------------------------------------------------------------------------------------------------------------


def tables(
    recipe: TextGameRecipe,
    data: TextGameData,
    task: TextGamePredictor,
    memories: Mapping[int, TextGameLookup],
    measured: Mapping[str, dict[str, Any]],
) -> list[Table]:
    """All tables: the baselines and ceilings, and the measured models under their names."""
    evaluation = evaluation_of(recipe, data)
    plans = None if recipe.data.own else recorded_plans(recipe)
    perfect = true_predictor(task) if plans is None else plans.baselines(task)["perfect"]
    baselines = task.baselines(data.train)
    trivial = {
        "no change": beyond(recipe, task, lambda cases: [task.no_change(case) for case in cases]),
        "lookup": beyond(recipe, task, lambda cases: [baselines["lookup"](case) for case in cases]),  # type: ignore[arg-type]
        "perfect": beyond(recipe, task, perfect),
    }
    rows = {name: row["steps"] for name, row in measured.items()}
    compared = evaluation.compare(task, rows, recipe.task.scorer, baselines)
    drawn = {name: row["sampled"] for name, row in measured.items() if "sampled" in row}
    further = beyond_tables({**trivial, **measured}, plans.note if plans is not None else "")
    if memories:
        known = {"lookup": by_own_steps(recipe, data, memories, lambda memory: lambda cases: [*map(memory, cases)])}
        further.append(own_steps_table(known | {name: row["own_steps"] for name, row in measured.items()}))
    return [*step_tables(compared), *([sampled_table(drawn, over="start states")] if drawn else []), *further]


def beyond_tables(rows: dict[str, dict[str, Any]], note: str) -> list[Table]:
    """Accuracy against depth, and planning, where they were measured."""
    deep = {name: row["depth"] for name, row in rows.items() if "depth" in row}
    planned = {name: row["planning"] for name, row in rows.items() if "planning" in row}
    return [*([depth_table(deep, note)] if deep else []), *([planning_table(planned)] if planned else [])]


PARTS = ("unchanged", "changed", "overall")

QUESTIONS: dict[Kind, str] = {
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


def accuracy_tables(compared: dict[str, Any]) -> list[Table]:
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
        f"Text games: {QUESTIONS[rows[0]['transition']]}{title}", ["answers", *columns], dict.fromkeys(columns, "%")
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


def own_steps_table(rows: Mapping[str, Mapping[Any, dict[str, Any]]]) -> Table:
    """The curves of `by_own_steps`. Numbers of steps are texts where a run wrote them down."""
    counts = [str(count) for count in next(iter(rows.values()))]
    table = Table(
        "Held-out games: clean changed steps exact, by how many of a game's own steps the lookup knows",
        ["answers", *counts],
        dict.fromkeys(counts, "%"),
        note="Without task.retrieve a model sees nothing of them. Intervals are over games.",
    )
    for name, curve in rows.items():
        table.add(name, *(Cell(**cell) for cell in curve.values()))
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
