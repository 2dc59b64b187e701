"""Planners and votes as policies: whatever plays episodes and evaluates agents can use them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from oneiro.agents import reply as replies
from oneiro.agents.game import Game
from oneiro.agents.planning.base import Decision, Planner, PlannerName, PlannerSettings, Propose, Root
from oneiro.agents.planning.beam import BeamSearch
from oneiro.agents.planning.mpc import ModelPredictiveControl
from oneiro.agents.prompts import DialogueSettings
from oneiro.episode import Episode, Sample
from oneiro.runtime import seeds
from oneiro.worlds.base import World

StateT = TypeVar("StateT")

PLANNERS: dict[PlannerName, type[Planner[Any]]] = {"beam": BeamSearch, "mpc": ModelPredictiveControl}


def make_planner(dynamics: Any, propose: Any, value: Any, settings: PlannerSettings) -> Planner[Any]:
    """The planner that the settings name."""
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
    """Takes the action that most samples of a proposer name: what the tokens of a planner buy without a model."""

    propose: Propose[StateT]
    observe: Callable[[World], StateT]
    task: Callable[[World], Any] = lambda world: None
    spent: Spent = field(default_factory=Spent)

    def answer(self, turns: Sequence[Game], seed: int) -> list[Sample]:
        roots = [Root(self.observe(turn.playing), self.task(turn.playing)) for turn in turns]
        texts = []
        for turn, proposal in zip(turns, self.propose(roots, 1, seed), strict=True):
            self.spent.add(proposal.tokens)
            rng = seeds.generator(seed, turn.seed)
            texts.append(
                _write(proposal.actions[0] if proposal.actions else turn.playing.random_action(rng), turn.state)
            )
        return [Sample.of_text(text) for text in texts]


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
