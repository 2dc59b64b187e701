"""A predictor at work: batches of (state, action) in, predicted next states out.

Planners and learned worlds ask this one interface, whatever a state is: the text of a grid, the objects of a text game,
the tree of a web page. `Cached` remembers answers, so that a pair is predicted once.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from oneiro.predictors.base import Malformed
from oneiro.runtime import distributed, seeds

StateT = TypeVar("StateT")


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
        """A state for people."""
        return str(state)


class Cached(Dynamics[StateT]):
    """Dynamics that remember every answer until `forget`; `calls` and `predictions` count what was really asked."""

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

    def forget(self) -> None:
        """After the model has learned, earlier answers are not its own any more."""
        self._known.clear()

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
