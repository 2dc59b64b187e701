"""Winning plans among recorded steps, for a model to simulate on its own predictions.

The steps of one plan of ByteSized32 stand partly in train and partly in test, so a simulation goes through both; the
note of the table says how many of its steps the model may have been taught.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from oneiro.runtime import seeds
from oneiro.tasks.textgame.predictor import TextGamePredictor
from oneiro.tasks.textgame.rollout import (
    Predict,
    TrueRollout,
    accuracy_by_depth,
    recorded_plans,
    recorded_predictor,
)
from oneiro.worlds.textgame.dataset import Dataset, open_dataset, splits
from oneiro.worlds.textgame.state import Transition

TRAIN = "train"


@dataclass(frozen=True)
class Plans:
    """The first steps of recorded plans."""

    steps: Sequence[Sequence[Transition]]
    held_out: Collection[str] = ()
    """Games whose train rows were not learned from."""

    def __bool__(self) -> bool:
        return bool(self.steps)

    def taught(self, row: Transition) -> bool:
        """Whether the answer to a step was there to be learned."""
        return (row.split == TRAIN or bool(row.duplicate)) and row.game not in self.held_out

    def some(self, most: int, seed: int) -> Plans:
        """At most so many of them, drawn evenly."""
        drawn = seeds.generator(seed, "recorded plans").permutation(len(self.steps))[:most]
        return replace(self, steps=[self.steps[int(i)] for i in sorted(drawn)])

    def measure(self, task: TextGamePredictor, predict: Predict) -> list[dict[str, Any]]:
        """How often a predictor is right at each depth (see `accuracy_by_depth`)."""
        trajectories = [TrueRollout.recorded(steps) for steps in self.steps]
        return accuracy_by_depth(task, predict, trajectories, max(map(len, self.steps), default=0))

    def baselines(self, task: TextGamePredictor) -> dict[str, Predict]:
        """That nothing ever changes, and the recorded truth."""
        steps = [row for plan in self.steps for row in plan]
        return {
            "no change": lambda cases: [task.no_change(case) for case in cases],
            "perfect": recorded_predictor(task, steps),
        }

    @property
    def note(self) -> str:
        """What the plans are, and how much of them was there to be learned."""
        steps = [row for plan in self.steps for row in plan]
        taught = sum(map(self.taught, steps))
        return f"{len(self.steps)} recorded plans; {taught} of these {len(steps)} steps also stand in train."


def find_plans(
    folder: str | Path, split: str, depth: int, *, games: Collection[str] = (), held_out: Collection[str] = ()
) -> Plans:
    """The plans that go through a split of a folder, `depth` steps of each; its train rows fill the gaps.

    A plan that stands wholly in train would only show what was memorised, and is left out.
    """
    parts = [open_dataset(folder, name) for name in dict.fromkeys((split, TRAIN)) if name in splits(folder)]
    rows = [row for part in parts for row in _planned(part) if not games or row.game in {*games, *held_out}]
    found = Plans([plan[:depth] for plan in recorded_plans(rows)], held_out)
    return replace(found, steps=[plan for plan in found.steps if not all(map(found.taught, plan))])


def _planned(data: Dataset) -> Iterator[Transition]:
    return (data[number] for number, row in enumerate(data.rows) if row.on_plan)
