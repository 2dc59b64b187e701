"""Hindsight relabelling: which recorded action was, in its state, on the shortest known way to success.

Attempts at one level meet in the same states, so that their steps make one graph. Its values come from the goal
backwards, as in value iteration: an action is worth what followed it on average, a state what its best action is worth,
and a later success counts less. No solver is involved: all knowledge comes from the policy's own attempts.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from oneiro.episode import FinishReason
from oneiro.runtime import seeds

DISCOUNT = 0.95
"""What a success is worth one action later: a shorter way is a better one. In stochastic worlds a lower value would
prefer what was quick in the few attempts that chanced to succeed.
"""

Key = tuple[str, tuple[str, ...]]


class Hindsight:
    """Which turns are learned: each step once, those on the best way known all, of the others a `share`."""

    def __init__(self, records: Iterable[dict[str, Any]], share: float, seed: int) -> None:
        self.best, self.share, self.seed = best_known(records), share, seed
        self.seen: set[tuple[str, ...]] = set()

    def __call__(self, turn: dict[str, Any]) -> bool:
        step = turn["state"], *turn["actions"], turn["next_state"]
        if step in self.seen:
            return False
        self.seen.add(step)
        if (turn["state"], tuple(turn["actions"])) in self.best:
            return True
        return self.share > 0 and bool(seeds.generator(self.seed, "hindsight", *step).random() < self.share)


def best_known(records: Iterable[dict[str, Any]]) -> set[Key]:
    """State and actions of every turn that took the best way known from there; none where no success is known of."""
    states: dict[str, int] = {}
    choices: dict[Key, int] = {}
    begun_in: list[int] = []  # of each choice, the state
    taken, led_to, earned, kept = [], [], [], []  # of each turn
    for record in records:
        turns = record["turns"]
        for number, turn in enumerate(turns, start=1):
            key = turn["state"], tuple(turn["actions"])
            if key not in choices:
                choices[key] = len(choices)
                begun_in.append(states.setdefault(key[0], len(states)))
            last = number == len(turns)
            taken.append(choices[key])
            led_to.append(states.setdefault(turn["next_state"], len(states)))
            earned.append(float(last and record["success"]))
            # A budget that ran out is no end of the world: other attempts may have gone on from there.
            ended = last and record["finish_reason"] in (FinishReason.GOAL, FinishReason.FAILED)
            kept.append(0.0 if ended else DISCOUNT ** max(1, len(key[1])))  # a turn without an action is a turn lost
    chosen, reached, origin = (np.array(ids, np.int64) for ids in (taken, led_to, begun_in))
    gain, rest, often = np.array(earned), np.array(kept), np.bincount(chosen)
    value = np.zeros(len(states))
    while True:
        worth = np.bincount(chosen, gain + rest * value[reached]) / often
        better = np.zeros(len(states))
        np.maximum.at(better, origin, worth)
        if np.allclose(better, value, rtol=0, atol=1e-6):
            break
        value = better
    best = (worth > 0) & (worth >= value[origin] - 1e-5)
    return {key for key, is_best in zip(choices, best, strict=True) if is_best}
