"""What an RLVR run reports of a model: single steps, trajectories on its own predictions, and plans found inside it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from oneiro import seeds
from oneiro.agents.evaluate import record
from oneiro.predictors.textgame.rollout import Predict, Rollout, accuracy_by_depth, plan_in_model, true_predictor
from oneiro.predictors.textgame.tables import depth_table, planning_table, sampled_table
from oneiro.predictors.textgame.task import TextGamePredictor
from oneiro.report import stats
from oneiro.report.table import Table
from oneiro.run import Run
from oneiro.systems.rlvr.textgame.data import Data
from oneiro.systems.rlvr.textgame.episodes import episode
from oneiro.systems.rlvr.textgame.evaluation import AT_ONCE, StepEvaluation, answer, some, step_tables
from oneiro.systems.rlvr.textgame.model import Answerer
from oneiro.systems.rlvr.textgame.plans import Plans, find_plans
from oneiro.systems.rlvr.textgame.recipe import RlvrRecipe
from oneiro.worlds.base import draw_level, level_key
from oneiro.worlds.textgame.game import Game
from oneiro.worlds.textgame.games import game_named
from oneiro.worlds.textgame.scene import Scene
from oneiro.worlds.textgame.solver import solve
from oneiro.worlds.textgame.state import Transition


def evaluation_of(recipe: RlvrRecipe, data: Data) -> StepEvaluation:
    return StepEvaluation.of(data.test, data.unseen, recipe.data.held_out, recipe.evaluation.rows, recipe.seed)


def evaluate(recipe: RlvrRecipe, run: Run, data: Data, answerer: Answerer, stage: str) -> dict[str, Any]:
    """Everything a model's rows of the tables need, as plain JSON; its answers are kept as episodes."""
    evaluation, task = evaluation_of(recipe, data), answerer.task
    with run.progress(stage, len(evaluation.rows)) as bar:
        samples = answer(answerer, evaluation.rows, bar.advance)
    answers = {case.id: answerer.text(sample) for case, sample in zip(evaluation.rows, samples, strict=True)}
    told = [
        episode(task, case, answers[case.id], sample, answerer.prompt(case), number)
        for number, (case, sample) in enumerate(zip(evaluation.rows, samples, strict=True))
    ]
    run.episodes(stage, 0, [record(one) for one in told])
    found = {"steps": evaluation.measure(task, answers, recipe.task.scorer)}
    if recipe.evaluation.samples:
        found["sampled"] = sampled(recipe, run, answerer, evaluation.cases, stage)
    return found | beyond(recipe, task, answerer)


def sampled(
    recipe: RlvrRecipe, run: Run, answerer: Answerer, cases: Sequence[Transition], stage: str
) -> dict[str, Any]:
    """How often a sampled answer is exact: by changed and unchanged steps, intervals over steps."""
    count, right = recipe.evaluation.samples, []
    seed = seeds.derive(recipe.seed, "sampled answers")
    with run.progress(f"{stage}, sampled", len(cases)) as bar:
        for start in range(0, len(cases), AT_ONCE):
            part = cases[start : start + AT_ONCE]
            for case, samples in zip(part, answerer.sample(part, count, seeds.derive(seed, start)), strict=True):
                right.append([answerer.task.exact(answerer.text(sample), case) for sample in samples])
            bar.advance(len(part))
    outcomes, changed = np.array(right), np.array([answerer.task.changes(case) for case in cases])
    parts = {"changed": changed, "unchanged": ~changed, "overall": np.ones_like(changed)}
    found = {name: vars(stats.success_rate(outcomes[part])) for name, part in parts.items() if part.any()}
    return {"samples": count, **found}


def eval_subset(recipe: RlvrRecipe, data: Data, answerer: Answerer) -> dict[str, float]:
    """How often a few test rows are answered exactly, on the way."""
    cases = some(data.test, recipe.evaluation.eval_subset, recipe.seed)
    right = [answerer.task.exact(text, case) for case, text in zip(cases, answerer(cases), strict=True)]
    found: dict[str, float] = {}
    for name, kind in (("eval_changed", True), ("eval_unchanged", False)):
        part = [hit for hit, case in zip(right, cases, strict=True) if answerer.task.changes(case) is kind]
        found |= {name: sum(part) / len(part)} if part else {}
    return found


# Beyond one step -----------------------------------------------------------------------------------------------------


def beyond(recipe: RlvrRecipe, task: TextGamePredictor, predict: Predict) -> dict[str, Any]:
    """Accuracy against depth, and in our own games planning; only whole steps can follow one another."""
    settings, found = recipe.evaluation, dict[str, Any]()
    if task.config.transition != "full":
        return found
    if not recipe.data.own:
        return {"depth": plans.measure(task, predict)} if (plans := recorded(recipe)) else found
    if settings.trajectories:
        trajectories = [
            Rollout.played(game, start, plan)
            for game, start in levels(recipe, settings.trajectories)
            if (plan := solve(game, start))
        ]
        found["depth"] = accuracy_by_depth(task, predict, trajectories, settings.depth)
    if (search := recipe.planning).levels:
        starts = levels(recipe, search.levels)
        found["planning"] = plan_in_model(task, predict, starts, breadth=search.breadth, depth=search.depth)
    return found


def recorded(recipe: RlvrRecipe) -> Plans:
    """The plans among the rows of an imported folder."""
    data, settings = recipe.data, recipe.evaluation
    folder = Path(data.name).expanduser()
    plans = find_plans(folder, "test", settings.depth, games=data.games, held_out=data.held_out)
    return plans.some(settings.trajectories, recipe.seed)


def levels(recipe: RlvrRecipe, count: int) -> Iterator[tuple[Game, Scene]]:
    """Unseen levels of the games that were learnt, game after game."""
    names = recipe.data.trained
    for number in range(count):
        game = game_named(names[number % len(names)])
        seed = seeds.derive(recipe.seed, "evaluation level", number)
        yield game, draw_level(game.name, seed, "eval", game.level, lambda scene: level_key(scene.key()))[0]


# Tables --------------------------------------------------------------------------------------------------------------


def tables(recipe: RlvrRecipe, data: Data, measured: dict[str, dict[str, Any]]) -> list[Table]:
    """All tables: the baselines and ceilings, and the measured models under their names."""
    evaluation, task = evaluation_of(recipe, data), data.task(recipe)
    plans = None if recipe.data.own else recorded(recipe)
    perfect = true_predictor(task) if plans is None else plans.baselines(task)["perfect"]
    trivial = {
        "no change": beyond(recipe, task, lambda cases: [task.no_change(case) for case in cases]),
        "perfect": beyond(recipe, task, perfect),
    }
    compared = evaluation.compare(task, {name: row["steps"] for name, row in measured.items()}, recipe.task.scorer)
    drawn = {name: row["sampled"] for name, row in measured.items() if "sampled" in row}
    further = beyond_tables(trivial | measured, plans.note if plans is not None else "")
    return [*step_tables(compared), *([sampled_table(drawn)] if drawn else []), *further]


def beyond_tables(rows: dict[str, dict[str, Any]], note: str) -> list[Table]:
    """Accuracy against depth, and planning, where they were measured."""
    deep = {name: row["depth"] for name, row in rows.items() if "depth" in row}
    planned = {name: row["planning"] for name, row in rows.items() if "planning" in row}
    return [*([depth_table(deep, note)] if deep else []), *([planning_table(planned)] if planned else [])]
