"""Planning on web pages: a linear policy proposes, a head that was trained on real outcomes values."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from oneiro import seeds
from oneiro.agents.linear import SIZE, Index, LinearPolicy, choice, hashed, named
from oneiro.agents.planning.base import Judged, Proposed, Root
from oneiro.predictors.webpage.dynamics import BrowsedPage
from oneiro.predictors.webpage.lookup import page_type
from oneiro.predictors.webpage.parse import record

REMEMBERED = 8192
MOST_WORDS = 12
"""Words of an objective that are crossed with a page's type."""
FIELDS = ("textbox", "searchbox")


@dataclass(frozen=True)
class PolicyRanking:
    """The actions that a linear policy finds most likely, with their probabilities; each costs a token."""

    policy: LinearPolicy

    def __call__(self, roots: Sequence[Root[BrowsedPage]], most: int, seed: int) -> list[Proposed]:
        found = []
        for root in roots:
            offered = choice(root.state.text, root.state.past)
            chances = offered.chances(self.policy.weights)
            best = np.argsort(-chances, kind="stable")[:most]
            actions = tuple(offered.actions[place] for place in best)
            found.append(Proposed(actions, tuple(float(chances[place]) for place in best), len(best)))
        return found


@dataclass(frozen=True)
class PolicyVote:
    """The action that most of `samples` samples of a linear policy name."""

    policy: LinearPolicy
    samples: int

    def __call__(self, roots: Sequence[Root[BrowsedPage]], most: int, seed: int) -> list[Proposed]:
        found = []
        for number, root in enumerate(roots):
            offered = choice(root.state.text, root.state.past)
            rng = seeds.generator(seed, "vote", number)
            votes = rng.multinomial(self.samples, offered.chances(self.policy.weights))
            best = np.argsort(-votes, kind="stable")[:most]
            weights = tuple(float(votes[place] / self.samples) for place in best)
            found.append(Proposed(tuple(offered.actions[place] for place in best), weights, self.samples))
        return found


# Value ----------------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=REMEMBERED)
def features(state: BrowsedPage) -> Index:
    """What a page shows of what its objective names, and the answer where the episode has stopped."""
    place, url = page_type(state.page), state.page.url.lower().replace("+", " ")
    title, held = "", {"heading": "", "field": "", "line": ""}
    inside = False
    for item in state.page.items:
        read = record(item)
        name = read.name[1:-1].lower()
        title = title or name
        held["heading" if read.role == "heading" else "field" if inside else "line"] += f"\n{name}"
        inside = read.role in FIELDS
    ended = "going" if state.answer is None else "stopped" if state.answer else "stopped empty"
    told = [ended, f"{ended} {place}"]
    seen = []
    for number, name in enumerate(named(state.objective)):
        low = name.lower()
        where = [part for part, text in (("title", title), ("url", url), *held.items()) if low in text]
        seen += [f"{number} {part}" for part in where] or [f"{number} nowhere"]
    words = list(dict.fromkeys(re.findall(r"\b[a-z]{3,}\b", state.objective)))[:MOST_WORDS]
    told += [f"{ended} {place} {one}" for one in seen] + [f"{ended} {one}" for one in seen]
    told += [f"{ended} {place}:{word}" for word in words]
    told += [f"{ended} full {name}" for name in _filled(state)]
    own = hashed(told)
    if state.answer is None:
        return own
    offered = choice(state.text, state.past[:-1])
    taken = state.past[-1]
    if taken not in offered.actions:
        return own
    return np.unique(np.concatenate([own, offered.features[offered.actions.index(taken)]]))


def _filled(state: BrowsedPage) -> list[str]:
    """The fields of a page that hold something."""
    found, before = [], None
    for item in state.page.items:
        read = record(item)
        if before is not None and read.role == "StaticText" and item.depth > before[1]:
            found.append(before[0])
        before = (read.name, item.depth) if read.role in FIELDS else None
    return found


@dataclass
class OutcomeHead:
    """A logistic regression: how likely it is that an episode succeeds that is here, discounted by what is left."""

    weights: NDArray[np.float64] = field(default_factory=lambda: np.zeros(SIZE))

    def chance(self, state: BrowsedPage) -> float:
        return _logistic(float(self.weights[features(state)].sum()))

    def __call__(self, roots: Sequence[Root[BrowsedPage]]) -> list[Judged]:
        return [Judged(self.chance(root.state), root.state.answer is not None) for root in roots]

    def train(
        self, states: Sequence[BrowsedPage], returns: Sequence[float], epochs: int, rate: float, decay: float, seed: int
    ) -> float:
        """Cross-entropy to the returns, a step for each state; the last epoch's mean loss."""
        rows, loss = [features(state) for state in states], 0.0
        for epoch in range(epochs):
            loss = 0.0
            for place in seeds.generator(seed, "outcome head", epoch).permutation(len(rows)):
                own, target = rows[place], returns[place]
                chance = _logistic(float(self.weights[own].sum()))
                loss -= target * math.log(chance) + (1 - target) * math.log(1 - chance)
                self.weights[own] -= rate * ((chance - target) + decay * self.weights[own])
        return loss / max(1, len(rows))

    def save(self, folder: Path) -> None:
        LinearPolicy(0.0, self.weights).save(folder)

    @classmethod
    def load(cls, folder: Path) -> OutcomeHead:
        return cls(LinearPolicy.load(folder).weights)


def _logistic(value: float) -> float:
    return 1 / (1 + math.exp(-min(15.0, max(-15.0, value))))
