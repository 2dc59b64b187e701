"""`oneiro bench cpu`: GRPO steps of three models on a processor against the bars they have to clear.

The measuring is that of `oneiro bench step`.
"""

from __future__ import annotations

from typing import Any

from pydantic import Field

from bench import curves, load, step
from bench.measure import Machine
from bench.step import StepSettings
from oneiro.report.table import Table

BARS = {"tiny": 5.0, "14m": 2.5, "smollm2-135m": 2.0}
"""How many times faster than TRL a whole step has to be."""
MEMORY_BAR = 2.0
ROUNDS = {"tiny": 7, "14m": 5}
"""Measured steps, unless told otherwise; larger models take 3."""


class CpuSettings(StepSettings):
    prompts: int = Field(8, ge=1)
    group: int = Field(8, ge=2)
    prompt_tokens: int = Field(32, ge=1)
    new_tokens: int = Field(64, ge=2)
    rows: int = Field(8, ge=1)
    max_batch_size: int = Field(256, ge=1)
    device: str = "cpu"
    rounds: int = Field(0, ge=0)
    """0: by the model."""
    curves: int = Field(0, ge=0)
    """Steps of learning curves, Oneiro's beside TRL's; 0: none."""
    seeds: int = 3
    """Runs of each for the curves."""

    load: bool = False
    """Instead: what a busy neighbour costs (`bench.load`)."""

    def for_model(self, model: str) -> CpuSettings:
        return self.model_copy(update={"rounds": self.rounds or ROUNDS.get(model, 3)})


def run(model: str | None = None, **options: Any) -> list[Table]:
    """Measure `model`, by default all of `BARS`; with `curves`, also compare learning over that many steps.

    With `load`, compare threads beside a busy process instead, by default for `tiny` and `14m`.
    """
    settings = CpuSettings(**options)
    if settings.load:
        return [load.compare(name, settings.for_model(name)) for name in ([model] if model else ROUNDS)]
    results: step.Results = {}
    machine = Machine.measured(settings.threads, settings.device)
    tables = [machine.table()]
    for name in [model] if model else BARS:
        results[name] = step.measure(name, settings.for_model(name))
        tables += [step.seconds_table(name, settings, results[name]), step.floor_table(name, machine, settings)]
    if settings.beside_peers:
        agreement = step.agreement_table(results, step.TOLERANCE["cpu"])
        tables += [step.ratio_table(results, BARS, MEMORY_BAR), agreement]
    if settings.curves:
        tables.append(curves.compare(settings.seeds, settings.curves, settings.threads, settings.patience))
    return tables
