"""Lookups that learn nothing: the answer of another case, moved to this one.

Games have different words, so an answer is remembered without them: which of the action's objects changes, which
property by its kind and rank, and how (a number by its difference).
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from oneiro.runtime import seeds
from oneiro.tasks.rules.rulebook.cases import RuleCase
from oneiro.worlds.rules.rulebook.language import LARGEST, Property, Things, Value, write

Change = tuple[int, str, int, Value]
"""The object's place in the action (or beyond, counted among the others), the property's kind and rank, what happens to
it: the difference of a number, the value of a flag, the rank of a word."""
Pattern = tuple[Change, ...]
Edits = dict[tuple[int, int], str]

BUCKETS = 512
"""Numbers that a text becomes: words are counted in so many places."""
_WORD = re.compile(r"[a-z]+|\S")


def pattern(case: RuleCase, after: Things) -> Pattern:
    """What changes, without names."""
    order, ranks = _order(case), _ranks(case.game.book.properties)
    changes = []
    for role, thing in enumerate(order):
        for place, (old, new) in enumerate(zip(case.things[thing], after[thing], strict=True)):
            if old != new:
                changes.append((role, *ranks[place], _difference(case.game.book.properties[place], old, new)))
    return tuple(changes)


def transplant(changes: Pattern, case: RuleCase) -> Edits:
    """The same changes in another game, where it has such objects and properties."""
    order, kinds = _order(case), case.game.book.properties
    places = {rank: place for place, rank in enumerate(_ranks(kinds))}
    moved: Edits = {}
    for role, kind, rank, how in changes:
        if role < len(order) and (kind, rank) in places:
            thing, place = order[role], places[kind, rank]
            old, new = case.things[thing][place], how
            if kind == "number":
                new = min(LARGEST, max(0, int(old) + int(how)))
            elif kind == "word":
                new = kinds[place].words[int(how)]
            if new != old:
                moved[thing, place] = write(new)
    return moved


def _order(case: RuleCase) -> list[int]:
    """The objects that the action names, then the others."""
    return [*case.chosen, *(thing for thing in range(len(case.things)) if thing not in case.chosen)]


def _ranks(kinds: Sequence[Property]) -> list[tuple[str, int]]:
    counts = Counter[str]()
    ranks: list[tuple[str, int]] = []
    for kind in kinds:
        ranks.append((kind.kind, counts[kind.kind]))
        counts[kind.kind] += 1
    return ranks


def _difference(kind: Property, old: Value, new: Value) -> Value:
    if kind.kind == "number":
        return int(new) - int(old)
    return kind.words.index(str(new)) if kind.kind == "word" else new


class RuleTextLookup:
    """The training case whose prompt has most words in common with this one."""

    def __init__(self, train: Sequence[RuleCase], shown: Callable[[RuleCase], str]) -> None:
        self.train, self.shown = train, shown
        self.vectors_NB = np.stack([self._vector(case) for case in train])

    def __call__(self, case: RuleCase) -> Edits:
        near = self.train[int(np.argmax(self.vectors_NB @ self._vector(case)))]
        return transplant(pattern(near, near.outcome.things), case)

    def _vector(self, case: RuleCase) -> NDArray[np.float32]:
        counts = np.zeros(BUCKETS, np.float32)
        for word, times in Counter(_WORD.findall(self.shown(case))).items():
            counts[_bucket(word)] += times
        return counts / np.linalg.norm(counts)


_BUCKETS: dict[str, int] = {}


def _bucket(word: str) -> int:
    if word not in _BUCKETS:
        _BUCKETS[word] = seeds.derive("bucket", word) % BUCKETS
    return _BUCKETS[word]


class VerbLookup:
    """What the same verb did most often in training; of a verb that training never had, what any verb did."""

    def __init__(self, train: Sequence[RuleCase]) -> None:
        counts: dict[str, Counter[Pattern]] = defaultdict(Counter)
        for case in train:
            if case.changed:
                changes = pattern(case, case.outcome.things)
                for verb in (case.action.split()[0], ""):
                    counts[verb][changes] += 1
        self.common = {verb: count.most_common(1)[0][0] for verb, count in counts.items()}

    def __call__(self, case: RuleCase) -> Edits:
        return transplant(self.common.get(case.action.split()[0], self.common.get("", ())), case)


class PromptLookup:
    """What the same verb did in the prompt's own examples: in the one whose objects are most like these."""

    def __init__(self, examples: int) -> None:
        self.examples = examples

    def __call__(self, case: RuleCase) -> Edits:
        best, likeness = None, -1
        for one in case.examples[: self.examples]:
            seen = RuleCase("", case.game, one.things, one.clock, one.action, case.outcome)
            if one.action.split()[0] == case.action.split()[0]:
                pairs = zip(seen.chosen, case.chosen, strict=True)
                same = sum(
                    old == new
                    for there, here in pairs
                    for old, new in zip(one.things[there], case.things[here], strict=True)
                )
                if same > likeness:
                    best, likeness = pattern(seen, one.after), same
        return transplant(best or (), case)
