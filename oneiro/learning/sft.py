"""Supervised learning: cross-entropy on the tokens that carry a cross-entropy weight."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from pydantic import Field

from oneiro import seeds
from oneiro.episode import Row
from oneiro.learning import checkpoint
from oneiro.learning.example import Example
from oneiro.learning.learner import Learner, LearnerSettings
from oneiro.models.language import LanguageModel
from oneiro.recipe import Settings

Log = Callable[[int, dict[str, float]], None]


class SftSettings(Settings):
    learner: LearnerSettings = LearnerSettings()
    batch: int = Field(64, ge=1)
    epochs: float = Field(1.0, gt=0)
    """Passes over the data; a part of one is allowed."""
    checkpoint_every: int = Field(200, ge=1)


def steps_of(settings: SftSettings, rows: int) -> int:
    return max(1, round(settings.epochs * rows / settings.batch))


def order(rows: int, seed: int, step: int, batch: int) -> list[int]:
    """The rows of update `step`: consecutive parts of an endless chain of shuffles; resuming needs no cursor."""
    chosen = []
    for position in range(step * batch, (step + 1) * batch):
        epoch, place = divmod(position, rows)
        chosen.append(int(_shuffle(rows, seed, epoch)[place]))
    return chosen


def _shuffle(rows: int, seed: int, epoch: int) -> np.ndarray:
    key = (rows, seed, epoch)
    if key not in _SHUFFLES:
        _SHUFFLES.clear()
        _SHUFFLES[key] = seeds.generator(seed, "shuffle", epoch).permutation(rows)
    return _SHUFFLES[key]


_SHUFFLES: dict[tuple[int, int, int], np.ndarray] = {}


def train(
    language: LanguageModel,
    rows: Sequence[Row],
    held_out: Sequence[Row],
    settings: SftSettings,
    folder: Path,
    seed: int,
    log: Log,
    rewind: Callable[[int], None] = lambda step: None,
) -> Path:
    """Train on `rows`, resuming from `folder`; logs every step and, at the end, the loss on `held_out`. Returns the
    checkpoint.
    """
    steps = steps_of(settings, len(rows))
    learner = Learner(language.backbone, settings.learner, steps)
    learners = {"policy": learner}
    start = checkpoint.restore(folder, language, learners)
    rewind(start)
    for step in range(start, steps):
        chosen = order(len(rows), seed, step, settings.batch)
        statistics = learner.update([Example.of(rows[i]) for i in chosen])
        if step + 1 == steps and held_out:
            statistics["held_out_ce"] = mean_loss(learner, held_out)
        log(step + 1, statistics)
        if (step + 1) % settings.checkpoint_every == 0 or step + 1 == steps:
            checkpoint.save(folder, step + 1, language, learners)
    found = checkpoint.latest(folder)
    assert found is not None
    return found


def mean_loss(learner: Learner, rows: Sequence[Row]) -> float:
    """Mean cross-entropy per weighted token."""
    examples = [Example.of(row) for row in rows]
    scores, _ = learner.logprobs(examples)
    weight = sum(float(e.weights["ce"].sum()) for e in examples)
    return -sum(float((e.weights["ce"] * s).sum()) for e, s in zip(examples, scores, strict=True)) / weight
