"""The parts of a planner: what it is asked, who proposes and who values, what it may spend, and what it answers.

    propose  n actions in each state, in one call
    predict  what each leads to, in one call a depth (`tasks.dynamics.Dynamics`), every pair once (`Cached`)
    value    of the states reached, in one call
    choose   the action whose future is worth most

Many decisions are made together: the roots of a call share its batches and its cache. Nothing here knows what a state
is. Values are between -1 (lost) and 1 (the goal is reached).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, Literal, Protocol, TypeVar

import numpy as np
from pydantic import Field

from oneiro.recipe import Settings
from oneiro.runtime import seeds
from oneiro.tasks.base import Cached, Dynamics, Imagined

if TYPE_CHECKING:
    from oneiro.episode import Tokens
    from oneiro.sampling.engine import Engine, SamplingSettings

PlannerName = Literal["beam", "mpc"]


class PlannerSettings(Settings):
    """Beam search, or model predictive control (MPC)."""

    name: PlannerName = "beam"
    """`beam`: keep the best states of each depth. `mpc`: improve sampled action sequences (cross-entropy method)."""
    depth: int = Field(8, ge=1)
    """Actions that the planner looks ahead."""
    proposals: int = Field(4, ge=1)
    """Actions tried in a state, at most."""
    width: int = Field(16, ge=1)
    """beam: states kept at each depth."""
    sequences: int = Field(32, ge=1)
    """mpc: sequences in an iteration."""
    iterations: int = Field(3, ge=1)
    """mpc: rounds of sampling; each round after the first starts from the best sequences of the one before."""
    elites: int = Field(4, ge=1)
    """mpc: sequences that a round hands to the next."""
    keep: float = Field(0.7, ge=0, le=1)
    """mpc: chance that an action of a new sequence is taken from an elite and not proposed anew."""
    outcomes: int = Field(1, ge=1)
    """Predictions of each action. 1: the most likely outcome, for deterministic worlds. More: samples, whose values are
    averaged, for stochastic worlds."""
    discount: float = Field(0.95, gt=0, le=1)
    """What a value is worth one action later."""
    prior: float = Field(0.0, ge=0)
    """beam: what follows an action is worth less by its weight, raised to this power: with values and weights that are
    probabilities, the search looks for the likeliest success. 0: weights only decide between equals."""
    max_tokens: int | None = Field(None, ge=1)
    """Tokens that one decision may sample, over predictions, proposals and judgements; None: no limit."""


StateT = TypeVar("StateT")

BEST, WORST = 1.0, -1.0
"""What reaching the goal is worth, and what a branch is worth that ends in an unreadable prediction."""


@dataclass(frozen=True, slots=True)
class Root(Generic[StateT]):
    """A decision to be made: where, and for which task (anything hashable that names a goal; None: the only one)."""

    state: StateT
    task: Hashable = None


@dataclass(frozen=True, slots=True)
class Proposed:
    """Actions worth trying in a state, the best first, with a weight each; and the tokens it took to name them."""

    actions: tuple[str, ...]
    weights: tuple[float, ...]
    tokens: int = 0

    @classmethod
    def from_votes(cls, votes: Counter[str], replies: Sequence[Tokens], most: int) -> Proposed:
        """The actions that most of the replies name; a weight is the share of replies."""
        ranked = votes.most_common(most)
        shares = tuple(count / len(replies) for _, count in ranked)
        return cls(tuple(action for action, _ in ranked), shares, sum(map(len, replies)))


@dataclass(frozen=True, slots=True)
class Judged:
    """What a state is worth, and whether the episode ends there."""

    value: float
    done: bool = False
    tokens: int = 0


class Propose(Protocol[StateT]):
    """Who names actions."""

    def __call__(self, roots: Sequence[Root[StateT]], most: int, seed: int) -> list[Proposed]:
        """At most so many actions for each state; all states in one call."""


class Value(Protocol[StateT]):
    """Who says what states are worth."""

    def __call__(self, roots: Sequence[Root[StateT]]) -> list[Judged]:
        """One judgement for each state under its task; all in one call."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """An action at the root: what is predicted of it, and what its future is worth."""

    action: str
    predicted: str | None
    """The predicted next state for people; None: no prediction could be read."""
    value: float
    weight: float = 0.0


@dataclass(slots=True)
class Decision:
    """What a planner chose, and what it looked at."""

    action: str | None
    """None: nothing was proposed, or the budget allowed no look at all and nobody proposed."""
    value: float
    candidates: list[Candidate]
    plan: tuple[str, ...]
    """The actions that the choice begins, as far as it looks ahead."""
    tokens: int
    predictions: int
    ended: str
    """Why the search ended: `goal`, `depth`, `exhausted` or `tokens`."""


class Planner(ABC, Generic[StateT]):
    """Chooses actions by looking ahead in a model."""

    def __init__(
        self, dynamics: Dynamics[StateT], propose: Propose[StateT], value: Value[StateT], settings: PlannerSettings
    ) -> None:
        self.dynamics = dynamics if isinstance(dynamics, Cached) else Cached(dynamics)
        self.propose, self.value, self.settings = propose, value, settings
        self.judged: dict[tuple[Hashable, Hashable], Judged] = {}
        """What states are worth, by state and task."""

    @abstractmethod
    def plan(self, roots: Sequence[Root[StateT]], seed: int = 0) -> list[Decision]:
        """One decision for each root."""


class Meter(Generic[StateT]):
    """Asks the model, proposer and value of a planner, and keeps each decision inside its budget."""

    def __init__(self, planner: Planner[StateT], roots: Sequence[Root[StateT]], seed: int) -> None:
        self.planner, self.roots, self.seed = planner, roots, seed
        self.settings = planner.settings
        self.tokens = [0] * len(roots)
        self.predictions = [0] * len(roots)
        self.ended = [""] * len(roots)
        self._calls = 0

    def open(self, root: int) -> bool:
        """Whether a decision may spend more; says why it ended where it may not."""
        most = self.settings.max_tokens
        if not self.ended[root] and most is not None and self.tokens[root] >= most:
            self.ended[root] = "tokens"
        return not self.ended[root]

    def propose(self, states: Sequence[tuple[int, StateT]]) -> list[Proposed]:
        """Actions for states, each asked for a decision."""
        proposals = self.planner.propose(self._at(states), self.settings.proposals, self._next_seed()) if states else []
        for (root, _), proposed in zip(states, proposals, strict=True):
            self.tokens[root] += proposed.tokens
        return proposals

    def value(self, states: Sequence[tuple[int, StateT]]) -> list[Judged]:
        """What states are worth for the decisions that ask; each is judged once for a task, in one call."""
        known, key = self.planner.judged, self.planner.dynamics.key
        keys = [(key(state), self.roots[root].task) for root, state in states]
        # Reversed, so that of several decisions that ask for one state the first pays.
        new = {pair: place for place, pair in reversed(list(enumerate(keys))) if pair not in known}
        places = sorted(new.values())
        if places:
            judgements = self.planner.value(self._at([states[place] for place in places]))
            for place, judged in zip(places, judgements, strict=True):
                known[keys[place]] = judged
                self.tokens[states[place][0]] += judged.tokens
        return [known[pair] for pair in keys]

    def predict(self, requests: Sequence[tuple[int, StateT, str]]) -> list[list[Imagined[StateT]] | None]:
        """The outcomes of actions, in one call of the model; None for what a decision's tokens do not reach to.

        Who asks first for a pair that is not known yet pays for it.
        """
        dynamics, outcomes = self.planner.dynamics, self.settings.outcomes
        new: dict[tuple[Hashable, str], int] = {}
        allowed: list[int] = []
        left = [self._affordable(root) for root in range(len(self.roots))]
        for place, (root, state, action) in enumerate(requests):
            pair = dynamics.key(state), action
            if pair not in new and not dynamics.knows(state, action, outcomes):
                # What would overdraw the budget is not asked for; what is already known costs nothing and still is.
                if left[root] < outcomes:
                    continue
                left[root] -= outcomes
                new[pair] = root
            allowed.append(place)
        pairs = [(requests[place][1], requests[place][2]) for place in allowed]
        predictions = dynamics.predict(pairs, outcomes, self._next_seed()) if pairs else []
        answers: list[list[Imagined[StateT]] | None] = [None] * len(requests)
        for place, imagined in zip(allowed, predictions, strict=True):
            answers[place] = imagined
            payer = new.pop((dynamics.key(requests[place][1]), requests[place][2]), None)
            if payer is not None:
                self.tokens[payer] += sum(outcome.tokens for outcome in imagined)
                self.predictions[payer] += len(imagined)
        return answers

    def _affordable(self, root: int) -> float:
        """Predictions that fit into what is left of a decision's tokens, if they cost what earlier ones did."""
        most, made = self.settings.max_tokens, sum(self.predictions)
        if most is None:
            return float("inf")
        # The first predictions have no price yet: they are taken for cheap, and the next look corrects it.
        mean = sum(self.tokens) / made if made else 1.0
        return max(0.0, most - self.tokens[root]) / max(1.0, mean)

    def _at(self, states: Sequence[tuple[int, StateT]]) -> list[Root[StateT]]:
        return [Root(state, self.roots[root].task) for root, state in states]

    def _next_seed(self) -> int:
        self._calls += 1
        return seeds.derive(self.seed, "call", self._calls)


def best_of(candidates: Sequence[Candidate], rng: np.random.Generator) -> int | None:
    """The place of the candidate of the highest value; of equals the one of the highest weight, then any."""
    if not candidates:
        return None
    value = max(candidate.value for candidate in candidates)
    # Values are sums of discounted floats: equal ones differ in the last bits.
    equal = [place for place, candidate in enumerate(candidates) if candidate.value >= value - 1e-9]
    weight = max(candidates[place].weight for place in equal)
    equal = [place for place in equal if candidates[place].weight >= weight - 1e-9]
    return equal[int(rng.integers(len(equal)))]


# Who names actions: a fixed set, a rule, or a policy that is sampled several times ------------------------------------


@dataclass(frozen=True)
class EveryAction(Generic[StateT]):
    """All actions that `actions` names in a state, up to the planner's limit, with equal weights."""

    actions: Callable[[StateT], Sequence[str]]

    def __call__(self, roots: Sequence[Root[StateT]], most: int, seed: int) -> list[Proposed]:
        named = [tuple(self.actions(root.state))[:most] for root in roots]
        return [Proposed(actions, (1.0,) * len(actions)) for actions in named]


@dataclass(frozen=True)
class PolicyProposals(Generic[StateT]):
    """Actions that a policy samples: `samples` replies to each state in one call of the engine, most frequent first.

    `prompt` puts a state into the policy's words, `read` finds the action in a reply (None: there is none).
    """

    engine: Engine
    sampling: SamplingSettings
    samples: int
    prompt: Callable[[Root[StateT]], Tokens]
    read: Callable[[str], str | None]

    def __call__(self, roots: Sequence[Root[StateT]], most: int, seed: int) -> list[Proposed]:
        language = self.engine.language
        prompts = [self.prompt(root) for root in roots]
        proposed = []
        for replies in self.engine.generate(prompts, self.samples, self.sampling, seed=seed):
            votes = Counter[str]()
            for reply in replies:
                action = self.read(language.text(reply.tokens))
                if action is not None:
                    votes[action] += 1
            proposed.append(Proposed.from_votes(votes, [reply.tokens for reply in replies], most))
        return proposed
