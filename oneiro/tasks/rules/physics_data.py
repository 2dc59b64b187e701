"""Cases of drawn physics: those that training samples, the test with its altered contexts, and what a test must be.

A case's number and a seed decide it. Training has the words' meanings and pairs of twists of the training split, and
never a room text that a test query may have: those are one in eight, by content (`in_split`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from oneiro.runtime import seeds
from oneiro.tasks.rules.physics import PhysicsCase, Sighting, copy_outcome
from oneiro.worlds.base import in_split, level_key
from oneiro.worlds.rules.physics import (
    HELD_OUT_PERMUTATIONS,
    PERMUTATIONS,
    VIEWS,
    WORDS,
    Physics,
    Room,
    advance,
    displacement,
    draw_physics,
    draw_situation,
    show_sight,
)

TRIES = 4
"""Steps seen in one room of a context: one for each word."""
Split = Literal["train", "validation", "eval"]


@dataclass(frozen=True)
class Drawn:
    """A case before it is written: rules, the rooms of the context with the order of words in each, and the query."""

    physics: Physics
    seen: tuple[tuple[Room, tuple[int, ...]], ...]
    room: Room
    word: int

    def case(self, view: str, id: str, rules: str) -> PhysicsCase:
        show = VIEWS[view]

        def patch(room: Room) -> str:
            return " ".join(show_sight(self.physics, room).split(" ")[1:12:3])

        context = tuple(
            Sighting(
                show(self.physics, room), tuple((WORDS[word], self.outcome(room, word)) for word in words), patch(room)
            )
            for room, words in self.seen
        )
        text, after = show(self.physics, self.room), self.outcome(self.room, self.word)
        return PhysicsCase(context, text, WORDS[self.word], after, id, rules, patch(self.room))

    def outcome(self, room: Room, word: int) -> str:
        return displacement(room, advance(self.physics, room, word))


def draw(rng: np.random.Generator, physics: Physics, split: Split, rooms: int, view: str) -> Drawn:
    """A query with `rooms` rooms of context. Only the texts of training and of queries are kept apart."""
    own = "train" if split == "train" else "eval"

    def room_in(split: str | None) -> Room:
        while True:
            room = draw_situation(rng, physics)
            if in_split(level_key(VIEWS[view](physics, room)), split):
                return room

    seen = tuple(
        (room_in("train" if split == "train" else None), tuple(rng.permutation(len(WORDS)).tolist()))
        for _ in range(rooms)
    )
    return Drawn(physics, seen, room_in(own), int(rng.integers(len(WORDS))))


@dataclass(frozen=True)
class CaseSampler:
    """The endless list of cases of a split: number -> case, each with rules of its own.

    `validation` has the rules of training and room texts that training never has.
    """

    split: Split
    seed: int
    view: str = "sight"
    context: Sequence[int] = (16,)
    """Steps in the prompt, drawn for each case."""
    simple: float = 0.0
    """Of the rules, those with one twist or none."""

    def __call__(self, number: int) -> PhysicsCase:
        rng = seeds.generator(self.seed, "physics", self.split, number)
        physics = draw_physics(rng, "eval" if self.split == "eval" else "train")
        if rng.random() < self.simple:
            kept = (slice(0), slice(0), slice(1), slice(1, 2))[int(rng.integers(4))]  # no twist as often as one
            physics = replace(physics, twists=physics.twists[kept], ways=physics.ways[kept])
        steps = self.context[int(rng.integers(len(self.context)))]
        name = f"{self.split}-{number}"
        return draw(rng, physics, self.split, steps // TRIES, self.view).case(self.view, name, name)


# The test -------------------------------------------------------------------------------------------------------------

FULL, OTHER, SHUFFLED, TWIN = "full", "another physics", "shuffled outcomes", "twin"


def draw_test(
    seed: int, physics: int, queries: int, context: Sequence[int], view: str
) -> tuple[list[Drawn], dict[str, list[PhysicsCase]]]:
    """What was drawn, and by name the cases of each form of the prompt.

    `full` has the longest context; `K=4` and so on its first steps; `another physics` the context of the next physics
    of the test; `shuffled outcomes` its own with the outcomes dealt out anew; `twin` the same rooms and query under
    other words, so that the right answer is another one (fewer cases: the wind, say, does not mind the words).
    """
    longest, drawn = max(context) // TRIES, list[Drawn]()
    forms: dict[str, list[PhysicsCase]] = {}

    def add(form: str, case: PhysicsCase) -> None:
        forms.setdefault(form, []).append(replace(case, id=f"{case.id} {form}"))

    for number in range(physics):
        rules = draw_physics(seeds.generator(seed, "test physics", number), "eval")
        for query in range(queries):
            rng, name = seeds.generator(seed, "test", number, query), f"{number}-{query}"
            one = draw(rng, rules, "eval", longest, view)
            drawn.append(one)
            case = one.case(view, name, str(number))
            add(FULL, case)
            for steps in context:
                if steps < max(context):
                    add(f"K={steps}", replace(case, context=case.context[: steps // TRIES]))
            add(SHUFFLED, replace(case, context=shuffle_outcomes(rng, case.context)))
            if twin := twin_of(rng, one):
                add(TWIN, twin.case(view, name, str(number)))
    full = forms[FULL]
    forms[OTHER] = [
        replace(case, context=full[(place + queries) % len(full)].context, id=f"{drawn_id(case)} {OTHER}")
        for place, case in enumerate(full)
    ]
    return drawn, forms


def drawn_id(case: PhysicsCase) -> str:
    """The name of a test case without that of its form."""
    return case.id.partition(" ")[0]


def twin_of(rng: np.random.Generator, one: Drawn) -> Drawn | None:
    """The same rooms under held-out words that give the query another answer; None where there are none."""
    others = [replace(one, physics=replace(one.physics, moves=moves)) for moves in sorted(HELD_OUT_PERMUTATIONS)]
    right = one.outcome(one.room, one.word)
    others = [other for other in others if other.outcome(one.room, one.word) != right]
    return others[int(rng.integers(len(others)))] if others else None


def shuffle_outcomes(rng: np.random.Generator, context: tuple[Sighting, ...]) -> tuple[Sighting, ...]:
    """The same rooms and words, with the outcomes dealt out anew among all of them."""
    outcomes = [after for sighting in context for _, after in sighting.tries]
    dealt = iter([outcomes[place] for place in rng.permutation(len(outcomes)).tolist()])
    return tuple(replace(one, tries=tuple((word, next(dealt)) for word, _ in one.tries)) for one in context)


# What a test must be --------------------------------------------------------------------------------------------------


def acceptance(drawn: Sequence[Drawn], test: Sequence[PhysicsCase], train: Sequence[PhysicsCase]) -> dict[str, float]:
    """Numbers that say whether memory can help.

    conflict: test queries whose text and word have another outcome under other meanings of the words, everything else
    the same. disagreement: how many of the other 23 meanings change the outcome, on average. coverage: test queries
    whose text and word training has. copying wrong: those that the prompt's own example of the word does not answer.
    """
    changed = []
    for one in drawn:
        right = one.outcome(one.room, one.word)
        others = [moves for moves in PERMUTATIONS if moves != one.physics.moves]
        outcomes = [
            replace(one, physics=replace(one.physics, moves=moves)).outcome(one.room, one.word) for moves in others
        ]
        changed.append(float(np.mean([outcome != right for outcome in outcomes])))
    keys = {(case.text, case.word) for case in train}
    return {
        "conflict": float(np.mean(np.array(changed) > 0)),
        "disagreement": float(np.mean(changed)),
        "coverage": float(np.mean([(case.text, case.word) in keys for case in test])),
        "copying wrong": float(np.mean([copy_outcome(case) != case.after for case in test])),
    }
