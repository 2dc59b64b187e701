"""A predictor of rulebooks as dynamics: what actions do to the objects of a game."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from oneiro.runtime.seeds import generator
from oneiro.tasks.base import Dynamics, Imagined, Malformed
from oneiro.tasks.rules.rulebook.cases import Observed, RuleCase, observe
from oneiro.tasks.rules.rulebook.evaluation import Predict
from oneiro.tasks.rules.rulebook.predictor import RulebookPredictor
from oneiro.worlds.base import World
from oneiro.worlds.rules.rulebook.drawing import RulebookGame
from oneiro.worlds.rules.rulebook.language import Outcome, Things
from oneiro.worlds.rules.rulebook.world import RulebookWorld


@dataclass(frozen=True)
class BookState:
    """The objects of a rulebook game after some steps, and the steps of the game that were observed before."""

    game: RulebookGame
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
