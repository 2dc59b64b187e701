"""What a task is: a world model with a verifiable answer; and a trained one at work, or in the place of a world.

`Predictor` turns a case (a state and action with their true outcome) into a prompt, reads whatever a model answers, and
says how right it is. It holds no model and learns nothing: the same one serves SFT (`prompt` + `target`), RL (`prompt`
+ `reward`) and evaluation (`metrics`), and its `baselines` are the rows that every table must show. Video has a
predictor of its own, which handles many segments at once.

`Dynamics` answers batches of (state, action), for planners and learned worlds, whatever a state is. `LearnedWorld` is a
trained predictor behind the `World` interface.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, ClassVar, Generic, TypeVar

from oneiro.runtime import distributed, plugins, seeds
from oneiro.runtime.errors import OneiroError, nearest
from oneiro.worlds.base import World

CaseT = TypeVar("CaseT")
PromptT = TypeVar("PromptT")
AnswerT = TypeVar("AnswerT")
PredictionT = TypeVar("PredictionT")
StateT = TypeVar("StateT")
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
    def reward_range(self) -> tuple[float, float]:
        """The least and the greatest reward any answer can get."""
        return 0.0, 1.0

    @abstractmethod
    def prompt(self, case: CaseT) -> PromptT:
        """What the model is given. Never depends on the true outcome."""

    @abstractmethod
    def target(self, case: CaseT) -> AnswerT:
        """The right answer as a model should give it: what SFT trains on."""

    def outcome(self, case: CaseT) -> AnswerT:
        """The right answer without the reasons that `target` may begin with."""
        return self.target(case)

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


# At work --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Imagined(Generic[StateT]):
    """One predicted outcome: the next state, or why the answer is none; and the tokens it took."""

    state: StateT | Malformed
    tokens: int = 0


class Dynamics(ABC, Generic[StateT]):
    """What an action leads to, as far as a model knows."""

    @abstractmethod
    def predict(
        self, pairs: Sequence[tuple[StateT, str]], outcomes: int = 1, seed: int = 0
    ) -> list[list[Imagined[StateT]]]:
        """`outcomes` predictions of each pair: one is the most likely outcome, more are samples.

        Total: a prediction that cannot be read is a `Malformed`, never an exception.
        """

    def key(self, state: StateT) -> Hashable:
        """Equal for states that are the same; the state itself where it can be hashed."""
        return state

    def show(self, state: StateT) -> str:
        return str(state)


class Cached(Dynamics[StateT]):
    """Dynamics that remember every answer; `calls` and `predictions` count what was really asked."""

    def __init__(self, inner: Dynamics[StateT], most: int = 1_000_000) -> None:
        self.inner, self.most = inner, most
        self.calls = self.predictions = 0
        self._known: dict[tuple[Hashable, str, int], list[Imagined[StateT]]] = {}

    def key(self, state: StateT) -> Hashable:
        return self.inner.key(state)

    def show(self, state: StateT) -> str:
        return self.inner.show(state)

    def knows(self, state: StateT, action: str, outcomes: int = 1) -> bool:
        return (self.key(state), action, outcomes) in self._known

    def predict(
        self, pairs: Sequence[tuple[StateT, str]], outcomes: int = 1, seed: int = 0
    ) -> list[list[Imagined[StateT]]]:
        """Distinct pairs that are not known yet are asked together, in one call."""
        keys = [(self.key(state), action, outcomes) for state, action in pairs]
        new = {key: pair for key, pair in zip(keys, pairs, strict=True) if key not in self._known}
        if len(self._known) + len(new) > self.most:
            self._known.clear()
            new = dict(zip(keys, pairs, strict=True))
        if new:
            self.calls, self.predictions = self.calls + 1, self.predictions + len(new) * outcomes
            with distributed.local():  # what is new to this rank may be known to another
                answers = self.inner.predict(list(new.values()), outcomes, seed)
            self._known.update(zip(new, answers, strict=True))
        return [self._known[key] for key in keys]


class Shuffled(Dynamics[StateT]):
    """A control: every pair is answered with what the action does in another state, always the same one.

    The predictions are as readable and as varied as the model's own and say nothing about the state that was asked for.
    """

    def __init__(self, inner: Dynamics[StateT], pool: Sequence[StateT], seed: int = 0) -> None:
        self.inner, self.pool, self.seed = inner, list(pool), seed

    def key(self, state: StateT) -> Hashable:
        return self.inner.key(state)

    def show(self, state: StateT) -> str:
        return self.inner.show(state)

    def predict(
        self, pairs: Sequence[tuple[StateT, str]], outcomes: int = 1, seed: int = 0
    ) -> list[list[Imagined[StateT]]]:
        return self.inner.predict([(self._other(state), action) for state, action in pairs], outcomes, seed)

    def _other(self, state: StateT) -> StateT:
        rng, own = seeds.generator(self.seed, "shuffled", repr(self.key(state))), self.key(state)
        for place in rng.permutation(len(self.pool)):
            if self.key(self.pool[place]) != own:
                return self.pool[place]
        return state


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


# By name --------------------------------------------------------------------------------------------------------------

PREDICTORS: dict[str, str] = {
    "grid": "oneiro.tasks.grid:GridPredictor",
    "physics": "oneiro.tasks.rules.physics:PhysicsPredictor",
    "rulebook": "oneiro.tasks.rules.rulebook.predictor:RulebookPredictor",
    "text-game": "oneiro.tasks.textgame.predictor:TextGamePredictor",
    "written-rules": "oneiro.tasks.rules.rulebook.written:WrittenPredictor",
    "web-page": "oneiro.tasks.webpage.predictor:WebPagePredictor",
}
"""Name -> `module:Class` of the predictors that come with the package."""


def names() -> list[str]:
    return sorted(plugins.with_offered("tasks", PREDICTORS))


def predictor_class(name: str) -> type[Predictor[Any, Any, Any, Any]]:
    """The class behind a name."""
    known = plugins.with_offered("tasks", PREDICTORS)
    if name not in known:
        raise OneiroError(f"no predictor is called '{name}'{nearest(name, known)}")
    resolved = plugins.resolve(known[name], f"predictor '{name}'")
    if not (isinstance(resolved, type) and issubclass(resolved, Predictor)):
        raise OneiroError(f"predictor '{name}': {known[name]} is not a Predictor class")
    return resolved
