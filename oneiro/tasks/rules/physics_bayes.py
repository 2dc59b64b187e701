"""The ceiling of inference: the answer that most of the rules agree on which explain every step of the context.

All meanings of the words, pairs of twists, directions and meanings of the visible glyphs are tried; each pair of twists
has the same weight before anything is seen. It knows the family that rules are drawn from, which no model is told.
"""

from __future__ import annotations

from collections import Counter
from itertools import permutations, product

from oneiro.tasks.rules.physics import STAYED
from oneiro.tasks.rules.physics_data import Drawn
from oneiro.worlds.rules.physics import (
    BARE,
    FIRST,
    FLOOR,
    GOAL,
    PAIRS,
    PERMUTATIONS,
    SECOND,
    TARGET,
    THINGS,
    WALL,
    Physics,
    Room,
    advance,
    displacement,
)

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
