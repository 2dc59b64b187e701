"""The prediction task of grid worlds: given the picture of a state and an action, what is the next picture?

task = GridPredictor(GridPredictorConfig(world={"name": "frozen-lake", "view": "spaced"}))
task.prompt(GridTransition("P _\\n_ G", "Right", "_ P\\n_ G"))
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from oneiro.tasks.base import Flaw, Malformed, Messages, Predictor, Reward
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


class GridPredictorConfig(BaseModel):
    """Which world is predicted, in which view."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    world: WorldChoice = WorldChoice(name="frozen-lake", view="spaced")
    """Its settings decide what a possible state is; the view must show all of it (`World.parse`)."""


class GridPredictor(Predictor[GridTransition, Messages, str, str]):
    """Exact prediction of the next state. The reward is 1 for the exact state and 0 otherwise."""

    name: ClassVar[str] = "grid"
    Config: ClassVar[type[GridPredictorConfig]] = GridPredictorConfig

    def __init__(self, config: GridPredictorConfig | None = None) -> None:
        self.config = config if config is not None else GridPredictorConfig()
        self.world = self.config.world.maker()()

    @property
    def reward_range(self) -> tuple[float, float]:
        return 0.0, 1.0

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
