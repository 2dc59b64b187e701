"""What `oneiro eval web-page` does: a model on the steps of a file, beside the rows that need no model; or pairs of a
predicted and a true change from a file, whatever model made them, on whatever site.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from oneiro.models import language as languages
from oneiro.report.stats import bootstrap
from oneiro.report.table import Cell, Table
from oneiro.runtime.errors import OneiroError
from oneiro.sampling.engine import Engine, SamplingSettings
from oneiro.tasks.base import Flaw, Malformed
from oneiro.tasks.webpage.data import some_steps
from oneiro.tasks.webpage.evaluation import distinct, measure, tables
from oneiro.tasks.webpage.lookup import PageLookup
from oneiro.tasks.webpage.model import WebPageMetadata, WebPageModel
from oneiro.tasks.webpage.parquet import read_parquet
from oneiro.tasks.webpage.parse import parse
from oneiro.tasks.webpage.predictor import Scorer, WebPagePredictor, WebPagePredictorConfig
from oneiro.tasks.webpage.rollout import chains, errors_by_depth
from oneiro.tasks.webpage.score import PageScore, judge, official_score
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
    baselines, seen = task.baselines(learned), PageLookup(learned, task.config.lines).has_seen if learned else None
    perfect = baselines.pop("perfect")
    rows = {
        **{label: measure(task, opened.cases, answer, seen) for label, answer in baselines.items()},
        name: measure(task, opened.cases, answers, seen),
        "perfect": measure(task, opened.cases, perfect, seen),
    }
    episodes = chains(opened.steps)[:TRAJECTORIES]
    return tables(task, rows, {name: errors_by_depth(task, model, episodes)} if episodes else None)


FIGURES = ("precision", "recall", "f1", "id_free_f1")
MAX_LINE_CHARS = 64 << 20
"""A longer row is not read: the file comes from anywhere, and a row is held in memory."""


@dataclass
class ScoredPairs:
    """The scores of a file."""

    scorer: Scorer
    scores: list[tuple[str, PageScore]] = field(default_factory=list)
    bad: list[tuple[int, str]] = field(default_factory=list)
    """Line and reason of each row that is no pair."""

    def table(self) -> Table:
        figures = FIGURES if self.scorer == "strict" else FIGURES[:3]
        table = Table(
            f"Predicted changes of pages, {self.scorer} scorer",
            ["rows", *figures, *(["unreadable"] if self.scorer == "strict" else [])],
            dict.fromkeys((*figures, "unreadable"), "%"),
            note="Means over rows. Intervals take rows for independent; rows of one episode are not.",
        )
        cells: list[Cell] = [bootstrap([getattr(score, name) for _, score in self.scores]) for name in figures]
        unreadable = [float(score.flaw is not None) for _, score in self.scores]
        table.add(len(self.scores), *cells, *([bootstrap(unreadable)] if self.scorer == "strict" else []))
        return table

    def data(self) -> dict[str, Any]:
        """Everything as JSON: the table, a row for each pair, and the lines that were skipped."""
        figures = FIGURES if self.scorer == "strict" else FIGURES[:3]
        rows = [
            {"id": key, **{name: getattr(score, name) for name in figures}, "flaw": score.flaw and str(score.flaw)}
            for key, score in self.scores
        ]
        bad = [{"line": line, "reason": reason} for line, reason in self.bad]
        return {**self.table().data(), "scorer": self.scorer, "pairs": rows, "skipped": bad}


def score_pair(prediction: str, target: str, scorer: Scorer) -> PageScore | Malformed:
    """The score of a prediction; `Malformed` where the strict scorer cannot read the target."""
    if scorer == "official":
        return official_score(prediction, target)
    truth = parse(target)
    if isinstance(truth, Malformed):
        return truth
    if any(truth.false):
        return Malformed(Flaw.SHAPE, "it has lines that are no items")
    return judge(parse(prediction), truth.change)


def score_pairs(path: Path, scorer: Scorer) -> ScoredPairs:
    """Every pair of a file of JSON lines `{"id", "prediction", "target"}`. Rows that are no pair are kept by line."""
    pairs = ScoredPairs(scorer)
    for number, line in _lines(path):
        row = _row(line)
        if isinstance(row, str):
            pairs.bad.append((number, row))
            continue
        score = score_pair(row["prediction"], row["target"], scorer)
        if isinstance(score, Malformed):
            pairs.bad.append((number, f"the target cannot be read: {score.detail or score.flaw}"))
        else:
            pairs.scores.append((str(row["id"]), score))
    if not pairs.scores:
        first = f"; line {pairs.bad[0][0]}: {pairs.bad[0][1]}" if pairs.bad else "; it is empty"
        raise OneiroError(f'{path} has no row {{"id", "prediction", "target"}} that can be scored{first}')
    return pairs


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            number = 0
            while line := file.readline(MAX_LINE_CHARS):
                number += 1
                if line.strip():
                    yield number, line
    except OSError as error:
        raise OneiroError(f"cannot read {path}: {error.strerror or error}") from error


def _row(line: str) -> dict[str, Any] | str:
    """The row of a line, or what is wrong with it."""
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        return f"not JSON ({str(error)[:80]})"
    if not isinstance(row, dict):
        return "not a JSON object"
    for key in ("id", "prediction", "target"):
        if key not in row:
            return f"has no '{key}'"
    for key in ("prediction", "target"):
        if not isinstance(row[key], str):
            return f"'{key}' is not a text"
    if not isinstance(row["id"], str | int | float):
        return "'id' is neither a text nor a number"
    return row
