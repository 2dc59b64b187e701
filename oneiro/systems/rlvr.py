"""RLVR-World (arXiv 2505.13934): a model learns to predict the next state from verified rewards.

    data  ->  supervised training on true outcomes  ->  evaluation  ->  RL on the verified reward  ->  evaluation
                                                                   ->  SFT continued, the control  ->  evaluation

An episode of RL is one prompt with one sampled prediction; the predictions for one prompt are a group. What is
predicted, and how it is rewarded and measured, a `Task` says: text games, web pages and video fill one in
(`oneiro/tasks/*/task.py`).
"""

from __future__ import annotations

from typing import Any

from oneiro.learning import stages
from oneiro.learning.stages import CONTROL
from oneiro.rundir.run import Run
from oneiro.runtime import plugins
from oneiro.sampling.engine import Engine
from oneiro.tasks.recipe import RlvrRecipe
from oneiro.tasks.task import AFTER, RL, Task, evaluation_stage


def run(recipe: RlvrRecipe, run: Run) -> None:
    """The whole pipeline inside a run directory."""
    task: Task = plugins.resolve(recipe.task_class, f"the task of {recipe.system}")(recipe, run)

    def evaluate(name: str, stage: str | None) -> dict[str, Any]:
        def measure() -> dict[str, Any]:
            return task.evaluate(Engine(task.model(stage), recipe.max_batch_size), name)

        return run.stage(evaluation_stage(name), measure)

    control = [*task.control_stages, evaluation_stage(CONTROL)] if task.control_stages else []
    run.plan([*task.first_stages, evaluation_stage(task.before), RL, evaluation_stage(AFTER), *control, "compare"])
    task.prepare()
    start = task.supervise()
    measured = {task.before: evaluate(task.before, start)}
    learned = run.stage(RL, lambda: task.reinforce(start))
    after = evaluate(AFTER, RL)
    if (continued := task.control(start)) is not None:
        measured[CONTROL] = evaluate(CONTROL, continued)
    measured[AFTER] = after
    compared = run.stage("compare", lambda: task.compare(measured))
    stages.summarise(run, compared, task.curves, [*compared["notes"], *learned["notes"]])
