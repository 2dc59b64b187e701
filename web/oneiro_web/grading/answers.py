"""Our own tasks' answers: one value, read as its type."""

from __future__ import annotations

from oneiro_web.errors import WebError
from oneiro_web.grading.result import Checked, shown
from oneiro_web.grading.values import close, is_na, names, read_one, words_of
from oneiro_web.tasks import AnswerCheck


def check_answer(check: AnswerCheck, answer: str | None) -> Checked:
    """Whether the answer is the expected value."""
    name = f"answer.{check.type}"
    if answer is None or not answer.strip():
        return Checked(name, 0.0, "no answer")
    right = _is_right(check, answer)
    return Checked(name, float(right), f"{shown(answer)} is {'' if right else 'not '}{shown(check.expected)}")


def _is_right(check: AnswerCheck, answer: str) -> bool:
    expected = check.expected
    if check.type == "na":
        return is_na(answer)
    if check.type == "names":
        listed = expected if isinstance(expected, tuple) else (expected,)
        wanted = [part for one in listed for part in names(str(one))]
        given = names(answer)
        return given == wanted if check.ordered else len(given) == len({*given}) and {*given} == {*wanted}
    if check.type == "text":
        return words_of(str(expected)) == words_of(answer)
    value = expected if isinstance(expected, bool | int | float) else read_one(check.type, str(expected))
    if value is None:
        raise WebError(f"a task expects {expected!r}, which is no {check.type}")
    given_value = read_one(check.type, answer)
    return given_value is not None and close(given_value, value, check.tolerance)
