"""The page that a task asks for: the task's own check of an address, for true and predicted pages alike."""

from __future__ import annotations

from oneiro_web.grading.webarena import VARIANTS, url_match
from oneiro_web.tasks import Evaluation, Task


def goal_of(task: Task) -> Evaluation | None:
    """The check of the address where a task must end; None where a task asks for something else."""
    found = task.eval
    return found if isinstance(found, Evaluation) and found.eval_types == ("url_match",) else None


def reaches(url: str, goal: Evaluation | None) -> bool:
    """Whether the check accepts an address."""
    return goal is not None and url_match(goal, url, VARIANTS["webarena"]).score == 1.0
