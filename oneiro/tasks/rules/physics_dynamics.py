"""Predicted physics as dynamics: search asks where a word leads, and moves the walker of the map there.

A state is a situation without a word: the context of its rules, and the room as a map. Only the walker moves: doors,
keys, boxes and whatever else the rules remember stay as they are until the next true map is seen.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from oneiro.tasks.answering import AnsweringModel
from oneiro.tasks.base import Dynamics, Flaw, Imagined, Malformed
from oneiro.tasks.rules.physics import PhysicsPredictor, PhysicsSituation, Sighting
from oneiro.tasks.rules.physics_data import Drawn
from oneiro.worlds.base import World
from oneiro.worlds.rules.physics import (
    EDGE,
    LETTERS,
    SHIFTS,
    WALKER,
    WORDS,
    Physics,
    advance,
    displacement,
    neighbours,
    read_map,
    show_map,
)
from oneiro.worlds.rules.physics_world import PhysicsWorld

Context = tuple[Sighting, ...]


class RoomTiles(NamedTuple):
    """A map taken apart: glyphs without the walker, where the walker stands, and what the rules remember."""

    glyphs: tuple[str, ...]
    walker: int
    memory: tuple[str, ...]

    @property
    def size(self) -> int:
        return round(len(self.glyphs) ** 0.5)

    @property
    def text(self) -> str:
        glyphs = [*self.glyphs[: self.walker], WALKER, *self.glyphs[self.walker + 1 :]]
        rows = [" ".join(glyphs[start : start + self.size]) for start in range(0, len(glyphs), self.size)]
        return "\n".join([*rows, " ".join([self.glyphs[self.walker], *self.memory])])

    @property
    def sight(self) -> str:
        """The same in the view `sight`."""
        table, parts = neighbours(self.size), list[str]()
        for way, letter in enumerate(LETTERS):
            near = table[self.walker][way]
            far = table[near][way] if near >= 0 else -1
            parts += [letter, *(self.glyphs[cell] if cell >= 0 else EDGE for cell in (near, far))]
        return " ".join([*parts, *self.memory])


def read_tiles(text: str) -> RoomTiles:
    """Of a map as `show_map` writes it."""
    *rows, (under, *memory) = [line.split(" ") for line in text.split("\n")]
    glyphs = [glyph for row in rows for glyph in row]
    walker = glyphs.index(WALKER)
    glyphs[walker] = under
    return RoomTiles(tuple(glyphs), walker, tuple(memory))


def move(text: str, way: str) -> str | None:
    """The map after a displacement such as `RDD`; None where it leads out of the room."""
    tiles = read_tiles(text)
    row, column = divmod(tiles.walker, tiles.size)
    for letter in way.strip("0"):
        down, right = SHIFTS[LETTERS.index(letter)]
        row, column = row + down, column + right
    if not (0 <= row < tiles.size and 0 <= column < tiles.size):
        return None
    return tiles._replace(walker=row * tiles.size + column).text


def observe(world: World, view: str) -> PhysicsSituation:
    """The true map, with what the level shows of its rules as a predictor of this view reads it."""
    assert isinstance(world, PhysicsWorld)
    examples = Drawn(world.physics, tuple(world.draw_examples()), world.room, 0)
    return PhysicsSituation(examples.case(view, "", "").context, world.render("map"), "")


Answer = Callable[[Sequence[PhysicsSituation]], Sequence[str]]


@dataclass
class PhysicsDynamics(Dynamics[PhysicsSituation]):
    """`answer` says how far a word leads: a language model, or a rule that costs no tokens."""

    task: PhysicsPredictor
    answer: Answer | AnsweringModel[PhysicsPredictor, PhysicsSituation]

    def predict(
        self, pairs: Sequence[tuple[PhysicsSituation, str]], outcomes: int = 1, seed: int = 0
    ) -> list[list[Imagined[PhysicsSituation]]]:
        """All outcomes are the most likely one: physics are deterministic. What is no word leaves the state."""
        sees_map = self.task.config.view == "map"
        cases = [
            replace(state, text=state.text if sees_map else read_tiles(state.text).sight, word=word)
            for state, word in pairs
            if word in WORDS
        ]
        if isinstance(self.answer, AnsweringModel):
            samples = self.answer.greedy(cases)
            answers = [(self.answer.text(sample), len(sample.tokens)) for sample in samples]
        else:
            answers = [(text, 0) for text in self.answer(cases)]
        answered = zip(cases, answers, strict=True)
        predictions = []
        for state, word in pairs:
            if word in WORDS:
                case, (text, tokens) = next(answered)
                predictions.append(Imagined(self._follow(state, case, text), tokens))
            else:
                predictions.append(Imagined(state))
        return [[one] * outcomes for one in predictions]

    def _follow(self, state: PhysicsSituation, case: PhysicsSituation, text: str) -> PhysicsSituation | Malformed:
        way = self.task.parse(text, case)
        if isinstance(way, Malformed):
            return way
        after = move(state.text, way)
        return replace(state, text=after) if after is not None else Malformed(Flaw.SHAPE)

    def show(self, state: PhysicsSituation) -> str:
        return state.text


@dataclass
class TruePhysics(Dynamics[PhysicsSituation]):
    """The rules themselves, found by the context they are shown in. `whole`: all that a step changes; otherwise, as in
    predicted physics, only where the walker is.
    """

    rules: Mapping[Context, Physics]
    whole: bool = True

    def predict(
        self, pairs: Sequence[tuple[PhysicsSituation, str]], outcomes: int = 1, seed: int = 0
    ) -> list[list[Imagined[PhysicsSituation]]]:
        return [[Imagined(self._step(state, word))] * outcomes for state, word in pairs]

    def _step(self, state: PhysicsSituation, word: str) -> PhysicsSituation | Malformed:
        physics = self.rules[state.context]
        room = read_map(physics, state.text)
        if room is None:
            return Malformed(Flaw.SHAPE)
        after = advance(physics, room, WORDS.index(word))
        text = show_map(physics, after) if self.whole else move(state.text, displacement(room, after))
        return replace(state, text=text) if text is not None else Malformed(Flaw.SHAPE)

    def show(self, state: PhysicsSituation) -> str:
        return state.text
