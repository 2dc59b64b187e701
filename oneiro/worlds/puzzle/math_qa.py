"""Math questions with a checked answer, and more than one try: reward 1, 1/2, 1/4, ... for the first right one.

Questions come from GSM8K or MetaMathQA files; without a file they are made up. A wrong answer is said to be wrong, no
more.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from pydantic import Field

from oneiro.runtime.errors import OneiroError
from oneiro.worlds.base import Step, World, WorldConfig, draw_level, level_key
from oneiro.worlds.levels import read_rows

METAMATH_MARK = "The answer is:"
GSM8K_MARK = "####"


class MathConfig(WorldConfig):
    """Settings of the questions."""

    max_actions: int = Field(default=5, ge=1)
    path: Path | None = None
    """GSM8K (`question`, `answer` with `#### n`) or MetaMathQA (`query`, `response`); made-up questions without."""
    eval_path: Path | None = None
    """Held-out rows for the `eval` split; without, the split is by content, each question in one half only."""


@dataclass(frozen=True)
class MathQuestion:
    """A question and its right answer."""

    text: str
    label: str
    origin: str
    """The question it was rephrased from, or itself: rephrasings never straddle the splits."""

    @property
    def key(self) -> str:
        return level_key(f"math {self.text}", self.origin)


class MathQA(World):
    """One question."""

    name = "math"
    Config = MathConfig
    variants: ClassVar = {"one-try": {"max_actions": 1}}
    config: MathConfig

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        self.begin(seed, options)
        held_out = self.split == "eval" and self.config.eval_path is not None
        source = self.config.eval_path if held_out else self.config.path
        # A file kept for evaluation is evaluation as a whole, and the other file training as a whole.
        split = None if self.config.eval_path is not None else self.split

        def draw_question(rng: np.random.Generator) -> MathQuestion:
            if source is None:
                return make_question(rng)
            questions = questions_in(source)
            return questions[int(rng.integers(len(questions)))]

        self.question, key = draw_level(self.name, self.seed, split, draw_question, lambda question: question.key)
        self.verdict, self.solved = "", False
        return self.render(), {"key": key}

    def step(self, action: str) -> Step:
        if self.over:
            return self.ended(success=self.solved)
        self.solved = right(action, self.question.label)
        valid = has_answer(action, self.question.label)
        self.verdict = "Correct." if self.solved else "That is not the answer. Think again."
        reward = 0.5**self.taken if self.solved else 0.0
        return self.outcome(reward, done=self.solved, success=self.solved, valid=valid, effective=valid)

    def render(self, view: str | None = None) -> str:
        return f"{self.question.text}\n{self.verdict}" if self.verdict else self.question.text

    @property
    def instruction(self) -> str:
        tries = self.config.max_actions
        more = f" You have {tries} tries; each wrong one halves the reward." if tries > 1 else " You have one try."
        return f"Solve the problem.\nActions: the final answer alone, for example 42.{more}"

    def random_action(self, rng: np.random.Generator) -> str:
        """A whole number up to 100."""
        return str(int(rng.integers(101)))

    def ceiling(self) -> float:
        return float(not self.over or self.solved)

    def oracle(self) -> str | None:
        return None if self.over else self.question.label


@lru_cache(maxsize=8)
def questions_in(path: Path) -> list[MathQuestion]:
    """The questions of a file, read once for all worlds."""
    questions = [question for row in read_rows(path) if (question := _question(row)) is not None]
    if not questions:
        raise OneiroError(
            f"{path} holds no question with `question`/`answer` (GSM8K) or `query`/`response` (MetaMathQA)"
        )
    return questions


def _question(row: dict[str, Any]) -> MathQuestion | None:
    """A row of either file as a question; None if it has no marked answer."""
    text, solution = str(row.get("question", row.get("query", ""))), str(row.get("answer", row.get("response", "")))
    for mark in (GSM8K_MARK, METAMATH_MARK):
        _, separator, label = solution.rpartition(mark)
        if separator and text.strip() and label.strip():
            return MathQuestion(text.strip(), label.strip(), str(row.get("original_question", text)).strip())
    return None


def make_question(rng: np.random.Generator) -> MathQuestion:
    """A small word problem with one or two steps."""
    a, b, c = (int(n) for n in rng.integers(2, 50, 3))
    name = str(rng.choice(["Ada", "Ben", "Chloe", "David", "Emma", "Felix"]))
    thing = str(rng.choice(["apples", "books", "coins", "marbles", "pencils", "shells"]))
    text, value = [
        (f"{name} has {a} {thing} and finds {b} more. How many {thing} does {name} have now?", a + b),
        (f"{name} has {a + b} {thing} and gives away {a}. How many {thing} are left?", b),
        (f"{name} packs {a} boxes with {b} {thing} each. How many {thing} is that?", a * b),
        (f"{name} packs {a} boxes with {b} {thing} each and has {c} left over. How many {thing} is that?", a * b + c),
        (f"{name} shares {a * b} {thing} equally among {a} friends. How many does each get?", b),
        (f"{name} buys {a} {thing} on Monday, {b} on Tuesday and {c} on Friday. How many is that?", a + b + c),
    ][int(rng.integers(6))]
    return MathQuestion(text, str(value), text)


# Answers compared by what they mean: numbers as numbers, everything else as text --------------------------------------

TAIL_CHARS = 2000
"""Characters that are read from the end of a reply: the final answer stands there, and reading stays bounded."""

_WHOLE = r"[0-9]{1,3}(?:,[0-9]{3}){1,5}|[0-9]{1,20}"
_NUMBER = re.compile(
    rf"(?=[-−$€£.\\0-9])(?P<sign>[-−])?\s?[$€£]?\s?(?:"
    rf"(?:(?P<before>{_WHOLE})\s?)?\\[dt]?frac\{{(?P<top>-?[0-9]{{1,12}})\}}\{{(?P<bottom>[0-9]{{1,12}})\}}"
    rf"|(?P<mixed>{_WHOLE})\s(?P<above>[0-9]{{1,12}})\s?/\s?(?P<below>[0-9]{{1,12}})"
    rf"|(?P<whole>{_WHOLE})?(?P<part>\.[0-9]{{1,20}})?(?:\s?/\s?(?P<over>[0-9]{{1,12}}))?)"
)
_BOXED = re.compile(r"\\boxed\{((?:[^{}]|\{[^{}]*\}){1,200})\}")
_STATED = re.compile(r"answer(?: is|:)\s*:?\s*", re.IGNORECASE)


def number(text: str) -> Fraction | None:
    """The number a text is: `1,000`, `-3.50`, `$18`, `3/4`, `\\frac{3}{4}`, `1 1/2`, `50%`; None if it is none."""
    body = text.strip().removesuffix("%").removesuffix("\\").strip().strip("$").strip()
    match = _NUMBER.fullmatch(body) if len(body) <= 100 else None
    return _value(match) if match else None


def final(text: str) -> str:
    """The part of a reply that is its answer: the last box, else what follows the last `answer is`, else all of it."""
    tail = text[-TAIL_CHARS:]
    if boxes := _BOXED.findall(tail):
        return boxes[-1].strip()
    stated = list(_STATED.finditer(tail))
    return tail[stated[-1].end() :].strip().rstrip(".") if stated else tail.strip()


def last_number(text: str) -> Fraction | None:
    """The answer of a reply as a number: the answer itself if it is one, else the last number in it.

    Nothing is computed: the last number of `15 - 7` is 7.
    """
    answer = final(text)
    if (whole := number(answer.rstrip("."))) is not None:
        return whole
    last = None
    for match in _NUMBER.finditer(answer):
        value = _value(match)
        if value is None and match["mixed"] and int(match["below"]):  # two numbers side by side, as in `12 15/3`
            value = Fraction(int(match["above"]), int(match["below"]))
        if value is not None:
            last = abs(value) if match["sign"] and not _is_sign(answer, match) else value
    return last


def right(reply: str, label: str) -> bool:
    """Whether a reply gives the labelled answer: as a number if the label is one, else without case and space."""
    expected = number(label)
    if expected is not None:
        return last_number(reply) == expected
    return _squeeze(final(reply)) == _squeeze(label)


def has_answer(reply: str, label: str) -> bool:
    """Whether a reply gives any answer of the label's kind."""
    return last_number(reply) is not None if number(label) is not None else bool(_squeeze(final(reply)))


def _is_sign(text: str, match: re.Match[str]) -> bool:
    """Whether the minus before a number belongs to it, and is neither a subtraction, a range, nor a dash."""
    at = match.start("sign")
    near = text[:at].rstrip()[-1:]
    if near.isdigit() or near in (")", "}", "]", "%"):
        return False
    adjoins = text[at - 1 : at] if at else ""
    spaced = text[at + 1 : at + 2].isspace()
    return not (near if spaced else adjoins).isalnum()


def _value(match: re.Match[str]) -> Fraction | None:
    sign = -1 if match["sign"] else 1
    for whole, top, bottom in (("before", "top", "bottom"), ("mixed", "above", "below")):
        if match[top]:
            return _fraction(sign, match[whole], int(match[top]), int(match[bottom]))
    if not match["whole"] and not match["part"]:
        return None
    value = Fraction(_integer(match["whole"] or "0"))
    if match["part"]:
        value += Fraction(int(match["part"][1:]), 10 ** (len(match["part"]) - 1))
    if match["over"]:
        if not int(match["over"]):
            return None
        value /= int(match["over"])
    return sign * value


def _fraction(sign: int, whole: str | None, top: int, bottom: int) -> Fraction | None:
    """A fraction, or a mixed number: then its fraction is below 1."""
    if not bottom or (whole and not 0 <= top < bottom):
        return None
    return sign * (_integer(whole or "0") + Fraction(top, bottom))


def _integer(digits: str) -> int:
    return int(digits.replace(",", ""))


def _squeeze(text: str) -> str:
    return "".join(text.lower().split()).strip("$.")
