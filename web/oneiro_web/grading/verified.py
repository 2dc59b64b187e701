"""WebArena-Verified's evaluators.

`AgentResponseEvaluator` wants the answer as a JSON object with `task_type`, `status` and `retrieved_data`; values are
compared by their type in `results_schema`. `NetworkEventEvaluator` looks at recorded traffic
(`oneiro_web.grading.network`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from oneiro_web.grading.network import event_match
from oneiro_web.grading.result import Checked, shown
from oneiro_web.grading.typed import same
from oneiro_web.tasks import VerifiedCheck
from oneiro_web.traffic import Exchange

MAX_ANSWER_CHARS = 1 << 16  # a longer answer is cut before it is read


def evaluate_verified(
    checks: Sequence[VerifiedCheck], url: str, answer: str | None, traffic: Sequence[Exchange] | None
) -> list[Checked]:
    """The checks of a Verified task. Without recorded traffic, the address of the last page has to do."""
    navigates = any(check.expected.get("task_type") == "navigate" for check in checks)
    return [
        response_match(check, answer)
        if check.evaluator == "AgentResponseEvaluator"
        else event_match(check, url, traffic, navigates)
        for check in checks
    ]


def response_match(check: VerifiedCheck, answer: str | None) -> Checked:
    """The answer's task type, status and data."""
    name = check.evaluator
    if answer is None:
        return Checked(name, 0.0, "no answer")
    response = read_response(answer)
    if response is None:
        return Checked(name, 0.0, f"{shown(answer)} is no JSON object with task_type, status and retrieved_data")
    for key in ("task_type", "status"):
        if str(response.get(key)).lower() != str(check.expected.get(key)).lower():
            return Checked(name, 0.0, f"{key} is {shown(response.get(key))}, not {shown(check.expected.get(key))}")
    wanted, given = check.expected.get("retrieved_data"), response.get("retrieved_data")
    if wanted is None and given in (None, []):
        return Checked(name, 1.0, "nothing to retrieve")
    right = same(wanted, given, check.results_schema or {}, check.ordered)
    return Checked(name, float(right), f"{shown(given)} is {'' if right else 'not '}{shown(wanted)}")


def read_response(answer: str) -> dict[str, Any] | None:
    """The JSON object of an answer, with or without a code fence around it."""
    text = re.sub(r"^\s*```(?:json)?|```\s*$", "", answer[:MAX_ANSWER_CHARS]).strip()
    try:
        response = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return response if isinstance(response, dict) else None
