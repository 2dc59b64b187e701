"""Model predictive control: sample sequences of actions, roll them out in the model, keep the best, sample again.

This is the cross-entropy method over discrete or free-text actions: in a later round, an action of a new sequence comes
from one of the elites with probability `keep` and is proposed anew otherwise. The first action of the best sequence is
taken, and the next state plans again (receding horizon). A sequence is worth the best discounted value on its way; of
sequences that begin alike, a candidate shows the best, or their mean where outcomes are sampled.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Generic, TypeVar

import numpy as np

from oneiro.agents.planning.base import BEST, WORST, Candidate, Decision, Meter, Planner, Root, best_of
from oneiro.runtime import seeds
from oneiro.tasks.base import Malformed

StateT = TypeVar("StateT")


@dataclass(slots=True)
class _Sequence(Generic[StateT]):
    """A sequence of actions under way, for one decision."""

    root: int
    state: StateT
    actions: list[str] = field(default_factory=list)
    first: str | None = None
    """The first predicted state, for people."""
    score: float | None = None
    """The best discounted value so far; None: nothing was predicted."""
    over: bool = False


class ModelPredictiveControl(Planner[StateT]):
    """Improves `sequences` sequences of `depth` actions over `iterations` rounds."""

    def plan(self, roots: Sequence[Root[StateT]], seed: int = 0) -> list[Decision]:
        meter = Meter(self, roots, seed)
        rng = seeds.generator(seed, "sequences")
        weights: list[dict[str, float]] = [{} for _ in roots]
        tried: list[list[_Sequence[StateT]]] = [[] for _ in roots]
        elites: list[list[_Sequence[StateT]]] = [[] for _ in roots]
        for _ in range(self.settings.iterations):
            active = [root for root in range(len(roots)) if meter.open(root)]
            if not active:
                break
            sequences = [_Sequence(root, roots[root].state) for root in active for _ in range(self.settings.sequences)]
            self._roll_out(meter, sequences, elites, weights, rng)
            for sequence in sequences:
                if sequence.score is not None:
                    tried[sequence.root].append(sequence)
            for root in active:
                ranked = sorted(tried[root], key=lambda sequence: -(sequence.score or 0.0))
                # Where all are worth the same there is nothing to go by, and elites would only narrow the search.
                worst = ranked[-1].score if ranked else None
                elites[root] = [one for one in ranked[: self.settings.elites] if one.score != worst]
        return [self._decide(meter, root, tried[root], weights[root], seed) for root in range(len(roots))]

    def _roll_out(
        self,
        meter: Meter[StateT],
        sequences: list[_Sequence[StateT]],
        elites: list[list[_Sequence[StateT]]],
        weights: list[dict[str, float]],
        rng: np.random.Generator,
    ) -> None:
        """All sequences step by step: one call to propose, one to predict and one to value at each depth."""
        for depth in range(self.settings.depth):
            alive = [sequence for sequence in sequences if not sequence.over and meter.open(sequence.root)]
            if not alive:
                return
            actions = self._actions(meter, alive, depth, elites, weights, rng)
            requests = [
                (sequence, action) for sequence, action in zip(alive, actions, strict=True) if action is not None
            ]
            for sequence, action in zip(alive, actions, strict=True):
                sequence.over = action is None
            answers = meter.predict([(sequence.root, sequence.state, action) for sequence, action in requests])
            moved: list[_Sequence[StateT]] = []
            for (sequence, action), outcomes in zip(requests, answers, strict=True):
                if outcomes is None:
                    meter.ended[sequence.root], sequence.over = "tokens", True
                    continue
                sequence.actions.append(action)
                which = int(rng.integers(len(outcomes))) if len(outcomes) > 1 else 0
                outcome = outcomes[which].state
                if isinstance(outcome, Malformed):
                    sequence.over = True
                    sequence.score = WORST * self.settings.discount if sequence.score is None else sequence.score
                    continue
                sequence.state = outcome
                if depth == 0:
                    sequence.first = self.dynamics.show(outcome)
                moved.append(sequence)
            judged = meter.value([(sequence.root, sequence.state) for sequence in moved])
            for sequence, verdict in zip(moved, judged, strict=True):
                value = self.settings.discount ** (depth + 1) * verdict.value
                sequence.score = value if sequence.score is None else max(sequence.score, value)
                sequence.over = verdict.done

    def _actions(
        self,
        meter: Meter[StateT],
        alive: list[_Sequence[StateT]],
        depth: int,
        elites: list[list[_Sequence[StateT]]],
        weights: list[dict[str, float]],
        rng: np.random.Generator,
    ) -> list[str | None]:
        """The next action of each sequence. States that several sequences are in are proposed for once."""
        chosen: list[str | None] = [None] * len(alive)
        fresh: dict[tuple[int, object], list[int]] = {}
        known = [[elite.actions[depth] for elite in own if len(elite.actions) > depth] for own in elites]
        keeps, draws = rng.random((2, len(alive))).tolist()
        for place, sequence in enumerate(alive):
            if known[sequence.root] and keeps[place] < self.settings.keep:
                chosen[place] = known[sequence.root][int(draws[place] * len(known[sequence.root]))]
            else:
                fresh.setdefault((sequence.root, self.dynamics.key(sequence.state)), []).append(place)
        states = [(root, alive[places[0]].state) for (root, _), places in fresh.items()]
        for ((root, _), places), proposal in zip(fresh.items(), meter.propose(states), strict=True):
            if depth == 0:
                weights[root].update(zip(proposal.actions, proposal.weights, strict=True))
            shares = list(accumulate(proposal.weights))
            for place in places if shares else ():
                chosen[place] = proposal.actions[min(bisect(shares, draws[place] * shares[-1]), len(shares) - 1)]
        return chosen

    def _decide(
        self,
        meter: Meter[StateT],
        root: int,
        tried: list[_Sequence[StateT]],
        weights: dict[str, float],
        seed: int,
    ) -> Decision:
        begun: dict[str, list[_Sequence[StateT]]] = {action: [] for action in weights}
        for sequence in tried:
            begun.setdefault(sequence.actions[0], []).append(sequence)
        candidates = []
        for action, alike in begun.items():
            scores = [sequence.score or 0.0 for sequence in alike]
            # A single lucky sample of a stochastic world is no reason to hope for it.
            value = (max(scores) if self.settings.outcomes == 1 else sum(scores) / len(scores)) if scores else 0.0
            first = next((sequence.first for sequence in alike if sequence.first is not None), None)
            candidates.append(Candidate(action, first, value, weights.get(action, 0.0)))
        place = best_of(candidates, seeds.generator(seed, "choice", root))
        chosen = candidates[place] if place is not None else None
        alike = begun[chosen.action] if chosen else []
        best = max(alike, key=lambda sequence: sequence.score or 0.0, default=None)
        ended = meter.ended[root] or ("goal" if chosen and chosen.value >= BEST * self.settings.discount else "depth")
        return Decision(
            action=chosen.action if chosen else None,
            value=chosen.value if chosen else 0.0,
            candidates=candidates,
            plan=tuple(best.actions) if best is not None else (chosen.action,) if chosen else (),
            tokens=meter.tokens[root],
            predictions=meter.predictions[root],
            ended=ended,
        )
