"""Supervised learning: cross-entropy on the tokens that carry a cross-entropy weight."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

import numpy as np

from oneiro.episode import Row
from oneiro.learning import checkpoint, finite
from oneiro.learning.batch import Example
from oneiro.learning.learner import Learner
from oneiro.learning.settings import SftSettings
from oneiro.models.language import LanguageModel
from oneiro.runtime import seeds
from oneiro.runtime.interrupt import Saving

Log = Callable[[int, dict[str, float]], None]


@dataclass(frozen=True)
class Schedule:
    """Which rows an update learns from: groups of rows that stay together, drawn from a chain of shuffles.

    Rows are numbered group by group; without groups each stands for itself. An update takes as many groups as
    have `batch` rows on average.
    """

    steps: int
    at_once: int
    ends: Sequence[int]

    @classmethod
    def of(cls, settings: SftSettings, rows: int, group_sizes: Sequence[int] | None) -> Schedule:
        """`group_sizes`: the sizes of consecutive groups."""
        ends = list(accumulate(group_sizes)) if group_sizes is not None else range(1, rows + 1)
        at_once = max(1, round(settings.batch * len(ends) / rows))
        return cls(max(1, round(settings.epochs * len(ends) / at_once)), at_once, ends)

    def rows(self, seed: int, step: int) -> list[int]:
        chosen = order(len(self.ends), seed, step, self.at_once)
        return [row for i in chosen for row in range(self.ends[i - 1] if i else 0, self.ends[i])]


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
        _SHUFFLES.clear()  # an epoch is left for good once the next begins
        _SHUFFLES[key] = seeds.generator(seed, "shuffle", epoch).permutation(rows)
    return _SHUFFLES[key]


_SHUFFLES: dict[tuple[int, int, int], np.ndarray] = {}


def batches(rows: Sequence[Row], schedule: Schedule, seed: int, start: int = 0) -> Generator[list[Example]]:
    """What each update from `start` on learns from; made while the one before it is learned."""

    def examples(step: int) -> list[Example]:
        return [Example.of(rows[i]) for i in schedule.rows(seed, step)] if step < schedule.steps else []

    # One thread: rows may read files and tokenise, and their order is that of the updates.
    with ThreadPoolExecutor(1) as ahead:
        coming = ahead.submit(examples, start)
        for step in range(start, schedule.steps):
            present, coming = coming.result(), ahead.submit(examples, step + 1)
            yield present


HELD_OUT_EVALUATIONS = 4
"""How often in a training the loss on held-out rows is measured, the last time at its end."""


def train(
    language: LanguageModel,
    rows: Sequence[Row],
    held_out: Sequence[Row],
    settings: SftSettings,
    folder: Path,
    seed: int,
    log: Log,
    rewind: Callable[[int], None] = lambda step: None,
    group_sizes: Sequence[int] | None = None,
    say: Callable[[str], object] = warnings.warn,
    saving: Saving | None = None,
) -> Path:
    """Train on `rows`, resuming from `folder`; returns the checkpoint. Logs every step and `HELD_OUT_EVALUATIONS` times
    the loss on `held_out`.

    `group_sizes` are those of consecutive rows that are learned together, so that what they share is computed once.
    `say` hears of damaged checkpoints; `saving` decides about checkpoints between those by steps.
    """
    schedule = Schedule.of(settings, len(rows), group_sizes)
    steps = schedule.steps
    learner = Learner(language.backbone, settings.learner, steps, seed=seed)
    checkpoint.adopt_masters(language, learner)
    learners = {"policy": learner}
    start = checkpoint.restore(folder, language, learners, say=say, keep=settings.keep_checkpoints)
    finite.require_start(language.name, [language.backbone])
    rewind(start)
    saving = saving or Saving()

    with closing(batches(rows, schedule, seed, start)) as coming, saving.defer():
        for step, present in enumerate(coming, start):
            with finite.at_step(step + 1):
                statistics = learner.update(present)
                if group_sizes is not None:
                    statistics["rows"] = float(len(present))
                if held_out and (step + 1) * HELD_OUT_EVALUATIONS // steps > step * HELD_OUT_EVALUATIONS // steps:
                    statistics["held_out_ce"] = mean_loss(learner, held_out)
                    finite.require(statistics)
            log(step + 1, statistics)
            if (step + 1) % settings.checkpoint_every == 0 or step + 1 == steps or saving.due():
                with finite.at_step(step + 1):
                    finite.require_weights([language.backbone])
                checkpoint.save(folder, step + 1, language, learners, keep=settings.keep_checkpoints)
                saving.done()
            saving.stop()
    return checkpoint.last(folder)


def mean_loss(learner: Learner, rows: Sequence[Row]) -> float:
    """Mean cross-entropy per weighted token."""
    examples = [Example.of(row) for row in rows]
    scores, _ = learner.logprobs(examples)
    weight = sum(float(e.weights["ce"].sum()) for e in examples)
    return -sum(float((e.weights["ce"] * s).sum()) for e, s in zip(examples, scores, strict=True)) / weight


def overfitting(losses: Sequence[tuple[int, float]]) -> str | None:
    """A warning where the loss on held-out rows, `(step, loss)` in order, has risen again; else None."""
    if len(losses) < 2:
        return None
    best_step, best = min(losses, key=lambda measured: measured[1])
    step, last = losses[-1]
    if last <= 1.05 * best:  # a slight rise is no reason to warn
        return None
    return (
        f"the loss on held-out rows was {best:.3g} after {best_step:,} of {step:,} steps and is {last:.3g} now: "
        "the model overfits; use fewer steps or more data"
    )
