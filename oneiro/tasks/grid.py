"""Grid worlds as a prediction task: given the picture of a state and an action, what is the next picture?

task = GridPredictor(GridPredictorConfig(world={"name": "frozen-lake", "view": "spaced"}))
task.prompt(GridTransition("P _\\n_ G", "Right", "_ P\\n_ G"))
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from oneiro.models.metadata import ModelMetadata
from oneiro.recipe import Settings
from oneiro.runtime import seeds
from oneiro.sampling.settings import SamplingSettings
from oneiro.tasks.answering import AnsweringModel
from oneiro.tasks.base import Cached, Dynamics, Flaw, Imagined, LearnedWorld, Malformed, Messages, Predictor, Reward
from oneiro.worlds.base import Step, World, WorldConfig
from oneiro.worlds.grid.frozen_lake.world import WORDS, FrozenLake, neighbours, slip
from oneiro.worlds.registry import WorldChoice

MAX_CHARACTERS = 5000
"""Of an answer that may be a grid."""


@dataclass(frozen=True, slots=True)
class GridSituation:
    """All a predictor may know: a state in the world's view, and the action about to be taken."""

    state: str
    action: str


@dataclass(frozen=True, slots=True)
class GridTransition(GridSituation):
    """One true step."""

    after: str


class GridLookup:
    """A baseline that learns nothing: the nearest of `cases` with the same action, and its change made to the state.

    Near means few characters that differ; texts of another length are never near. The characters that the nearest step
    changed are written into the asked state. Among equally near steps the first counts; an action without steps changes
    nothing.
    """

    def __init__(self, cases: Sequence[GridTransition]) -> None:
        rows: dict[tuple[str, int], dict[tuple[str, str], None]] = {}
        for case in cases:
            if len(case.state) == len(case.after):
                rows.setdefault((case.action, len(case.state)), {})[case.state, case.after] = None
        self._known = {
            key: (np.stack([_codes(state) for state, _ in pairs]), np.stack([_codes(after) for _, after in pairs]))
            for key, pairs in rows.items()
        }

    def __call__(self, case: GridSituation) -> str:
        known = self._known.get((case.action, len(case.state)))
        if known is None:
            return case.state
        codes, (states, afters) = _codes(case.state), known
        nearest = int((states != codes).sum(axis=1).argmin())
        changed = states[nearest] != afters[nearest]
        return "".join(map(chr, np.where(changed, afters[nearest], codes)))


def _codes(text: str) -> NDArray[np.int32]:
    return np.array([ord(letter) for letter in text], np.int32)


class GridPredictorConfig(Settings):
    """Which world is predicted, in which view."""

    world: WorldChoice = WorldChoice(name="frozen-lake", view="spaced")
    """Its settings decide what a possible state is; the view must show all of it (`World.parse`)."""


class GridPredictor(Predictor[GridTransition, Messages, str, str]):
    """Exact prediction of the next state. The reward is 1 for the exact state and 0 otherwise."""

    name: ClassVar[str] = "grid"

    def __init__(self, config: GridPredictorConfig | None = None) -> None:
        self.config = config if config is not None else GridPredictorConfig()
        self.world = self.config.world.maker()()

    def prompt(self, case: GridSituation) -> Messages:
        return [{"role": "user", "content": f"{case.state}\n{case.action}"}]

    def target(self, case: GridTransition) -> str:
        return case.after

    def parse(self, text: str, case: GridSituation) -> str | Malformed:
        text = text.strip("\n")
        if not text:
            return Malformed(Flaw.EMPTY)
        if len(text) > MAX_CHARACTERS:
            return Malformed(Flaw.BROKEN, f"{len(text)} characters")
        return text if self.world.parse(text) is not None else Malformed(Flaw.SHAPE)

    def reward(self, text: str, case: GridTransition) -> Reward:
        right = float(self.parse(text, case) == case.after)
        return Reward(right, {"exact": right})

    def metrics(self, text: str, case: GridTransition) -> dict[str, float]:
        prediction = self.parse(text, case)
        return {"exact": float(prediction == case.after), "parsed": float(not isinstance(prediction, Malformed))}

    def baselines(self, train: Sequence[GridTransition] = ()) -> dict[str, Callable[[GridTransition], str]]:
        """The answer that nothing changes, a lookup among training steps, and the true answer."""
        lookup = {"lookup": GridLookup(train)} if len(train) else {}
        return {"no change": lambda case: case.state, **lookup, "perfect": self.target}


# At work --------------------------------------------------------------------------------------------------------------


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


class LearnedFrozenLake(LearnedWorld, FrozenLake):  # type: ignore[misc]
    """Starts on a true map and continues in predictions, on which the lake's own rule decides reward and end.

    `dynamics` may remember (`Cached`): where many worlds are stepped in turn, ask it for all their pairs before.
    """

    name: ClassVar[str] = "learned-frozen-lake"

    def __init__(self, dynamics: Dynamics[str], config: WorldConfig | None = None) -> None:
        super().__init__(config)
        self.dynamics = dynamics

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
