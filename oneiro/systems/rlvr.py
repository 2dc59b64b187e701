"""RLVR-World (arXiv 2505.13934): a model learns to predict the next state from verified rewards.

    data  ->  supervised training on true outcomes  ->  evaluation  ->  RL on the verified reward  ->  evaluation

An episode of RL is one prompt with one sampled prediction; the predictions for one prompt are a group. What is
predicted, and how it is rewarded and measured, a `Task` says: text games, web pages and video fill one in
(`oneiro/tasks/*/task.py`).
"""

from __future__ import annotations

from typing import Any

from oneiro.learning import stages
from oneiro.rundir.run import Run
from oneiro.runtime import plugins
from oneiro.sampling.engine import Engine
from oneiro.tasks.recipe import RlvrRecipe
from oneiro.tasks.task import AFTER, RL, Task


def run(recipe: RlvrRecipe, run: Run) -> None:
    """The whole pipeline inside a run directory."""
    task: Task = plugins.resolve(recipe.task_class, f"the task of {recipe.system}")(recipe, run)

    def evaluate(name: str, stage: str | None) -> dict[str, Any]:
        return task.evaluate(Engine(task.model(stage), recipe.max_batch_size), name)

    run.plan([*task.first_stages, "evaluate-base", RL, "evaluate-rlvr", "compare"])
    task.prepare()
    start = task.supervise()
    before = run.stage("evaluate-base", lambda: evaluate(task.before, start))
    learned = run.stage(RL, lambda: task.reinforce(start))
    after = run.stage("evaluate-rlvr", lambda: evaluate(AFTER, RL))
    compared = run.stage("compare", lambda: task.compare({task.before: before, AFTER: after}))
    stages.summarise(run, compared, task.curves, [*compared["notes"], *learned["notes"]])
