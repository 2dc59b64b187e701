"""Our own tasks' answers: one value, read as its type."""

from __future__ import annotations

import re

from oneiro_web.errors import WebError
from oneiro_web.grading.result import Checked, shown
from oneiro_web.grading.values import begins_na, close, counts, is_na, names, read_one, words_of
from oneiro_web.tasks import AnswerCheck

MOST_WORDS = 50
"""Words of an answer in which a value is looked for. Whoever pastes a page has not answered."""
_LABEL = re.compile(r"\s*[^\W\d]+(?: [^\W\d]+){0,2}:(?=\s)")
"""`Color:` before an answer."""
_PHONE = re.compile(r"[\d\s()+-]{7,}")


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
    if begins_na(answer) and not begins_na(str(expected)):
        return False
    unlabelled = _LABEL.sub("", answer, count=1)
    if check.type == "names":
        return _lists(check, answer) or _lists(check, unlabelled)
    if check.type == "text":
        return _words(str(expected)) in (_words(answer), _words(unlabelled))
    if len(answer.split()) > MOST_WORDS:
        return False
    value = expected if isinstance(expected, bool | int | float) else read_one(check.type, str(expected))
    if value is None:
        raise WebError(f"a task expects {expected!r}, which is no {check.type}")
    given_value = read_one(check.type, answer)
    return given_value is not None and close(given_value, value, check.tolerance)


def _lists(check: AnswerCheck, answer: str) -> bool:
    listed = check.expected if isinstance(check.expected, tuple) else (check.expected,)
    wanted, given = [part for one in listed for part in names(str(one))], names(answer)
    if not check.ordered:
        return len(given) == len({*given}) and {*given} == {*wanted}
    if all(one.isdigit() for one in wanted) and len(answer.split()) <= MOST_WORDS:  # `1 open, 3 closed`
        return counts(answer) == [float(one) for one in wanted]
    return given == wanted


def _words(text: str) -> list[str]:
    """The words of a text; of a phone number its digits, however they are set."""
    return [re.sub(r"\D", "", text)] if _PHONE.fullmatch(text.strip()) else words_of(text)
