"""Dynamics of grid worlds: a trained language model, a lookup, and the world itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from oneiro.models.metadata import ModelMetadata
from oneiro.runtime import seeds
from oneiro.sampling.settings import SamplingSettings
from oneiro.tasks.answering import AnsweringModel
from oneiro.tasks.base import Dynamics, Flaw, Imagined, Malformed
from oneiro.tasks.grid.predictor import GridPredictor, GridPredictorConfig, GridSituation, Lookup
from oneiro.worlds.grid.frozen_lake.world import WORDS, FrozenLake, neighbours, slipped


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
    lookup: Lookup

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
            moved = neighbours(lake.size)[lake.player, slipped(WORDS.index(action), noise, rate)]
            lake = lake._replace(player=int(moved))
        self.world.lake, self.world.start = lake, lake.player
        return Imagined(self.world.render())
