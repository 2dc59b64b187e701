"""`oneiro bench textgame`: how fast answers are scored, and what sharing a group's prompt saves.

The prompts are those of a recipe with rules: long, and the same for every answer of a group. Prompt tokens that go
through the model are counted where they do, padding included, with each group's prompt computed once and with it
computed for every answer.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import cycle
from typing import Any

import torch

from oneiro.episode import Row, given
from oneiro.learning.batch import Example, batches
from oneiro.learning.learner import Learner, LearnerSettings
from oneiro.models import language as languages
from oneiro.models.attention import Prefill
from oneiro.models.backbone import Backbone
from oneiro.models.language import LanguageModel, ModelSettings
from oneiro.report.table import Table
from oneiro.sampling.engine import Engine, SamplingSettings
from oneiro.tasks.textgame.model import TextGameModel
from oneiro.tasks.textgame.predictor import TextGamePredictor, TextGamePredictorConfig
from oneiro.worlds.textgame.crawl import CrawlConfig, crawl, own_rules
from oneiro.worlds.textgame.state import Transition

GAMES = ("bake-bread", "brew-tea", "open-chest")


def run(
    model: str | None = None, seconds: float = 2.0, groups: int = 4, group_size: int = 8, tokens: int = 64
) -> list[Table]:
    """Each rate takes about `seconds`; `groups` questions with `group_size` answers of `tokens` tokens are sampled."""
    cases = list(crawl(GAMES, "eval", CrawlConfig(levels=1, max_steps=8)))
    return [
        scoring(cases, seconds),
        sharing(model or "tiny", cases[:: len(cases) // groups][:groups], group_size, tokens),
    ]


def scoring(cases: Sequence[Transition], seconds: float) -> Table:
    """Rows a second, from raw text to verdict, on one thread."""
    table = Table(
        "Scoring answers, one thread",
        ["answers", "scorer", "rows a second", "slowest"],
        {"rows a second": "1/s", "slowest": "ms"},
        note="parsing the text, rebuilding the predicted state and comparing it with the true one",
    )
    kinds: dict[str, Callable[[TextGamePredictor, Transition], str]] = {
        "perfect": TextGamePredictor.perfect,
        "no change": TextGamePredictor.no_change,
        "perfect, cut short": lambda task, case: task.perfect(case)[:-2],
    }
    for scorer in ("strict", "official"):
        task = TextGamePredictor(TextGamePredictorConfig(rules="none", scorer=scorer))
        for name, answer in kinds.items():
            rate, slowest = _rate([(answer(task, case), case) for case in cases], task.exact, seconds / 6)
            table.add(name, scorer, rate, 1000 * slowest)
    return table


def _rate(work: Sequence[tuple[Any, ...]], do: Callable[..., Any], seconds: float) -> tuple[float, float]:
    """Calls a second, and the longest call."""
    started, count, slowest = time.perf_counter(), 0, 0.0
    last = started
    for arguments in cycle(work):
        do(*arguments)
        now = time.perf_counter()
        count, slowest, last = count + 1, max(slowest, now - last), now
        if now - started >= seconds:
            return count / (now - started), slowest
    return 0.0, 0.0


@dataclass
class Cost:
    """What one way of computing the same answers took."""

    prompt_tokens: int = 0
    seconds: float = 0.0


def sharing(model: str, cases: Sequence[Transition], group_size: int, tokens: int) -> Table:
    """Prompt tokens computed for each sampled token, in the engine and in the learner."""
    task = TextGamePredictor(TextGamePredictorConfig(rules="human"), rules=own_rules())
    predictor = TextGameModel(
        task, Engine(_language(model, task, cases)), SamplingSettings(max_tokens=tokens, ignore_eos=True)
    )
    sampled = len(cases) * group_size * tokens
    lengths = [len(predictor.prompt(case)) for case in cases]
    table = Table(
        f"A group's prompt, computed once: {model}, {len(cases)} prompts of {min(lengths)} to {max(lengths)} tokens, "
        f"{group_size} answers of {tokens} tokens each",
        ["where", "shared", "not shared", "times fewer", "shared, seconds", "not shared, seconds"],
        note="prompt tokens computed for each sampled token; seconds of the forward passes",
    )
    for where, measure in (("sampling", _sampling), ("learning", _learning)):
        shared, apart = measure(predictor, cases, group_size)
        ratio = apart.prompt_tokens / max(1, shared.prompt_tokens)
        costs = shared.prompt_tokens / sampled, apart.prompt_tokens / sampled
        table.add(where, *costs, ratio, shared.seconds, apart.seconds)
    return table


def _language(model: str, task: TextGamePredictor, cases: Sequence[Transition]) -> LanguageModel:
    if model != "tiny":
        return languages.load(model)
    texts = [task.prompt(case)[0]["content"] for case in cases]
    return languages.create_tiny(ModelSettings(vocabulary=1024), texts, seed=0)


def _sampling(predictor: TextGameModel, cases: Sequence[Transition], group_size: int) -> tuple[Cost, Cost]:
    """One call for whole groups, against one call for each member."""
    predictor.sample(cases[:1], 1, 0)  # the first call prepares the device
    with _counted(predictor.language.backbone) as shared:
        predictor.sample(cases, group_size, 0)
    with _counted(predictor.language.backbone) as apart:
        for seed in range(group_size):
            predictor.sample(cases, 1, seed)
    return shared, apart


@contextmanager
def _counted(backbone: Backbone) -> Iterator[Cost]:
    """Counts the tokens of prompts that go through the model."""
    cost, started = Cost(), time.perf_counter()

    def count(_: Any, arguments: tuple[Any, ...]) -> None:
        tokens, _, plan = arguments[:3]
        cost.prompt_tokens += tokens.numel() if isinstance(plan, Prefill) else 0

    hook = backbone.register_forward_pre_hook(count)
    try:
        yield cost
    finally:
        hook.remove()
        cost.seconds = time.perf_counter() - started


def _learning(predictor: TextGameModel, cases: Sequence[Transition], group_size: int) -> tuple[Cost, Cost]:
    """The micro-batches of one update, laid out with and without shared prefixes."""
    samples = predictor.sample(cases, group_size, 0)
    rows = [(predictor.prompt(case), sample) for case, group in zip(cases, samples, strict=True) for sample in group]
    examples = [Example.of(Row([given(prompt), *sample.segments()])) for prompt, sample in rows]
    learner = Learner(predictor.language.backbone, LearnerSettings(token_budget=16384), 1)
    sampled = sum(len(sample.tokens) for _, sample in rows)
    return _forward(learner, examples, sampled, True), _forward(learner, examples, sampled, False)


@torch.no_grad()
def _forward(learner: Learner, examples: Sequence[Example], sampled: int, share: bool) -> Cost:
    started, computed = time.perf_counter(), 0
    for batch in batches(examples, learner.token_budget, learner.backbone.device, share):
        float(batch.hidden(learner.backbone).sum())  # a number on the host: whatever runs on a device has ended
        computed += batch.computed_tokens
    return Cost(computed - sampled, time.perf_counter() - started)
