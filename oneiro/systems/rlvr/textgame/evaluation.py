"""Test rows put to a model, and how its answers compare: in a run and on the command line."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from oneiro import seeds
from oneiro.errors import OneiroError
from oneiro.files import write_text
from oneiro.models import language as languages
from oneiro.predictors.textgame.evaluate import Answers, answers_named, evaluate_answers, form_of, published_rows
from oneiro.predictors.textgame.rollout import Predict
from oneiro.predictors.textgame.tables import depth_table, subset_tables, tables
from oneiro.predictors.textgame.task import Scorer, TextGamePredictor, TextGamePredictorConfig
from oneiro.recipe import build
from oneiro.report.table import Table
from oneiro.sampling.engine import Engine, Sample, SamplingSettings
from oneiro.systems.rlvr.textgame.model import Answerer, TextGameMetadata, metadata_of
from oneiro.systems.rlvr.textgame.plans import Plans
from oneiro.worlds.textgame.crawl import UNSEEN
from oneiro.worlds.textgame.dataset import EXAMPLE, Dataset, open_dataset, require_games, splits
from oneiro.worlds.textgame.state import Transition

AT_ONCE = 1024
"""Questions answered between two moves of the progress bar."""
OFFICIAL, OFFICIAL_ROWS = "bytesized32", 2954
"""The data whose published results stand beside ours, and how many test rows those are about."""

Advance = Callable[[int], None]


@dataclass(frozen=True)
class StepEvaluation:
    """The rows that are asked."""

    cases: Sequence[Transition]
    unseen: Sequence[Transition] = ()
    """Rows of held-out games that have a split of their own."""
    held_out: Collection[str] = ()
    """Held-out games that stand among `cases`."""
    official: bool = False
    """`cases` are all official test rows, so published figures belong beside them."""

    @classmethod
    def of(
        cls, test: Dataset, unseen: Dataset | None, held_out: Collection[str], rows: int, seed: int
    ) -> StepEvaluation:
        """At most `rows` of each; 0: all."""
        cases = some(test, rows, seed)
        official = (test.name, test.split, len(cases)) == (OFFICIAL, "test", OFFICIAL_ROWS)
        return cls(cases, some(unseen, rows, seed) if unseen is not None else (), held_out, official)

    @property
    def rows(self) -> list[Transition]:
        return [*self.cases, *self.unseen]

    def measure(self, task: TextGamePredictor, answers: Answers, scorer: Scorer) -> dict[str, Any]:
        """The row of one set of answers (see `evaluate_answers`)."""
        if not self.unseen:
            return evaluate_answers(self.cases, answers, scorer, task=task, held_out=self.held_out)
        aside = {case.id for case in self.unseen}
        known = answers if callable(answers) else {key: text for key, text in answers.items() if key not in aside}
        found = evaluate_answers(self.cases, known, scorer, task=task, held_out=self.held_out)
        rest = answers if callable(answers) else lambda case: answers.get(case.id, "")
        return found | {"held_out": evaluate_answers(self.unseen, rest, scorer, task=task)["all"]}

    def compare(self, task: TextGamePredictor, rows: Mapping[str, dict[str, Any]], scorer: Scorer) -> dict[str, Any]:
        """Measured rows with "no change" and "perfect" above them and, where they belong, the published ones below."""
        baselines = {name: answers for name, answers in task.baselines().items() if name not in rows}
        trivial = {name: self.measure(task, answers, scorer) for name, answers in baselines.items()}
        published = published_rows(task.config.transition) if self.official else []
        return {"rows": {**trivial, **rows}, "published": published}


def some(data: Dataset, rows: int, seed: int) -> list[Transition]:
    """At most `rows` rows, drawn evenly and in their order; 0: all."""
    if not rows or rows >= len(data):
        return list(data)
    return [data[int(i)] for i in sorted(seeds.generator(seed, "test rows").permutation(len(data))[:rows])]


def step_tables(compared: dict[str, Any]) -> list[Table]:
    """Accuracy on all rows, on clean ones and on held-out games; then game by game, errors, and depth if measured."""
    accuracy, games, errors = tables(compared)
    deep = [depth_table(compared["depth"], compared["plans"])] if "depth" in compared else []
    return [accuracy, *subset_tables(compared), games, errors, *deep]


def answer(answerer: Answerer, cases: Sequence[Transition], advance: Advance) -> list[Sample]:
    """The greedy answer to each case, in parts."""
    found: list[Sample] = []
    for start in range(0, len(cases), AT_ONCE):
        part = cases[start : start + AT_ONCE]
        found += answerer.greedy(part)
        advance(len(part))
    return found


# What `oneiro eval text-game` does -----------------------------------------------------------------------------------

UNTAUGHT = TextGameMetadata(
    predictor=TextGamePredictor.name,
    task=TextGamePredictorConfig(reasoning=True),
    sampling=SamplingSettings(max_tokens=2048),
)
"""How a model is asked that was never taught: with instructions and rules, thinking first."""


def open_evaluation(
    folder: str | Path, split: str = "test", rows: int = 0, held_out: Collection[str] = ()
) -> StepEvaluation:
    """The rows of a split, those of `held_out` games reported by themselves; with "test" go the held-out games that a
    folder of our own keeps apart.
    """
    data = open_dataset(folder, split)
    unseen = open_dataset(folder, UNSEEN) if split == "test" and UNSEEN in splits(folder) else None
    require_games(held_out, folder, data, unseen)
    return StepEvaluation.of(data, unseen, held_out, rows, seed=0)


def score_answers(
    evaluation: StepEvaluation, answers: str, scorer: Scorer, settings: Mapping[str, Any]
) -> dict[str, Any]:
    """Compare "perfect", "no-change" or a file of any model's raw outputs; `settings` say in which form those are."""
    task = TextGamePredictor(build(TextGamePredictorConfig, {"rules": "none", **settings}))
    name = answers.replace("-", " ")
    label = name if name in task.baselines() else Path(answers).name
    found = answers_named(task, answers)
    if not callable(found) and (form := form_of(task, evaluation.rows, found)) is not None:
        asked = task.config.output
        raise OneiroError(f"{answers} has next to no answer in the form output={asked}; give --settings output={form}")
    return evaluation.compare(task, {label: evaluation.measure(task, found, scorer)}, scorer)


def open_model(
    folder: str | Path,
    model: str,
    split: str,
    rows: int,
    settings: Mapping[str, Any],
    max_batch_size: int = 256,
    held_out: Collection[str] = (),
) -> tuple[StepEvaluation, Answerer]:
    """A model and the rows it is to answer; it is asked as it was taught, changed by `settings`."""
    evaluation = open_evaluation(folder, split, rows, held_out)  # before the model: a wrong folder shows at once
    language = languages.load(model)
    metadata = metadata_of(language, model) or UNTAUGHT
    examples = list(open_dataset(folder, EXAMPLE)) if EXAMPLE in splits(folder) else []
    config = build(TextGamePredictorConfig, {**metadata.task.model_dump(), **settings})
    task = TextGamePredictor(config, rules=open_dataset(folder, split).rules, examples=examples)
    unseen = tuple(dict.fromkeys((*held_out, *metadata.held_out)))
    return replace(evaluation, held_out=unseen), Answerer(task, Engine(language, max_batch_size), metadata.sampling)


def score_model(
    evaluation: StepEvaluation,
    answerer: Answerer,
    name: str,
    scorer: Scorer,
    keep: Path | None,
    advance: Advance,
    plans: Plans,
) -> dict[str, Any]:
    """Let a model answer and compare; `keep` is a file for its raw outputs, `plans` is what it simulates after that."""
    samples = answer(answerer, evaluation.rows, advance)
    answers = {case.id: answerer.text(sample) for case, sample in zip(evaluation.rows, samples, strict=True)}
    if keep is not None:
        write_text(keep, "".join(json.dumps({"id": key, "answer": text}) + "\n" for key, text in answers.items()))
    compared = evaluation.compare(answerer.task, {name: evaluation.measure(answerer.task, answers, scorer)}, scorer)
    if not plans or answerer.task.config.transition != "full":
        return compared
    predictors: dict[str, Predict] = {**plans.baselines(answerer.task), name: answerer}
    deep = {label: plans.measure(answerer.task, predict) for label, predict in predictors.items()}
    return {**compared, "depth": deep, "plans": plans.note}
