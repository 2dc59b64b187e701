"""Planners and votes as policies: whatever plays episodes and evaluates agents can use them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from oneiro.agents import reply as replies
from oneiro.agents.game import Game
from oneiro.agents.planning.base import (
    WORST,
    Decision,
    Judged,
    Planner,
    PlannerName,
    PlannerSettings,
    Propose,
    Proposed,
    Root,
    Value,
)
from oneiro.agents.planning.beam import BeamSearch
from oneiro.agents.planning.mpc import ModelPredictiveControl
from oneiro.agents.prompts import DialogueSettings
from oneiro.episode import Episode, Sample
from oneiro.runtime import seeds
from oneiro.tasks.base import Dynamics, Malformed
from oneiro.worlds.base import World

StateT = TypeVar("StateT")

PLANNERS: dict[PlannerName, type[Planner[Any]]] = {"beam": BeamSearch, "mpc": ModelPredictiveControl}


MAX_VETOED = 8
"""Actions among which a veto leaves the next best one."""


def make_planner(dynamics: Any, propose: Any, value: Any, settings: PlannerSettings) -> Planner[Any]:
    return PLANNERS[settings.name](dynamics, propose, value, settings)


def dialogue(max_actions: int, predicts: bool = True) -> DialogueSettings:
    """How planners are asked: a turn for each action, the state and nothing else; the answer may have a prediction."""
    return DialogueSettings(
        context="single", brief=True, world_model=predicts, max_turns=max_actions, actions_per_turn=1
    )


@dataclass
class Spent:
    """What decisions cost, added up."""

    decisions: int = 0
    tokens: int = 0
    predictions: int = 0

    def add(self, tokens: int, predictions: int = 0) -> None:
        self.decisions, self.tokens = self.decisions + 1, self.tokens + tokens
        self.predictions += predictions

    @property
    def tokens_per_decision(self) -> float:
        return self.tokens / max(1, self.decisions)


Key = tuple[int, int, int]
"""Seed, member and turn of a decision."""


@dataclass
class PlanningPolicy(Generic[StateT]):
    """Plays the planner's choices; keeps every decision, for traces."""

    planner: Planner[StateT]
    observe: Callable[[World], StateT]
    """The true state in the model's form."""
    task: Callable[[World], Any] = lambda world: None
    """What the value is asked about."""
    predicts: bool = True
    """Whether a shown state reads as the world's own view does, so that replies can carry the predicted one."""
    spent: Spent = field(default_factory=Spent)
    shown: dict[Key, str] = field(default_factory=dict)
    """The states that decisions were made in, for people."""
    decisions: dict[Key, Decision] = field(default_factory=dict)

    def answer(self, turns: Sequence[Game], seed: int) -> list[Sample]:
        roots = [Root(self.observe(turn.playing), self.task(turn.playing)) for turn in turns]
        decisions = self.planner.plan(roots, seed)
        for turn, root in zip(turns, roots, strict=True):
            self.shown[_key(turn)] = self.planner.dynamics.show(root.state)
        return [self._say(turn, decision, seed) for turn, decision in zip(turns, decisions, strict=True)]

    def _say(self, turn: Game, decision: Decision, seed: int) -> Sample:
        self.spent.add(decision.tokens, decision.predictions)
        self.decisions[_key(turn)] = decision
        action = decision.action
        if action is None:
            # An episode must go on: a planner without proposals acts at random and is measured so.
            action = turn.playing.random_action(seeds.generator(seed, turn.seed))
        prediction = next((c.predicted for c in decision.candidates if c.action == action), None)
        return Sample.of_text(_write(action, turn.state, prediction) if self.predicts else replies.write([action]))


def _key(turn: Game) -> Key:
    return turn.playing.seed, turn.playing.member, turn.turn


@dataclass
class VotePolicy(Generic[StateT]):
    """Takes the action that most samples of a proposer name: what the tokens of a planner buy without a model.

    With a veto, the first of the proposed actions that it lets pass; the most frequent one where it lets none pass.
    """

    propose: Propose[StateT]
    observe: Callable[[World], StateT]
    task: Callable[[World], Any] = lambda world: None
    veto: Veto[StateT] | None = None
    spent: Spent = field(default_factory=Spent)
    vetoed: int = 0
    """Decisions in which the most frequent action did not pass."""

    def answer(self, turns: Sequence[Game], seed: int) -> list[Sample]:
        roots = [Root(self.observe(turn.playing), self.task(turn.playing)) for turn in turns]
        texts = []
        proposals = self.propose(roots, 1 if self.veto is None else MAX_VETOED, seed)
        for turn, action, proposal in zip(turns, self._choose(roots, proposals, seed), proposals, strict=True):
            self.spent.add(proposal.tokens)
            rng = seeds.generator(seed, turn.seed)
            texts.append(_write(action or turn.playing.random_action(rng), turn.state))
        return [Sample.of_text(text) for text in texts]

    def _choose(self, roots: Sequence[Root[StateT]], proposals: Sequence[Proposed], seed: int) -> list[str | None]:
        if self.veto is None:
            return [next(iter(proposal.actions), None) for proposal in proposals]
        pairs = [(root, action) for root, proposal in zip(roots, proposals, strict=True) for action in proposal.actions]
        passes, chosen = iter(self.veto(pairs, seed)), list[str | None]()
        for proposal in proposals:
            allowed = [action for action in proposal.actions if next(passes)]
            best = next(iter(proposal.actions), None)
            chosen.append(next(iter(allowed), best))
            self.vetoed += best is not None and best not in allowed
        return chosen


class Veto(Protocol[StateT]):
    """Who forbids actions."""

    def __call__(self, pairs: Sequence[tuple[Root[StateT], str]], seed: int) -> list[bool]:
        """Whether each action may be taken; all in one call."""


@dataclass(frozen=True)
class ModelVeto(Generic[StateT]):
    """Forbids actions after which, by a model's prediction, everything is lost; it has no say in anything else."""

    dynamics: Dynamics[StateT]
    value: Value[StateT]

    def __call__(self, pairs: Sequence[tuple[Root[StateT], str]], seed: int) -> list[bool]:
        predictions = self.dynamics.predict([(root.state, action) for root, action in pairs], 1, seed)
        states = [(root, one.state) for (root, _), (one,) in zip(pairs, predictions, strict=True)]
        readable = [Root(state, root.task) for root, state in states if not isinstance(state, Malformed)]
        judged = iter(self.value(readable))
        # What cannot be read forbids nothing.
        return [isinstance(state, Malformed) or not _is_lost(next(judged)) for _, state in states]


@dataclass(frozen=True)
class RandomVeto(Generic[StateT]):
    """The control: forbids as often, without looking."""

    rate: float

    def __call__(self, pairs: Sequence[tuple[Root[StateT], str]], seed: int) -> list[bool]:
        return (seeds.generator(seed, "veto").random(len(pairs)) >= self.rate).tolist()


def _is_lost(judged: Judged) -> bool:
    return judged.done and judged.value <= WORST


def _write(action: str, state: str, prediction: str | None = None) -> str:
    """A reply in the demanded form. A prediction that could be taken for a part of the form is not shown in it."""
    hostile = prediction is None or any(mark in prediction for mark in replies.TAG_TOKENS)
    return replies.write([action], state, "" if hostile else prediction)


def traces(policy: PlanningPolicy[Any], episodes: Sequence[Episode], label: str) -> list[dict[str, Any]]:
    """Episodes with what was considered at each turn, as plain JSON for the report."""
    return [
        {
            "label": label,
            "world": episode.world,
            "task": episode.task,
            "seed": episode.seed,
            "success": episode.success,
            "turns": [
                _trace(policy, turn, (episode.seed, episode.member, number))
                for number, turn in enumerate(episode.info["turns"], start=1)
            ],
        }
        for episode in episodes
    ]


def _trace(policy: PlanningPolicy[Any], turn: dict[str, Any], key: Key) -> dict[str, Any]:
    decision, after = policy.decisions.get(key), (key[0], key[1], key[2] + 1)
    candidates = decision.candidates if decision is not None else []
    return {
        "state": policy.shown.get(key, turn["state"]),
        "candidates": [
            {"action": candidate.action, "predicted": candidate.predicted, "value": candidate.value}
            for candidate in sorted(candidates, key=lambda candidate: -candidate.value)
        ],
        "choice": turn["actions"][0]["action"] if turn["actions"] else None,
        "plan": list(decision.plan) if decision is not None else [],
        "tokens": decision.tokens if decision is not None else 0,
        "ended": decision.ended if decision is not None else "",
        "next_state": policy.shown.get(after, turn["next_state"]),
    }
