"""RLVR-World (arXiv 2505.13934): a model learns to predict the next state from verified rewards.

    data  ->  supervised training on true outcomes  ->  evaluation  ->  RL on the verified reward  ->  evaluation

An episode of RL is one prompt with one sampled prediction; the predictions for one prompt are a group.
"""

from __future__ import annotations

from typing import Any

from oneiro.learning import stages
from oneiro.learning.collapse import CollapseMonitor
from oneiro.models.language import merged
from oneiro.rundir.run import Run
from oneiro.runtime import plugins, seeds
from oneiro.sampling.engine import Engine
from oneiro.tasks.base import AFTER, RL, Task
from oneiro.tasks.recipe import RlvrRecipe


def run(recipe: RlvrRecipe, run: Run) -> None:
    """The whole pipeline of a recipe inside a run directory."""
    train(plugins.resolve(recipe.task_class, f"the task of {recipe.system}")(recipe, run))


def train(task: Task) -> None:
    """The whole pipeline of a task inside its run."""
    run = task.run
    run.plan([*task.first_stages, "evaluate-base", RL, "evaluate-rlvr", "compare"])
    task.prepare()
    start = task.supervise()
    before = run.stage("evaluate-base", lambda: evaluate(task, task.before, start))
    said = run.stage(RL, lambda: reinforce(task, start))
    after = run.stage("evaluate-rlvr", lambda: evaluate(task, AFTER, RL))
    compared = run.stage("compare", lambda: task.compare({task.before: before, AFTER: after}))
    stages.summarise(run, compared, task.curves, [*compared["notes"], *said["notes"]])


def reinforce(task: Task, start: str | None) -> dict[str, Any]:
    """Learn from verified rewards; ends early when there is nothing left to learn from."""
    recipe, language = task.recipe, task.model(start)
    return stages.reinforce(
        task.run,
        RL,
        "RLVR",
        merged(language) if recipe.merge_lora else language,
        task.rollout,
        settings=recipe.rl,
        seed=seeds.derive(recipe.seed, "rl updates"),
        monitor=CollapseMonitor(recipe.collapse_monitor),
        max_batch_size=recipe.max_batch_size,
        evaluate_every=recipe.evaluation.every,
    )


def evaluate(task: Task, name: str, stage: str | None) -> dict[str, Any]:
    """The measurements of the model after a stage."""
    return task.evaluate(Engine(task.model(stage), task.recipe.max_batch_size), name)
