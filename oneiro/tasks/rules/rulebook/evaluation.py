"""Honest tables for rulebook games: exact answers by the number of rules that take part, beside rows without a model.

Questions about one game share its rules, so intervals are over rulebooks. A pair counts where both of its questions,
which differ in one rule and in their answer, are answered exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from oneiro.report.stats import clustered, paired
from oneiro.report.table import Cell, Table
from oneiro.runtime import seeds
from oneiro.runtime.seeds import generator
from oneiro.tasks.base import Dynamics, Imagined, Malformed
from oneiro.tasks.rules.rulebook.cases import MOST_RULES, Observed, RuleCase, obey, observe, with_wrong_rules
from oneiro.tasks.rules.rulebook.predictor import RulebookPredictor
from oneiro.worlds.base import World
from oneiro.worlds.rules.rulebook.drawing import RulebookGame
from oneiro.worlds.rules.rulebook.language import Machine, Outcome, Things
from oneiro.worlds.rules.rulebook.world import RulebookWorld

Answers = Mapping[str, str] | Callable[[RuleCase], str]
"""Texts by the id of their case, or a function that gives them."""
PARTS = ("changed", *(f"{count} rule{'s' if count > 1 else ''}" for count in range(1, MOST_RULES + 1)), "unchanged")


def measure(
    predictor: RulebookPredictor, cases: Sequence[RuleCase], twins: Sequence[RuleCase], answers: Answers
) -> dict[str, Any]:
    """The row of one set of answers, as plain JSON; a missing answer is unreadable."""

    def exact(case: RuleCase) -> float:
        return predictor.metrics(answers(case) if callable(answers) else answers.get(case.id, ""), case)["exact"]

    right, books = np.array([exact(case) for case in cases]), np.array([book_of(case) for case in cases])
    rules = np.array([case.rules for case in cases])
    parts = {
        "changed": rules > 0,
        **{PARTS[count]: rules == count for count in range(1, MOST_RULES + 1)},
        "unchanged": rules == 0,
    }
    by_id = {case.id: hit for case, hit in zip(cases, right, strict=True)}
    pairs = [by_id[case.pair] * exact(case) for case in twins]
    return {
        **{name: vars(clustered(right[part], books[part])) for name, part in parts.items()},
        "pairs": vars(clustered(pairs, [case.pair for case in twins])),
        "exact": right.tolist(),
        "rules": rules.tolist(),
        "books": books.tolist(),
    }


def book_of(case: RuleCase) -> str:
    """The game a case belongs to; its counterfactual belongs to the same."""
    return case.id.rsplit("-", 1)[0]


def difference(one: Mapping[str, Any], other: Mapping[str, Any], at_least: int) -> Cell:
    """Exact answers of one row less those of another, question by question, where so many rules take part."""
    part = np.array(one["rules"]) >= at_least
    return paired(np.array(one["exact"])[part], np.array(other["exact"])[part], np.array(one["books"])[part])


def acceptance(train: Sequence[RuleCase], test: Sequence[RuleCase]) -> dict[str, float]:
    """What a data set must show before a result on it says anything about rules.

    `conflicts`: the share of test questions that have another answer under another game's rules in the same words; a
    table of questions without their rules can answer at most one of the two. `coverage`: the share of test questions
    that are training questions, rules left aside.
    """
    differs = 0
    for case in test:
        other = with_wrong_rules(case, 0).shown
        assert other is not None
        differs += obey(case, other).things != case.outcome.things
    known = {case.key for case in train}
    count = max(1, len(test))
    return {"conflicts": differs / count, "coverage": sum(case.key in known for case in test) / count}


def exact_table(rows: Mapping[str, Mapping[str, Any]]) -> Table:
    columns = [*PARTS, "pairs"]
    table = Table(
        "Exact answers to questions about unseen rulebooks",
        ["answers", *columns],
        dict.fromkeys(columns, "%"),
        note="By how many rules change something. pairs: one rule changed, the answer changes, both right. Intervals "
        "are over rulebooks. Lookups learn nothing; no rules: the same model without the context.",
    )
    for name, row in rows.items():
        table.add(name, *(Cell(**row[column]) for column in columns))
    return table


def depth_table(rows: Mapping[str, Sequence[Mapping[str, Any]]]) -> Table:
    table = Table(
        "Right states after so many steps on own predictions",
        ["steps", *rows],
        dict.fromkeys(rows, "%"),
        note="Every true step changes something. Intervals are over rulebooks.",
    )
    for depth, cells in enumerate(zip(*rows.values(), strict=True), start=1):
        table.add(str(depth), *(Cell(**cell) for cell in cells))
    return table


def acceptance_table(figures: Mapping[str, float]) -> Table:
    table = Table(
        "Can a table answer these questions?",
        ["", "measured", "wanted"],
        {"measured": "%"},
        note="conflicts: questions with another answer under another game's rules. coverage: test questions that "
        "training has, rules left aside.",
    )
    table.add("conflicts", figures["conflicts"], "at least 50")
    table.add("coverage", figures["coverage"], "0")
    return table


# On the model's own predictions ---------------------------------------------------------------------------------------


Predict = Callable[[Sequence[RuleCase]], Sequence[str]]
DEPTH = 4
"""Steps of a trajectory: with one error in four steps, a third of them is still right at its end."""


@dataclass(frozen=True)
class GameTrajectory:
    """The first question of a game, and actions from there with the true states they lead to."""

    start: RuleCase
    actions: tuple[str, ...]
    states: tuple[Things, ...]


def trajectories(starts: Sequence[RuleCase], seed: int) -> list[GameTrajectory]:
    """Random play in which every step changes something, as long as any can."""
    played = []
    for start in starts:
        rng, game, machine = seeds.generator(seed, "trajectory", start.id), start.game, Machine(start.game.book)
        things, actions, states = start.things, list[str](), list[Things]()
        moves = list(game.moves())
        for depth in range(DEPTH):
            for place in rng.permutation(len(moves)):
                action, after = (
                    game.write(*moves[place]),
                    machine.step(things, start.clock + depth, *moves[place]).things,
                )
                if after != things:
                    break
            things = after
            actions.append(action)
            states.append(after)
        played.append(GameTrajectory(start, tuple(actions), tuple(states)))
    return played


def exact_by_depth(
    predictor: RulebookPredictor, predict: Predict, played: Sequence[GameTrajectory]
) -> list[dict[str, Any]]:
    """The share of trajectories whose imagined state is the true one after 1, 2, ... steps; unreadable answers change
    nothing.
    """
    now, cells = [one.start.things for one in played], []
    for depth in range(DEPTH):
        cases = []
        for one, things in zip(played, now, strict=True):
            case = replace(one.start, things=things, clock=one.start.clock + depth, action=one.actions[depth])
            cases.append(replace(case, outcome=obey(case, case.game.book)))
        for place, (case, text) in enumerate(zip(cases, predict(cases), strict=True)):
            read = predictor.read(text, case)
            now[place] = now[place] if isinstance(read, Malformed) else read
        right = [float(things == one.states[depth]) for one, things in zip(played, now, strict=True)]
        cells.append(vars(clustered(right, [one.start.id for one in played])))
    return cells


@dataclass(frozen=True)
class BookState:
    """The objects of a rulebook game after some steps, and the steps of the game that were observed before."""

    game: RulebookGame
    things: Things
    clock: int
    seen: tuple[Observed, ...] = ()


@dataclass
class RulebookDynamics(Dynamics[BookState]):
    """The model says which properties change; what is no action of the game only takes a step."""

    task: RulebookPredictor
    answer: Predict

    def observe(self, world: World) -> BookState:
        """Where a game is. What was observed of it depends on the level alone."""
        assert isinstance(world, RulebookWorld)
        rng, count = generator("rulebook", world.seed, "observed"), self.task.config.observed
        return BookState(world.game, world.things, world.taken, observe(rng, world.game, count) if count else ())

    def show(self, state: BookState) -> str:
        rows = [state.game.describe(state.things, place) for place in range(len(state.things))]
        return "\n".join([*rows, f"Steps taken: {state.clock}"])

    def predict(
        self, pairs: Sequence[tuple[BookState, str]], outcomes: int = 1, seed: int = 0
    ) -> list[list[Imagined[BookState]]]:
        cases = [
            RuleCase("", state.game, state.things, state.clock, action, Outcome(state.things, ()), state.seen)
            for state, action in pairs
        ]
        known = [case for case in cases if case.chosen]
        answers = iter(self.answer(known) if known else ())
        things = [self.task.read(next(answers), case) if case.chosen else case.things for case in cases]
        return [
            [Imagined(after if isinstance(after, Malformed) else replace(state, things=after, clock=state.clock + 1))]
            * outcomes
            for (state, _), after in zip(pairs, things, strict=True)
        ]
