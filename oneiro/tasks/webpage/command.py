"""What `oneiro eval web-page --model` does: a model on the steps of a file, beside the rows that need no model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from oneiro.models import language as languages
from oneiro.report.table import Table
from oneiro.sampling.engine import Engine, SamplingSettings
from oneiro.tasks.webpage.data import some_steps
from oneiro.tasks.webpage.evaluate import distinct, measure, tables
from oneiro.tasks.webpage.lookup import Lookup
from oneiro.tasks.webpage.model import WebPageMetadata, WebPageModel
from oneiro.tasks.webpage.parquet import read_parquet
from oneiro.tasks.webpage.predictor import Scorer, WebPagePredictor, WebPagePredictorConfig
from oneiro.tasks.webpage.rollout import chains, errors_by_depth
from oneiro.tasks.webpage.state import PageTransition

TRAJECTORIES = 32
UNTRAINED = WebPageMetadata(task=WebPagePredictorConfig(reasoning=True), sampling=SamplingSettings(max_tokens=2048))
"""How a model is prompted that was never trained for it: with instructions, reasoning first."""


@dataclass(frozen=True)
class Opened:
    """A model and the steps it is to answer."""

    model: WebPageModel
    cases: list[PageTransition]
    steps: list[PageTransition]
    """All steps of the file, for rollouts."""


def open_model(model: str, data: Path, rows: int, scorer: Scorer, max_batch_size: int = 256) -> Opened:
    """A model is prompted as it was trained; one without metadata with instructions, reasoning first."""
    steps = read_parquet(data)  # before the model: a wrong file shows at once
    language = languages.load(model)
    metadata = WebPageMetadata.read(language, model) or UNTRAINED
    task = WebPagePredictor(metadata.task.model_copy(update={"scorer": scorer, "retrieve": 0}))
    cases = some_steps(distinct(steps, stops=bool(task.config.heads)), rows, seed=0)
    return Opened(WebPageModel(task, Engine(language, max_batch_size), metadata.sampling), cases, steps)


def score_model(opened: Opened, name: str, train: Path | None, advance: Callable[[int], None]) -> list[Table]:
    """The tables of a model beside the baselines; `train` is what the lookup looks among."""
    model, task = opened.model, opened.model.task
    samples = model.greedy(opened.cases, advance)
    answers = {case.id: model.text(sample) for case, sample in zip(opened.cases, samples, strict=True)}
    learned = distinct(read_parquet(train)) if train is not None else []
    baselines, seen = task.baselines(learned), Lookup(learned, task.config.lines).seen if learned else None
    perfect = baselines.pop("perfect")
    rows = {
        **{label: measure(task, opened.cases, answer, seen) for label, answer in baselines.items()},
        name: measure(task, opened.cases, answers, seen),
        "perfect": measure(task, opened.cases, perfect, seen),
    }
    episodes = chains(opened.steps)[:TRAJECTORIES]
    return tables(task, rows, {name: errors_by_depth(task, model, episodes)} if episodes else None)
