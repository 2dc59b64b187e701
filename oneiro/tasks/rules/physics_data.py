"""Cases of drawn physics: those that training samples, the test with its altered contexts, and what a test must be.

A case's number and a seed decide it. Training has the words' meanings and pairs of twists of the training split, and
never a room text that a test query may have: those are one in eight, by content (`in_split`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import permutations, product
from typing import Literal

import numpy as np

from oneiro.runtime import seeds
from oneiro.tasks.rules.physics import STAYED, PhysicsCase, Sighting, copy_outcome
from oneiro.worlds.base import in_split, level_key
from oneiro.worlds.rules.physics import (
    BARE,
    FIRST,
    FLOOR,
    GOAL,
    HELD_OUT_PERMUTATIONS,
    PAIRS,
    PERMUTATIONS,
    SECOND,
    TARGET,
    THINGS,
    VIEWS,
    WALL,
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
    free: float = 0.0
    """Of the rules, those whose words lead anywhere, several of them perhaps the same way."""

    def __call__(self, number: int) -> PhysicsCase:
        rng = seeds.generator(self.seed, "physics", self.split, number)
        physics = draw_physics(rng, "eval" if self.split == "eval" else "train")
        if rng.random() < self.simple:
            kept = (slice(0), slice(0), slice(1), slice(1, 2))[int(rng.integers(4))]  # no twist as often as one
            physics = replace(physics, twists=physics.twists[kept], ways=physics.ways[kept])
        if self.free and rng.random() < self.free:
            physics = replace(physics, moves=free_moves(rng))
        steps = self.context[int(rng.integers(len(self.context)))]
        name = f"{self.split}-{number}"
        return draw(rng, physics, self.split, steps // TRIES, self.view).case(self.view, name, name)


def free_moves(rng: np.random.Generator) -> tuple[int, ...]:
    """Any direction for each word, but none of the meanings that the test has."""
    while (moves := tuple(rng.integers(4, size=len(WORDS)).tolist())) in HELD_OUT_PERMUTATIONS:
        pass
    return moves


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


# Bayes over the family of rules ---------------------------------------------------------------------------------------

# The ceiling of inference: the answer that most of the rules agree on which explain every step of the context.
#
# All meanings of the words, pairs of twists, directions and meanings of the visible glyphs are tried; each pair of
# twists has the same weight before anything is seen. It knows the family that rules are drawn from, which no model is
# told.


REMEMBERED = frozenset({"switch", "wind", "keys", "colours"})
"""Twists whose memory is shown, and which are therefore known."""
DIRECTED = frozenset({"wind", "one-way", "pads"})


def most_likely(one: Drawn) -> str:
    """The answer with the largest posterior."""
    shown = one.physics.shown
    rooms = [*(room for room, _ in one.seen), one.room]
    tables = [[shown[role] for role in room.cells] for room in rooms]
    touched = [shown[room.colour] if room.colour else None for room in rooms]
    glyphs = {glyph for table in tables for glyph in table} | {glyph for glyph in touched if glyph}
    visible = sorted(glyphs - {BARE, TARGET})
    outcomes = [[(word, one.outcome(room, word)) for word in words] for room, words in one.seen]
    votes = Counter[str]()
    for pair in PAIRS:
        roles = [WALL, *(role for twist in pair for role in THINGS[twist])]
        if REMEMBERED.intersection(pair) != REMEMBERED.intersection(one.physics.twists) or len(visible) > len(roles):
            continue
        meanings = list(permutations(roles, len(visible)))
        ways = list(product(*(range(4) if twist in DIRECTED else (0,) for twist in pair)))
        for meaning in meanings:
            role_of = {BARE: FLOOR, TARGET: GOAL, **dict(zip(visible, meaning, strict=True))}
            colours = [role_of[glyph] if glyph else 0 for glyph in touched]
            if any(colour not in (0, FIRST, SECOND) for colour in colours):
                continue
            read = [
                room._replace(cells=bytes(role_of[glyph] for glyph in table), colour=colour)
                for room, table, colour in zip(rooms, tables, colours, strict=True)
            ]
            for way in ways:
                rules = Physics((0, 1, 2, 3), pair, way, one.physics.glyphs)
                for answer, count in _answers(rules, read, outcomes, one.word).items():
                    votes[answer] += count / (len(meanings) * len(ways))  # type: ignore[assignment]
    return max(votes, key=lambda answer: (votes[answer], answer)) if votes else STAYED


def _answers(rules: Physics, rooms: list[Room], outcomes: list[list[tuple[int, str]]], word: int) -> Counter[str]:
    """What the meanings of the words that explain every outcome under these rules say of the last room."""
    alive = list(PERMUTATIONS)
    for room, seen in zip(rooms, outcomes, strict=False):
        # Where each direction leads: a word then only chooses among these.
        ends = [displacement(room, advance(rules, room, way)) for way in range(4)]
        alive = [moves for moves in alive if all(ends[moves[said]] == outcome for said, outcome in seen)]
        if not alive:
            return Counter()
    return Counter(displacement(rooms[-1], advance(rules, rooms[-1], moves[word])) for moves in alive)
