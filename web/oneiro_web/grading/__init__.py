"""Graders: what a task asks of an episode's end, as a score between 0 and 1 with reasons.

result = evaluate(task, session, answer, web=web)
result.score, result.checks
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from oneiro_web.browsers.base import Session
from oneiro_web.errors import WebError, nearest
from oneiro_web.grading import network, webarena
from oneiro_web.grading.answers import check_answer
from oneiro_web.grading.database import check_rows, check_unchanged
from oneiro_web.grading.judge import Judge, PromptJudge
from oneiro_web.grading.result import Checked, Result, UnsupportedCheck
from oneiro_web.grading.verified import evaluate_verified
from oneiro_web.grading.webarena import VARIANTS, Helper, PageAt, evaluate_webarena
from oneiro_web.sites import Web
from oneiro_web.tasks import AnswerCheck, DatabaseCheck, Evaluation, Task
from oneiro_web.traffic import TrafficWeb

__all__ = [
    "VARIANTS", "Checked", "Helper", "Judge", "PageAt", "PromptJudge", "Result", "UnsupportedCheck", "evaluate",
    "require_supported",
]  # fmt: skip


def require_supported(task: Task, where: str, helpers: Collection[str] = ()) -> None:
    """Refuse a task with a check that cannot be made here, before it is played; `helpers` are those that are given."""
    if isinstance(task.eval, Evaluation):
        missing = webarena.missing_support(task.eval, helpers)
    else:
        events = [check for check in task.eval or () if check.evaluator == "NetworkEventEvaluator"]
        missing = next((reason for check in events if (reason := network.missing_support(check))), None)
    if missing:
        raise UnsupportedCheck(f"{where}: task {task.task_id}: {missing}")


def evaluate(
    task: Task,
    session: Session,
    answer: str | None,
    *,
    web: Web | None = None,
    variant: str = "webarena",
    judge: Judge | None = None,
    helpers: Mapping[str, Helper] | None = None,
    early_stop_text: str | None = None,
) -> Result:
    """Grade an episode's end. The score is the product of all checks.

    `answer` is the text of the agent's stop; None if it never stopped: that is no answer, and scores 0 wherever one is
    asked for. `early_stop_text` grades a runner's own words instead (`Early stop: Reach max steps 5`), as released
    runners do. `web` is needed by checks of databases, a `TrafficWeb` by checks of traffic. `variant` chooses between
    releases of WebArena's evaluators.
    """
    if variant not in VARIANTS:
        raise WebError(f"no evaluators {variant!r}{nearest(variant, VARIANTS)}")
    given = early_stop_text if answer is None else answer
    checks: list[Checked] = []
    if isinstance(task.eval, Evaluation):
        checks += evaluate_webarena(task.eval, task.intent, session, given, VARIANTS[variant], judge, helpers or {})
    elif task.eval:
        checks += evaluate_verified(task.eval, session.url, given, web.traffic if isinstance(web, TrafficWeb) else None)
    for check in task.spec.checks if task.spec else ():
        if isinstance(check, AnswerCheck):
            checks.append(check_answer(check, given))
        elif web is None:
            checks.append(Checked(check.kind, 0.0, "the databases of the episode are not at hand", unsupported=True))
        else:
            checks.append(check_rows(check, web) if isinstance(check, DatabaseCheck) else check_unchanged(check, web))
    return Result(tuple(checks))
