"""What a predictor is: a world model as a task with a verifiable answer.

A predictor turns a case (a situation with its true outcome) into a prompt, reads whatever a model writes in reply, and
says how right it is. It holds no model and learns nothing: the same task serves SFT (`prompt` + `target`),
reinforcement learning (`prompt` + `reward`) and evaluation (`metrics`), and its `baselines` are the rows every table
must show.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, ClassVar, Generic, TypeVar

Case = TypeVar("Case")
Prediction = TypeVar("Prediction")
Messages = list[dict[str, str]]
"""A conversation as chat templates take it: `[{"role": "user", "content": ...}]`."""


class Flaw(StrEnum):
    """Why an answer could not be read."""

    EMPTY = "empty"
    """It holds nothing that could be an answer."""
    BROKEN = "broken"
    """It starts an answer that cannot be read to its end."""
    SHAPE = "shape"
    """It can be read and is not of the form that was asked for."""
    CONFLICT = "conflict"
    """It says two different things about the same object."""


@dataclass(frozen=True, slots=True)
class Malformed:
    """An answer that is no prediction."""

    flaw: Flaw
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Reward:
    """A reward and the terms it is the sum of."""

    value: float
    terms: Mapping[str, float] = field(default_factory=dict)


class Predictor(ABC, Generic[Case, Prediction]):
    """A prediction task. All methods are pure: the same arguments give the same result, in any process."""

    name: ClassVar[str]

    @property
    @abstractmethod
    def reward_range(self) -> tuple[float, float]:
        """The least and the greatest reward any answer can get."""

    @abstractmethod
    def prompt(self, case: Case) -> Messages:
        """What the model is asked. Never depends on the true outcome."""

    @abstractmethod
    def target(self, case: Case) -> str:
        """The right answer as a model should write it: what SFT trains on. It earns the greatest reward."""

    @abstractmethod
    def parse(self, text: str, case: Case) -> Prediction | Malformed:
        """Read an answer. Total: any string gives a prediction or a typed flaw, never an exception, in bounded time."""

    @abstractmethod
    def reward(self, text: str, case: Case) -> Reward:
        """The verifiable reward of an answer, inside `reward_range`."""

    @abstractmethod
    def metrics(self, text: str, case: Case) -> dict[str, float]:
        """What evaluation reports of an answer; fixed, whatever the training reward is. 1 is right, 0 is wrong."""

    @abstractmethod
    def baselines(self) -> dict[str, Callable[[Case], Any]]:
        """Answers that need no model, by name: the trivial rows and the ceiling of every table."""
