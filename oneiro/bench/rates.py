"""`oneiro bench rates`: how fast one device samples and learns, as lines through measured points, for simulations.

Sampling is measured with few and many rows and with short and long prompts, learning with few and many rows; handing
weights over with a save and a load of them. The lines go through the medians.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from pydantic import Field

from oneiro.bench.measure import Machine, by_device, seconds_of
from oneiro.bench.sample import SampleSettings, default_model, opened
from oneiro.bench.sample import ours as sampler
from oneiro.bench.train import TrainSettings
from oneiro.bench.train import ours as trainer
from oneiro.capacity.pace import TITLE
from oneiro.models import language as languages
from oneiro.models.language import LanguageModel
from oneiro.recipe import Settings
from oneiro.report.table import Table
from oneiro.threads import cores

TIMES = 8
"""The larger measurement has so many times the rows of the smaller one."""


class RatesSettings(Settings):
    rows: int = Field(default_factory=by_device(256, 32), ge=TIMES)
    prompt_tokens: int = Field(default_factory=by_device(200, 64), ge=2)
    new_tokens: int = Field(default_factory=by_device(128, 32), ge=2)
    rounds: int = Field(3, ge=1)
    threads: int = Field(default_factory=cores, ge=1)
    seed: int = 0


def run(model: str | None = None, **options: Any) -> list[Table]:
    """By default of SmolLM2-135M on a GPU and of `tiny` on a processor."""
    settings = RatesSettings(**options)
    machine = Machine.measured(settings.threads)
    model = model or default_model(machine.device.type)
    with opened(model, machine, settings.seed) as (_, language):
        found = {
            **sampling_line(lambda rows, prompt: sampled(language, rows, prompt, settings), settings),
            "transfer_s": handed_over(language, settings),
            **learning_line(lambda rows: learned(language, rows, settings), settings),  # last: it changes the weights
        }
    table = Table(
        TITLE,
        ["rate", "seconds"],
        note=f"{model}; {settings.rows // TIMES} and {settings.rows} rows, prompts of {settings.prompt_tokens} and "
        f"{2 * settings.prompt_tokens} tokens, {settings.new_tokens} sampled; medians of {settings.rounds} rounds.",
    )
    for name, seconds in found.items():
        table.add(name, seconds)
    return [machine.table(), table]


def sampling_line(seconds: Callable[[int, int], float], settings: RatesSettings) -> dict[str, float]:
    """`step_s`, `row_s` and `prompt_s` from the seconds of (rows, prompt tokens)."""
    few, many, prompt, new = settings.rows // TIMES, settings.rows, settings.prompt_tokens, settings.new_tokens
    small, large, long = seconds(few, prompt), seconds(many, prompt), seconds(many, 2 * prompt)
    prompt_s = max(0.0, (long - large) / (many * prompt))
    row_s = max(0.0, ((large - small) / (many - few) - prompt_s * prompt) / new)
    # Whatever noise does to the slopes, the larger call is met.
    step_s = max(0.0, large - many * (prompt_s * prompt + row_s * new)) / new
    return {"step_s": step_s, "row_s": row_s, "prompt_s": prompt_s}


def learning_line(seconds: Callable[[int], float], settings: RatesSettings) -> dict[str, float]:
    """`token_s` and `update_s` from the seconds of rows of `prompt_tokens + new_tokens` tokens."""
    few, many, length = settings.rows // TIMES, settings.rows, settings.prompt_tokens + settings.new_tokens
    small, large = seconds(few), seconds(many)
    token_s = max(0.0, (large - small) / ((many - few) * length))
    return {"token_s": token_s, "update_s": max(0.0, large - token_s * many * length)}


def sampled(language: LanguageModel, rows: int, prompt: int, settings: RatesSettings) -> float:
    chosen = SampleSettings(rows=rows, prompt_tokens=prompt, new_tokens=settings.new_tokens, seed=settings.seed)
    work = sampler(language, chosen.prompts(language.backbone.shape.vocabulary), chosen)
    return measured(lambda: work(0), settings)


def learned(language: LanguageModel, rows: int, settings: RatesSettings) -> float:
    chosen = TrainSettings(rows=rows, tokens=settings.prompt_tokens + settings.new_tokens, seed=settings.seed)
    return measured(trainer(language, chosen.batch(language.backbone.shape.vocabulary), chosen), settings)


def handed_over(language: LanguageModel, settings: RatesSettings) -> float:
    """A save and a load, as servers get weights."""

    def work() -> None:
        with tempfile.TemporaryDirectory(prefix="oneiro-bench-") as folder:
            languages.load(str(language.save(Path(folder) / "model")), language.backbone.device)

    return measured(work, settings)


def measured(work: Callable[[], object], settings: RatesSettings) -> float:
    work()
    return median(seconds_of(work) for _ in range(settings.rounds))
