"""What a predictor is: a world model as a task with a verifiable answer; and a trained one in the place of a world.

A predictor turns a case (a state and action with their true outcome) into a prompt, reads whatever a model answers, and
says how right it is. It holds no model and learns nothing: the same task serves SFT (`prompt` + `target`), RL (`prompt`
+ `reward`) and evaluation (`metrics`), and its `baselines` are the rows that every table must show.

An answer is a string for language models and a row of token ids for video models.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import ClassVar, Generic, TypeVar

from oneiro.worlds.base import World

CaseT = TypeVar("CaseT")
PromptT = TypeVar("PromptT")
AnswerT = TypeVar("AnswerT")
PredictionT = TypeVar("PredictionT")
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


class Predictor(ABC, Generic[CaseT, PromptT, AnswerT, PredictionT]):
    """A prediction task. All methods are pure: the same arguments give the same result, in any process."""

    name: ClassVar[str]

    @property
    @abstractmethod
    def reward_range(self) -> tuple[float, float]:
        """The least and the greatest reward any answer can get."""

    @abstractmethod
    def prompt(self, case: CaseT) -> PromptT:
        """What the model is given. Never depends on the true outcome."""

    @abstractmethod
    def target(self, case: CaseT) -> AnswerT:
        """The right answer as a model should give it: what SFT trains on."""

    @abstractmethod
    def parse(self, answer: AnswerT, case: CaseT) -> PredictionT | Malformed:
        """Read an answer. Total: any answer gives a prediction or a typed flaw, never an exception, in bounded time."""

    @abstractmethod
    def reward(self, answer: AnswerT, case: CaseT) -> Reward:
        """The verifiable reward of an answer, inside `reward_range`."""

    @abstractmethod
    def metrics(self, answer: AnswerT, case: CaseT) -> dict[str, float]:
        """What evaluation reports of an answer; fixed, whatever the training reward is."""

    @abstractmethod
    def baselines(self, train: Sequence[CaseT] = ()) -> dict[str, Callable[[CaseT], AnswerT]]:
        """Answers that need no model, by name: the trivial rows and the ceiling of every table.

        With training cases there is a lookup among them: the outcome of the nearest one, which is memory and no model.
        """


class LearnedWorld(World):
    """A trained predictor behind the `World` interface: starts in a true state, and every step is a prediction.

    Agents, planners, RL and evaluators use it like any world. Nobody knows the best action in here, so there is no
    oracle and no ceiling. A prediction that cannot be read, or that describes no possible state, changes nothing;
    `info["malformed"]` says so. No prediction makes the world raise.
    """

    def oracle(self) -> str | None:
        return None

    @property
    def has_oracle(self) -> bool:
        return False

    def ceiling(self) -> float | None:
        return None
