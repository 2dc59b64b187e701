"""Games continued on a model's own predictions: how long does the imagined state stay the true one?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from oneiro.report.stats import clustered
from oneiro.runtime import seeds
from oneiro.tasks.base import Malformed
from oneiro.tasks.rules.rulebook.cases import RuleCase, obey
from oneiro.tasks.rules.rulebook.predictor import RulebookPredictor
from oneiro.worlds.rules.rulebook.language import Machine, Things

Predict = Callable[[Sequence[RuleCase]], Sequence[str]]
DEPTH = 4
"""Steps of a trajectory: with one error in four steps, a third of them is still right at its end."""


@dataclass(frozen=True)
class Trajectory:
    """The first question of a game, and actions from there with the true states they lead to."""

    start: RuleCase
    actions: tuple[str, ...]
    states: tuple[Things, ...]


def trajectories(starts: Sequence[RuleCase], seed: int) -> list[Trajectory]:
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
        played.append(Trajectory(start, tuple(actions), tuple(states)))
    return played


def exact_by_depth(
    predictor: RulebookPredictor, predict: Predict, played: Sequence[Trajectory]
) -> list[dict[str, Any]]:
    """The share of trajectories whose imagined state is the true one after 1, 2, ... steps; unreadable answers change
    nothing.
    """
    now, cells = [one.start.things for one in played], []
    for depth in range(DEPTH):
        asked = []
        for one, things in zip(played, now, strict=True):
            case = replace(one.start, things=things, clock=one.start.clock + depth, action=one.actions[depth])
            asked.append(replace(case, outcome=obey(case, case.game.book)))
        for place, (case, text) in enumerate(zip(asked, predict(asked), strict=True)):
            read = predictor.read(text, case)
            now[place] = now[place] if isinstance(read, Malformed) else read
        right = [float(things == one.states[depth]) for one, things in zip(played, now, strict=True)]
        cells.append(vars(clustered(right, [one.start.id for one in played])))
    return cells
