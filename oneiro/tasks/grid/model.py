"""Dynamics of grid worlds: a trained language model, a lookup, and the world itself; and a lake that is predicted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from oneiro.models.metadata import ModelMetadata
from oneiro.runtime import seeds
from oneiro.sampling.settings import SamplingSettings
from oneiro.tasks.answering import AnsweringModel
from oneiro.tasks.base import Cached, Dynamics, Flaw, Imagined, LearnedWorld, Malformed
from oneiro.tasks.grid.predictor import GridLookup, GridPredictor, GridPredictorConfig, GridSituation
from oneiro.worlds.base import Step, World, WorldConfig
from oneiro.worlds.grid.frozen_lake.world import WORDS, FrozenLake, neighbours, slip


class GridMetadata(ModelMetadata):
    """How a predictor of grids is prompted."""

    what = "a predictor of grids"
    kind: Literal["grid"] = "grid"
    task: GridPredictorConfig
    sampling: SamplingSettings


class GridModel(AnsweringModel[GridPredictor, GridSituation], Dynamics[str]):
    """A predictor with the engine that answers its prompts; one outcome is the greedy answer."""

    def predict(self, pairs: Sequence[tuple[str, str]], outcomes: int = 1, seed: int = 0) -> list[list[Imagined[str]]]:
        cases = [GridSituation(state, action) for state, action in pairs]
        answers = [[one] for one in self.greedy(cases)] if outcomes == 1 else self.sample(cases, outcomes, seed)
        return [
            [Imagined(self.task.parse(self.text(sample), case), len(sample.tokens)) for sample in samples]
            for case, samples in zip(cases, answers, strict=True)
        ]


@dataclass
class LookupModel(Dynamics[str]):
    """Memory in the place of a model: it always gives one outcome and takes no tokens."""

    task: GridPredictor
    lookup: GridLookup

    def predict(self, pairs: Sequence[tuple[str, str]], outcomes: int = 1, seed: int = 0) -> list[list[Imagined[str]]]:
        cases = [GridSituation(state, action) for state, action in pairs]
        return [[Imagined(self.task.parse(self.lookup(case), case))] * outcomes for case in cases]


class TrueLake(Dynamics[str]):
    """The rules of the lake themselves: what search reaches where every prediction is right."""

    def __init__(self, world: FrozenLake) -> None:
        self.world = world

    def predict(self, pairs: Sequence[tuple[str, str]], outcomes: int = 1, seed: int = 0) -> list[list[Imagined[str]]]:
        rng = seeds.generator(seed, "true lake")
        return [[self._step(state, action, rng.random()) for _ in range(outcomes)] for state, action in pairs]

    def _step(self, state: str, action: str, noise: float) -> Imagined[str]:
        lake = self.world.parse(state)
        if lake is None or action not in WORDS:
            return Imagined(Malformed(Flaw.SHAPE))
        if not (lake.arrived or lake.fallen):
            rate = self.world.config.success_rate
            moved = neighbours(lake.size)[lake.player, slip(WORDS.index(action), noise, rate)]
            lake = lake._replace(player=int(moved))
        self.world.lake, self.world.start = lake, lake.player
        return Imagined(self.world.render())


class LearnedFrozenLake(LearnedWorld, FrozenLake):
    """Starts on a true map and continues in predictions, on which the lake's own rule decides reward and end.

    `dynamics` may remember (`Cached`): where many worlds are stepped in turn, ask it for all their pairs before.
    """

    name: ClassVar[str] = "learned-frozen-lake"

    def __init__(self, dynamics: Dynamics[str], config: WorldConfig | None = None) -> None:
        super().__init__(config)
        self.dynamics = dynamics

    def ceiling(self) -> None:  # type: ignore[override]
        return None  # the rules do not hold in here

    def step(self, action: str) -> Step:
        if self.over:
            return self.ended(success=self.lake.arrived)
        word = word_of(action)
        if word is None:
            return self.outcome(0.0, valid=False, effective=False, malformed=False)
        before = self.lake
        predicted = self.dynamics.predict([(self.render(), word)])[0][0].state
        lake = None if isinstance(predicted, Malformed) else self.parse(predicted)
        self.lake = lake if lake is not None else before
        arrived = self.lake.arrived
        return self.outcome(
            float(arrived),
            done=arrived or self.lake.fallen,
            success=arrived,
            effective=self.lake != before,
            malformed=lake is None,
        )


def predict_together(dynamics: Cached[str], steps: Sequence[tuple[World, str]]) -> None:
    """Predict the next step of many learned lakes in one call; those that share `dynamics` find it remembered."""
    words = [(world.render(), word_of(action)) for world, action in steps]
    dynamics.predict([(state, word) for state, word in words if word is not None])


def word_of(action: str) -> str | None:
    """The lake's word for an action as an agent may write it."""
    written = action.strip().lower()
    return next((word for word in WORDS if word.lower() == written), None)
