"""What an RLVR run reports of a model: single steps, trajectories on its own predictions, and plans found inside it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from oneiro.report import stats
from oneiro.report.table import Table
from oneiro.rundir.run import Run
from oneiro.runtime import seeds
from oneiro.tasks.answering import AT_ONCE
from oneiro.tasks.textgame.accuracy import Answers, evaluate_answers, published_rows, start_states
from oneiro.tasks.textgame.data import TextGameData, some_rows
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
from oneiro.tasks.textgame.tables import depth_table, planning_table, sampled_table, subset_tables
from oneiro.tasks.textgame.tables import tables as accuracy_tables
from oneiro.worlds.base import draw_level, level_key
from oneiro.worlds.textgame.dataset import Dataset
from oneiro.worlds.textgame.game import GameRules
from oneiro.worlds.textgame.games import game_named
from oneiro.worlds.textgame.scene import Scene
from oneiro.worlds.textgame.solver import solve
from oneiro.worlds.textgame.state import Transition

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


def tables(recipe: TextGameRecipe, data: TextGameData, measured: Mapping[str, dict[str, Any]]) -> list[Table]:
    """All tables: the baselines and ceilings, and the measured models under their names."""
    evaluation, task = evaluation_of(recipe, data), data.predictor(recipe.task)
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
    return [*step_tables(compared), *([sampled_table(drawn, over="start states")] if drawn else []), *further]


def beyond_tables(rows: dict[str, dict[str, Any]], note: str) -> list[Table]:
    """Accuracy against depth, and planning, where they were measured."""
    deep = {name: row["depth"] for name, row in rows.items() if "depth" in row}
    planned = {name: row["planning"] for name, row in rows.items() if "planning" in row}
    return [*([depth_table(deep, note)] if deep else []), *([planning_table(planned)] if planned else [])]
