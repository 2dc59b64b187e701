"""`oneiro bench train`: learned tokens a second, beside a plain `transformers` training step and the machine's limit.

A training step is forward, cross-entropy on every token, backward, gradient clip and AdamW, on the same rows and from
the same weights; the losses of the first step must agree. Every contestant lives in this process; they take turns.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from pydantic import Field

from bench import floor
from bench.growth import Axes, growth, three
from bench.measure import OURS, Contestant, Machine, by_device, comparison, seconds_of, take_turns
from bench.sample import default_model, opened, sizes
from oneiro.episode import Row, given
from oneiro.learning.batch import Example
from oneiro.learning.learner import Learner, LearnerSettings
from oneiro.learning.optimiser import OptimiserSettings
from oneiro.models.language import LanguageModel
from oneiro.recipe import Settings
from oneiro.report.table import Table
from oneiro.runtime import seeds
from oneiro.runtime.threads import cores

RATE = 1e-5
PLAIN = "transformers forward + loss + backward + AdamW"


class TrainSettings(Settings):
    rows: int = Field(default_factory=by_device(64, 16), ge=1)
    tokens: int = Field(default_factory=by_device(512, 128), ge=2)
    """Length of every row."""
    token_budget: int | None = Field(None, ge=64)
    """Tokens of a micro-batch of Oneiro's; by default what its settings say. The peer takes the whole batch at once."""
    rounds: int = Field(3, ge=1)
    threads: int = Field(default_factory=cores, ge=1)
    growth: bool = False
    seed: int = 0

    def batch(self, vocabulary: int) -> np.ndarray:
        """Random token ids [rows, tokens]."""
        return seeds.generator(self.seed, "rows").integers(3, vocabulary, (self.rows, self.tokens))


def run(model: str | None = None, **options: Any) -> list[Table]:
    """By default SmolLM2-135M on a GPU (64 rows of 512 tokens, bfloat16) and `tiny` on a processor."""
    settings = TrainSettings(**options)
    machine = Machine.measured(settings.threads)
    model = model or default_model(machine.device.type)
    with opened(model, machine, settings.seed) as (folder, language):
        tables = [machine.table(), *compare(model, folder, language, machine, settings)]
    if settings.growth:
        tables.append(grow(model, machine, settings))
    return tables


def compare(
    model: str, folder: Path, language: LanguageModel, machine: Machine, settings: TrainSettings
) -> list[Table]:
    batch = settings.batch(language.backbone.shape.vocabulary)
    losses: dict[str, list[float]] = {OURS: [], PLAIN: []}
    own, plain = ours(language, batch, settings), peer(folder, batch, machine)
    contestants = [
        Contestant(OURS, lambda n: losses[OURS].append(own())),
        Contestant(PLAIN, lambda n: losses[PLAIN].append(plain())),
    ]
    take_turns(f"bench train {model}", contestants, settings.rounds)
    limit = floor.training(floor.Work.of(language.backbone), settings.rows, settings.tokens, machine)
    title = f"{model}: a training step of {settings.rows} rows of {settings.tokens} tokens"
    agreement = Table("The same rows, the same losses", ["contender", "loss of step 1", "loss of step 2"])
    for name, found in losses.items():
        agreement.add(name, *(found[:2] if len(found) > 1 else [None, None]))
    return [
        comparison(title, contestants, settings.rows * settings.tokens, {"floor: arithmetic": limit}),
        agreement,
    ]


def ours(language: LanguageModel, batch: np.ndarray, settings: TrainSettings) -> Any:
    """One update of the learner -> its loss."""
    chosen = {} if settings.token_budget is None else {"token_budget": settings.token_budget}
    optimiser = OptimiserSettings(lr=RATE, weight_decay=0.0)
    learner = Learner(language.backbone, LearnerSettings(optimiser=optimiser, **chosen), steps=1)
    examples = [Example.of(Row([given(row, ce=1.0)])) for row in batch]
    return lambda: learner.update(examples)["loss"]


def peer(folder: Path, batch: np.ndarray, machine: Machine) -> Any:
    """What anybody would write with transformers, in the device's number type throughout -> its loss."""
    from transformers import AutoModelForCausalLM

    model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=machine.dtype)
    model.to(machine.device).train()
    optimiser = torch.optim.AdamW(model.parameters(), lr=RATE, betas=(0.9, 0.95), weight_decay=0.0, fused=True)
    tokens = torch.from_numpy(batch).to(machine.device)

    def step() -> float:
        loss = model(tokens, labels=tokens, use_cache=False).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        optimiser.zero_grad()
        return float(loss.detach())

    return step


def grow(model: str, machine: Machine, settings: TrainSettings) -> Table:
    """Oneiro alone, over rows, their length and the model. A batch of single rows has no groups."""

    def cost(name: str, value: Any) -> tuple[float, int]:
        chosen = settings if name == "model" else settings.model_copy(update={name: value})
        with opened(value if name == "model" else model, machine, settings.seed) as (_, language):
            step = ours(language, chosen.batch(language.backbone.shape.vocabulary), chosen)
            step()
            return seconds_of(step), chosen.rows * chosen.tokens

    axes: Axes = {"rows": three(settings.rows), "tokens": three(4 * settings.tokens), "model": sizes(machine)}
    return growth(f"{model}: how a training step grows", axes, cost)
