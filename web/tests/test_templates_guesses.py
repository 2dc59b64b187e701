"""No constant answer passes more than one draw in ten of any template."""

from __future__ import annotations

import pytest

from oneiro_web.grading.answers import check_answer
from oneiro_web.tasks import AnswerCheck
from oneiro_web.templates.registry import TEMPLATES
from oneiro_web.templates.table import TableTemplate, written
from oneiro_web.validate import drawn_task

DRAWS = 100
QUICK = ("shopping/star-count", "shopping/orders-by-status", "shopping_admin/top-term", "map/hours")
"""The others are for the thorough run: a minute of contents and draws."""
COMMON = ("1", "2", "3", "1, 1", "1, 2", "1, 1, 1", "yes", "no")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in QUICK else pytest.mark.thorough) for name in TEMPLATES]
)
def test_no_constant_answer_passes_often(name: str) -> None:
    template = TEMPLATES[name]
    answers = set(COMMON)
    asked: list[list[AnswerCheck]] = []
    for number in range(DRAWS):
        spec = drawn_task(template, 0, number).spec
        assert spec is not None
        checks = [check for check in spec.checks if isinstance(check, AnswerCheck)]
        asks_for_more = len(spec.checks) > len(checks) + 1 or template.url(spec.slots) is not None
        if not checks or asks_for_more:
            pytest.skip("an answer alone never passes: a page or a change is asked for")
        asked.append(checks)
        assert isinstance(template, TableTemplate)
        answers.add(", ".join(written(kind, spec.slots[slot]) for kind, slot in template.answers))
    passed = {
        answer: sum(all(check_answer(one, answer).score for one in checks) for checks in asked) for answer in answers
    }
    assert max(passed.values()) <= DRAWS // 10, max(passed.items(), key=lambda pair: pair[1])
