"""Predictors of drawn rules at work: where words lead in a room, and what actions do under a rulebook."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from oneiro.runtime.seeds import generator
from oneiro.tasks.base import Dynamics, Flaw, Imagined, Malformed
from oneiro.tasks.rules.physics import STAYED, PhysicsPredictor, PhysicsSituation
from oneiro.tasks.rules.physics_data import Drawn
from oneiro.tasks.rules.rulebook.cases import Observed, RuleCase, observe
from oneiro.tasks.rules.rulebook.predictor import RulebookPredictor
from oneiro.tasks.rules.rulebook.rollout import Predict
from oneiro.worlds.base import World
from oneiro.worlds.rules.physics import LETTERS, WORDS, Physics, Room, advance, neighbours, show_map
from oneiro.worlds.rules.physics_world import PhysicsWorld
from oneiro.worlds.rules.rulebook.drawing import Game
from oneiro.worlds.rules.rulebook.language import Outcome, Things
from oneiro.worlds.rules.rulebook.world import RulebookWorld


@dataclass(frozen=True)
class RoomState:
    """A room, its rules, and what was seen of them in other rooms."""

    physics: Physics
    seen: tuple[tuple[Room, tuple[int, ...]], ...]
    room: Room

    @classmethod
    def of(cls, world: World) -> RoomState:
        assert isinstance(world, PhysicsWorld)
        return cls(world.physics, tuple(world.draw_examples()), world.room)


@dataclass
class PhysicsDynamics(Dynamics[RoomState]):
    """The model says how far the walker comes, and nothing of doors, keys and boxes: those follow the true rules."""

    task: PhysicsPredictor
    answer: Callable[[Sequence[PhysicsSituation]], Sequence[str]]

    def show(self, state: RoomState) -> str:
        return show_map(state.physics, state.room)

    def predict(
        self, pairs: Sequence[tuple[RoomState, str]], outcomes: int = 1, seed: int = 0
    ) -> list[list[Imagined[RoomState]]]:
        cases = [
            Drawn(state.physics, state.seen, state.room, WORDS.index(word)).case(self.task.config.view, "", "")
            for state, word in pairs
            if word in WORDS
        ]
        answers = zip(cases, self.answer(cases) if cases else (), strict=True)
        # What is no word leaves everything as it is.
        states = [_move(*pair, self.task, *next(answers)) if pair[1] in WORDS else pair[0] for pair in pairs]
        return [[Imagined(state)] * outcomes for state in states]


def _move(
    state: RoomState, word: str, task: PhysicsPredictor, case: PhysicsSituation, text: str
) -> RoomState | Malformed:
    """The walker where an answer leads; no answer leads through the edge."""
    way, room, cell = task.parse(text, case), state.room, state.room.walker
    if isinstance(way, Malformed):
        return way
    for letter in way.replace(STAYED, ""):
        cell = neighbours(room.size)[cell][LETTERS.index(letter)]
        if cell < 0:
            return Malformed(Flaw.SHAPE, "the walker would leave the room")
    return replace(state, room=advance(state.physics, room, WORDS.index(word))._replace(walker=cell))


@dataclass(frozen=True)
class BookState:
    """The objects of a rulebook game after some steps, and the steps of the game that were observed before."""

    game: Game
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
