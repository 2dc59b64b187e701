"""What `oneiro eval text-game` does: any model, or a file of any model's answers, on the rows of a folder."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from oneiro.models import language as languages
from oneiro.recipe import build
from oneiro.runtime.errors import OneiroError
from oneiro.runtime.files import write_lines
from oneiro.sampling.engine import Engine, SamplingSettings
from oneiro.tasks.textgame.accuracy import answers_named, form_of
from oneiro.tasks.textgame.evaluation import StepEvaluation
from oneiro.tasks.textgame.lookup import TextGameLookup
from oneiro.tasks.textgame.model import TextGameMetadata, TextGameModel
from oneiro.tasks.textgame.predictor import Scorer, TextGamePredictor, TextGamePredictorConfig
from oneiro.tasks.textgame.rollout import TRAIN, Plans, Predict
from oneiro.worlds.textgame.crawl import UNSEEN
from oneiro.worlds.textgame.dataset import EXAMPLE, open_dataset, require_games, splits
from oneiro.worlds.textgame.state import Transition

UNTRAINED = TextGameMetadata(
    task=TextGamePredictorConfig(reasoning=True),
    sampling=SamplingSettings(max_tokens=2048),
)
"""How a model is prompted that was never trained for it: with instructions and rules, reasoning first."""


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


def training_rows(folder: str | Path, split: str, held_out: Collection[str]) -> Sequence[Transition]:
    """What the lookup baseline looks among: the train rows of the games that are not held out."""
    if split == TRAIN or TRAIN not in splits(folder):
        return ()
    train = open_dataset(folder, TRAIN)
    return train.only([game for game in train.games if game not in held_out])


def score_answers(
    evaluation: StepEvaluation,
    answers: str,
    scorer: Scorer,
    settings: Mapping[str, Any],
    train: Sequence[Transition] = (),
) -> dict[str, Any]:
    """Compare a baseline ("perfect", "no-change", "lookup") or a file of any model's raw outputs; `settings` say in
    which form those are, `train` is what the lookup looks among.
    """
    task = TextGamePredictor(build(TextGamePredictorConfig, {"rules": "none", **settings}))
    baselines, name = task.baselines(train), answers.replace("-", " ")
    label = name if name in baselines else Path(answers).name
    source = answers_named(baselines, answers)
    if not callable(source) and (form := form_of(task, evaluation.rows, source)) is not None:
        form_asked = task.config.output
        raise OneiroError(
            f"{answers} has next to no answer in the form output={form_asked}; give --settings output={form}"
        )
    return evaluation.compare(task, {label: evaluation.measure(task, source, scorer)}, scorer, baselines)


def open_model(
    folder: str | Path,
    model: str,
    split: str,
    rows: int,
    settings: Mapping[str, Any],
    max_batch_size: int = 256,
    held_out: Collection[str] = (),
) -> tuple[StepEvaluation, TextGameModel]:
    """A model and the rows it is to answer; it is prompted as it was trained, changed by `settings`."""
    evaluation = open_evaluation(folder, split, rows, held_out)  # before the model: a wrong folder shows at once
    language = languages.load(model)
    metadata = TextGameMetadata.read(language, model) or UNTRAINED
    examples = list(open_dataset(folder, EXAMPLE)) if EXAMPLE in splits(folder) else []
    config = build(TextGamePredictorConfig, {**metadata.task.model_dump(), **settings})
    unseen = tuple(dict.fromkeys((*held_out, *metadata.held_out)))
    train = training_rows(folder, split, unseen) if config.retrieve else ()
    memory = TextGameLookup(train, config.transition, config.output) if train else None
    task = TextGamePredictor(config, rules=open_dataset(folder, split).rules, examples=examples, memory=memory)
    return replace(evaluation, held_out=unseen), TextGameModel(
        task, Engine(language, max_batch_size), metadata.sampling
    )


def score_model(
    evaluation: StepEvaluation,
    predictor: TextGameModel,
    name: str,
    scorer: Scorer,
    keep: Path | None,
    advance: Callable[[int], object],
    plans: Plans,
    train: Sequence[Transition] = (),
) -> dict[str, Any]:
    """Let a model answer and compare; `keep` is a file for its raw outputs, `plans` is what it simulates after that,
    `train` is what the lookup baseline looks among.
    """
    samples = predictor.greedy(evaluation.rows, advance)
    answers = {case.id: predictor.text(sample) for case, sample in zip(evaluation.rows, samples, strict=True)}
    if keep is not None:
        write_lines(keep, [{"id": key, "answer": text} for key, text in answers.items()])
    task = predictor.task
    baselines = task.baselines(train)
    compared = evaluation.compare(task, {name: evaluation.measure(task, answers, scorer)}, scorer, baselines)
    if not plans or task.config.transition != "full":
        return compared
    predictors: dict[str, Predict] = {**plans.baselines(task), name: predictor}
    deep = {label: plans.measure(task, predict) for label, predict in predictors.items()}
    return {**compared, "depth": deep, "plans": plans.note}
