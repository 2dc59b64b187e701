"""Countdown: reach the target with the given numbers, each used exactly once, and the four operations.

One answer an episode: 1 if it is right, 0.1 if it uses the right numbers but misses the target, 0 otherwise.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate, permutations
from operator import add, mul, sub, truediv
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from pydantic import Field, model_validator

from oneiro.runtime.errors import OneiroError
from oneiro.worlds.base import Step, World, WorldConfig, draw_level, level_key
from oneiro.worlds.levels import read_rows

FORMAT_REWARD = 0.1  # for an expression that uses the numbers rightly and misses the target
CLOSE = Fraction(1, 100_000)
"""A value this near the target counts as the target, as published."""
FEWEST, MOST, LARGEST = 2, 5, 10**9 - 1
"""What a task may ask for: more numbers could not be solved at once, larger ones would not be read in an answer."""
TRIES = 100
"""Random combinations tried for a target within range before the level is drawn anew."""


class CountdownConfig(WorldConfig):
    """Settings of the game."""

    max_actions: int = Field(default=1, ge=1)
    fewest: int = Field(default=3, ge=FEWEST, le=MOST)
    """Fewest numbers given."""
    most: int = Field(default=4, ge=FEWEST, le=MOST)
    """Most numbers given."""
    largest: int = Field(default=99, ge=2, le=10_000)
    """Largest number given, and largest target."""
    operations: Literal["+-", "+-*/"] = "+-*/"
    """The operations levels are made with; answers may use all four."""
    path: Path | None = None
    """JSONL (also .gz) or parquet with `nums` and `target`, such as Countdown-Tasks-3to4; made-up tasks without."""

    @model_validator(mode="after")
    def _ordered(self) -> CountdownConfig:
        if self.fewest > self.most:
            raise ValueError(f"fewest ({self.fewest}) is more than most ({self.most})")
        return self


@dataclass(frozen=True)
class CountdownTask:
    """Numbers and what to make of them."""

    numbers: tuple[int, ...]
    target: int
    solution: str | None = field(default=None, compare=False)
    """An expression that makes the target, where the task was made from one."""

    @property
    def key(self) -> str:
        """The order of the numbers makes no new task."""
        return level_key(f"countdown {sorted(self.numbers)} {self.target}")


class Countdown(World):
    """One task, one answer."""

    name = "countdown"
    Config = CountdownConfig
    variants: ClassVar = {"three": {"most": 3}, "plus-minus": {"operations": "+-"}}
    config: CountdownConfig

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        self.begin(seed, options)
        self.task, key = draw_level(self.name, self.seed, self.split, self._draw, lambda task: task.key)
        self.solved = False
        return self.render(), {"key": key}

    def step(self, action: str) -> Step:
        if self.over:
            return self.ended(success=self.solved)
        written = parse(action)
        if written is None:
            return self.outcome(0.0, valid=False, effective=False)
        fair = sorted(written.numbers) == sorted(self.task.numbers)
        hit = written.value is not None and abs(written.value - self.task.target) < CLOSE
        self.solved = fair and hit
        reward = 1.0 if self.solved else FORMAT_REWARD if fair else 0.0
        return self.outcome(reward, done=True, success=self.solved, effective=True)

    def render(self, view: str | None = None) -> str:
        return f"Target: {self.task.target}, numbers: {', '.join(str(number) for number in self.task.numbers)}"

    def parse(self, text: str, view: str | None = None) -> CountdownTask | None:
        target, separator, numbers = text.removeprefix("Target: ").partition(", numbers: ")
        parts = [target, *numbers.split(", ")]
        if (
            not separator
            or len(parts) > 10
            or not all(part.isascii() and part.isdigit() and len(part) < 10 for part in parts)
        ):
            return None
        task = CountdownTask(tuple(int(part) for part in parts[1:]), int(target))
        return task if text.startswith("Target: ") else None

    @property
    def state(self) -> CountdownTask:
        return self.task

    @property
    def instruction(self) -> str:
        tries = self.config.max_actions
        answers = "one answer" if tries == 1 else f"{tries} attempts at an answer that can be read"
        return (
            "Make the target out of the numbers: write one expression that uses every number exactly once, with "
            "+, -, *, / and brackets.\n"
            f"Actions: an expression, for example (3 + 5) * 2. You have {answers}."
        )

    def random_action(self, rng: np.random.Generator) -> str:
        """The numbers in random order with random operations between them, read from the left."""
        numbers = [str(number) for number in rng.permutation(self.task.numbers).tolist()]
        text = numbers[0]
        for number in numbers[1:]:
            text = f"({text} {'+-*/'[int(rng.integers(4))]} {number})"
        return text

    def ceiling(self) -> float:
        return float(not self.over and self.oracle() is not None)

    def oracle(self) -> str | None:
        return self.task.solution or solve(self.task.numbers, self.task.target)

    def _draw(self, rng: np.random.Generator) -> CountdownTask | None:
        if self.config.path is not None:
            tasks = tasks_in(self.config.path)
            return tasks[int(rng.integers(len(tasks)))]
        for _ in range(TRIES):
            count = int(rng.integers(self.config.fewest, self.config.most + 1))
            numbers = tuple(rng.integers(1, self.config.largest + 1, count).tolist())
            task = make_task(rng, numbers, self.config.operations)
            if task is not None and 1 <= task.target <= self.config.largest:
                return task
        return None


def make_task(rng: np.random.Generator, numbers: tuple[int, ...], operations: str) -> CountdownTask | None:
    """A task these numbers can solve, by combining random pairs until one is left; None if that is not whole."""
    left = [(Fraction(number), str(number)) for number in numbers]
    while len(left) > 1:
        a, b = (left.pop(int(rng.integers(len(left)))) for _ in range(2))
        operation = operations[int(rng.integers(len(operations)))]
        if operation == "/" and not b[0]:
            return None
        left.append(_combine(a, b, operation))
    value, shown = left[0]
    return CountdownTask(numbers, int(value), shown) if value.denominator == 1 else None


@lru_cache(maxsize=4096)
def solve(numbers: tuple[int, ...], target: int) -> str | None:
    """An expression that makes the target, or None: every pair, every operation, down to one number."""

    def search(left: list[tuple[Fraction, str]]) -> str | None:
        if len(left) == 1:
            return left[0][1] if left[0][0] == target else None
        for (i, a), (j, b) in permutations(enumerate(left), 2):
            rest = [item for k, item in enumerate(left) if k not in (i, j)]
            for operation in "+-*/":
                if (operation in "+*" and i > j) or (operation == "/" and not b[0]):
                    continue
                if (solution := search([*rest, _combine(a, b, operation)])) is not None:
                    return solution
        return None

    return search([(Fraction(number), str(number)) for number in numbers])


@lru_cache(maxsize=8)
def tasks_in(path: Path) -> list[CountdownTask]:
    """The tasks of a file."""
    try:
        tasks = [_task(row["nums"], row["target"]) for row in read_rows(path)]
    except (KeyError, TypeError, ValueError) as error:
        raise OneiroError(
            f"{path}: every row needs `nums`, {FEWEST} to {MOST} whole numbers from 1 to {LARGEST:,}, and a whole "
            f"number `target` ({error!r})"
        ) from error
    if not tasks:
        raise OneiroError(f"{path} holds no tasks")
    return tasks


def _task(numbers: Sequence[Any], target: Any) -> CountdownTask:
    """A row of a file as a task that can be asked, answered and solved in a moment."""
    whole = tuple(int(number) for number in numbers)
    if whole != tuple(numbers) or int(target) != target:
        raise ValueError(f"{numbers} and {target} are not all whole")
    if not FEWEST <= len(whole) <= MOST or not 1 <= min(whole) <= max(whole) <= LARGEST:
        raise ValueError(f"{len(whole)} numbers, {whole[:MOST]}")
    return CountdownTask(whole, int(target))


def _combine(a: tuple[Fraction, str], b: tuple[Fraction, str], operation: str) -> tuple[Fraction, str]:
    """Two values with their expressions as one."""
    apply = {"+": add, "-": sub, "*": mul, "/": truediv}[operation]
    return apply(a[0], b[0]), f"({a[1]} {operation} {b[1]})"


# What a model wrote, read safely --------------------------------------------------------------------------------------

# Four operations on whole numbers, exact, bounded in length and size. Python's own parser reads the text, nothing is
# evaluated as code: any string gives an `Expression` or None.

MAX_EXPRESSION_CHARS = 300
"""Anything longer is no expression: parsing stays bounded, whatever a model writes."""
MAX_DIGITS = 9
MAX_NESTING = 40
"""Brackets inside one another, and signs in a row: Python's own limits differ between versions."""

_WRITTEN = re.compile(r"[-+*/() 0-9]+")
_TOO_LONG = re.compile(rf"[0-9]{{{MAX_DIGITS + 1}}}|(?:- ?){{{MAX_NESTING + 1}}}")
_LEADING_ZEROS = re.compile(r"(?<![0-9])0+(?=[0-9])")
"""Python takes `07` for a mistake."""
_SPELLINGS = str.maketrans({"×": "*", "÷": "/", "−": "-", "–": "-", "·": "*", "[": "(", "]": ")"})
_OPERATIONS: dict[type[ast.operator], Callable[[Fraction, Fraction], Fraction]] = {
    ast.Add: add,
    ast.Sub: sub,
    ast.Mult: mul,
    ast.Div: truediv,
}


class Expression(NamedTuple):
    """What was written: its value (None after a division by zero) and the numbers in it."""

    value: Fraction | None
    numbers: tuple[int, ...]


def parse(text: str) -> Expression | None:
    """Read `(3 + 5) * 2`; `= 16` at the end is allowed and ignored. None if it is no expression."""
    if len(text) > MAX_EXPRESSION_CHARS:
        return None
    body, _, claim = text.translate(_SPELLINGS).partition("=")
    if claim and not re.fullmatch(r"\s*-?[0-9./]*\s*", claim):
        return None
    body = " ".join(body.split())
    if not _WRITTEN.fullmatch(body) or _TOO_LONG.search(body):
        return None
    if max(accumulate((char == "(") - (char == ")") for char in body)) > MAX_NESTING:
        return None
    try:
        tree = ast.parse(_LEADING_ZEROS.sub("", body), mode="eval")
        value = _value(tree.body)
    except (SyntaxError, _Malformed):
        return None
    return Expression(value, tuple(map(int, re.findall(r"[0-9]+", body))))


class _Malformed(Exception):
    """Python, and no expression of this game: `2 ** 3`, `3(4)`, `+3`."""


def _value(node: ast.expr) -> Fraction | None:
    """None once something was divided by zero."""
    match node:
        case ast.Constant(value=int(number)):
            return Fraction(number)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            value = _value(operand)
            return None if value is None else -value
        case ast.BinOp(left=left, op=operator, right=right) if type(operator) in _OPERATIONS:
            one, other = _value(left), _value(right)
            if one is None or other is None or (isinstance(operator, ast.Div) and not other):
                return None
            return _OPERATIONS[type(operator)](one, other)
    raise _Malformed
