"""The steps of an RLVR run on web pages: recorded or opened, and sampled for SFT and RL."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from oneiro.models.chat import ChatFormat
from oneiro.rundir.run import Run
from oneiro.runtime import seeds
from oneiro.runtime.errors import OneiroError
from oneiro.tasks.answering import some
from oneiro.tasks.webpage.content import decided_by_content, site_names
from oneiro.tasks.webpage.evaluation import distinct
from oneiro.tasks.webpage.parquet import read_parquet, write_parquet
from oneiro.tasks.webpage.predictor import WebPagePredictor
from oneiro.tasks.webpage.recipe import WebPageRecipe
from oneiro.tasks.webpage.record import Collection, steps_of
from oneiro.tasks.webpage.state import PageTransition

TRAIN, TEST = "train", "test"
VALIDATION_EVERY = 8
"""One training episode in so many is a validation episode: never learned from, looked at during RL."""


@dataclass(frozen=True)
class WebPageData:
    """The steps of a run."""

    train: Sequence[PageTransition]
    validation: Sequence[PageTransition]
    test: Sequence[PageTransition]
    """Every question once."""
    episodes: Sequence[PageTransition]
    """All test steps in order, for rollouts."""


def data_stage(recipe: WebPageRecipe, run: Run) -> dict[str, Any]:
    """Record steps of training and test tasks, or look whether the given files can be read."""
    settings = recipe.data
    if not settings.train:
        for split in (TRAIN, TEST):
            record(recipe, run, split)
    data = open_data(recipe, run)
    sizes = {"train": len(data.train), "validation": len(data.validation), "test": len(data.test)}
    run.say(f"data: {', '.join(f'{count:,} {name}' for name, count in sizes.items())} distinct steps")
    for name, count in sizes.items():
        if not count:
            raise OneiroError(f"data: no {name} steps; raise data.episodes or data.test_episodes")
    return sizes


def record(recipe: WebPageRecipe, run: Run, split: str) -> None:
    """Play tasks of a split: test tasks have other content and templates that training never has."""
    settings, test = recipe.data, split == TEST
    collection = Collection(
        world="web",
        settings={"sites": settings.sites, **({"test": "unseen"} if test else {})},
        policy=settings.policy,
        episodes=settings.test_episodes if test else settings.episodes,
        split=split,
        steps=settings.steps,
        probes=settings.probes,
        oracle_share=settings.oracle_share,
        seed=seeds.derive(recipe.seed, "web data"),
    )
    with run.progress(f"data, {split}", collection.episodes) as bar:
        write_parquet(
            folder(run) / f"{split}.parquet", steps_of(collection, bar.advance), WebPagePredictor(recipe.task)
        )


def folder(run: Run) -> Path:
    return run.path / "data"


def open_data(recipe: WebPageRecipe, run: Run) -> WebPageData:
    """The splits. Validation episodes leave train, with every question that they share with it."""
    settings, stops = recipe.data, bool(recipe.task.heads)
    train = read_parquet(Path(settings.train).expanduser() if settings.train else folder(run) / f"{TRAIN}.parquet")
    test = read_parquet(Path(settings.test).expanduser() if settings.test else folder(run) / f"{TEST}.parquet")
    episodes = list(dict.fromkeys(case.episode for case in train))
    chosen = {*episodes[VALIDATION_EVERY - 1 :: VALIDATION_EVERY]}
    learned = distinct((case for case in train if case.episode not in chosen), stops)
    known = {case.question for case in learned}
    apart = distinct((case for case in train if case.episode in chosen), stops)
    validation = [case for case in apart if case.question not in known]
    data = WebPageData(learned, validation, distinct(test, stops), test)
    if not settings.content:
        return data
    names, lines = site_names(learned), recipe.task.lines
    train, validation, cases = (
        [case for case in part if decided_by_content(case, lines, names)]
        for part in (data.train, data.validation, data.test)
    )
    return WebPageData(train, validation, cases, test)


def some_steps(cases: Sequence[PageTransition], rows: int, seed: int) -> list[PageTransition]:
    return some(cases, rows, seed, "test steps")


class StepSampler:
    """An endless list of training steps: a pure function of the seed and the sample's number.

    `changed_share` of them change the page; within each part every step comes once before any comes again.
    """

    def __init__(
        self, task: WebPagePredictor, cases: Sequence[PageTransition], changed_share: float, seed: int
    ) -> None:
        self.parts = [[case for case in cases if task.changes(case) is changed] for changed in (True, False)]
        self.share = changed_share if all(self.parts) else float(bool(self.parts[0]))
        self.seed = seed
        self._order = lru_cache(maxsize=8)(self._shuffle)

    def __call__(self, number: int) -> PageTransition:
        before, upto = int(number * self.share), int((number + 1) * self.share)
        part, place = (0, before) if upto > before else (1, number - before)
        epoch, at = divmod(place, len(self.parts[part]))
        return self.parts[part][self._order(part, epoch)[at]]

    def _shuffle(self, part: int, epoch: int) -> list[int]:
        return [int(i) for i in seeds.generator(self.seed, "steps", part, epoch).permutation(len(self.parts[part]))]


def short_enough(
    task: WebPagePredictor, chat: ChatFormat, cases: Sequence[PageTransition], longest: int
) -> list[PageTransition]:
    """The steps whose prompts have at most so many tokens; 0: all."""
    if not longest:
        return list(cases)
    return [case for case in cases if len(chat.opening(task.prompt(case)[0]["content"])) <= longest]
