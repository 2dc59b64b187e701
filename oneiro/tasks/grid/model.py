"""Dynamics of grid worlds: a trained language model, a lookup, and the world itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from oneiro.episode import Row, Tokens, given
from oneiro.models.chat import ChatFormat
from oneiro.models.language import LanguageModel
from oneiro.models.metadata import ModelMetadata
from oneiro.runtime import seeds
from oneiro.sampling.engine import Engine, Sample, SamplingSettings
from oneiro.tasks.base import Flaw, Malformed
from oneiro.tasks.dynamics import Dynamics, Imagined
from oneiro.tasks.grid.lookup import Lookup
from oneiro.tasks.grid.predictor import GridPredictor, GridPredictorConfig, GridSituation, GridTransition
from oneiro.worlds.grid.frozen_lake.world import WORDS, FrozenLake, neighbours, slipped


class GridMetadata(ModelMetadata):
    """How a predictor of grids is prompted."""

    what = "a predictor of grids"
    kind: Literal["grid"] = "grid"
    task: GridPredictorConfig
    sampling: SamplingSettings


@dataclass
class GridModel(Dynamics[str]):
    """A predictor with the engine that answers its prompts; one outcome is the greedy answer."""

    task: GridPredictor
    engine: Engine
    sampling: SamplingSettings

    @property
    def language(self) -> LanguageModel:
        return self.engine.language

    @cached_property
    def chat(self) -> ChatFormat:
        return ChatFormat(self.language.tokenizer)

    def prompt(self, case: GridSituation) -> Tokens:
        return self.chat.opening(self.task.prompt(case)[0]["content"])

    def row(self, case: GridTransition) -> Row:
        """A training row: the loss is on the next state alone."""
        answer = self.chat.encode(self.task.target(case))
        return Row(
            [
                given(self.prompt(case)),
                given(answer, "assistant", ce=1.0),
                given([self.chat.end], "assistant", ce=1.0),
            ]
        )

    def predict(self, pairs: Sequence[tuple[str, str]], outcomes: int = 1, seed: int = 0) -> list[list[Imagined[str]]]:
        cases = [GridSituation(state, action) for state, action in pairs]
        greedy = {"temperature": 0.0} if outcomes == 1 else {}
        sampling = self.sampling.model_copy(update=greedy)
        found = self.engine.generate([self.prompt(case) for case in cases], outcomes, sampling, seed=seed)
        return [
            [Imagined(self.task.parse(self.text(sample), case), len(sample.tokens)) for sample in samples]
            for case, samples in zip(cases, found, strict=True)
        ]

    def text(self, sample: Sample) -> str:
        """An answer without its end token."""
        ended = len(sample.tokens) and int(sample.tokens[-1]) in self.language.end_tokens
        return self.language.decode(sample.tokens[:-1] if ended else sample.tokens)


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
