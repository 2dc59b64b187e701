"""`oneiro bench cpu`: one GRPO step of Oneiro beside a plain transformers loop and TRL's GRPOTrainer, on the same work.

Every contender has a process of its own with the same weights, prompts, lengths, reward, loss, optimiser and threads.
First all take two updates on the same given completions: their losses and gradient norms must agree. Then, after a
warm-up, they take turns, one step each, so that whatever else the machine does falls on all of them.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from pydantic import Field, ValidationError

from oneiro import seeds
from oneiro.bench import curves, models
from oneiro.bench.contender import Job
from oneiro.bench.process import Contender
from oneiro.errors import OneiroError
from oneiro.progress import Bar, console
from oneiro.recipe import Settings
from oneiro.report.table import Cell, Table

NAMES = {"oneiro": "Oneiro", "transformers": "transformers generate + plain loop", "trl": "TRL GRPOTrainer"}
BARS = {"tiny": 5.0, "14m": 2.5, "smollm2-135m": 2.0}
"""How many times faster than TRL a whole step has to be."""
MEMORY_BAR = 2.0
CHECKS = 2
"""Updates on given completions: the second sees what the first one's optimiser step did."""
WARM_UP = 1
TOLERANCE = 1e-3
"""Largest relative difference of losses and gradient norms that still counts as the same."""


class CpuSettings(Settings):
    prompts: int = Field(8, ge=1)
    group: int = Field(8, ge=2)
    """Samples of every prompt."""
    prompt_tokens: int = Field(32, ge=1)
    new_tokens: int = Field(64, ge=2)
    steps: int = Field(0, ge=0)
    """Measured steps of every contender; 0: 7 for `tiny`, 5 for `14m`, 3 for anything larger."""
    lr: float = Field(1e-5, gt=0)
    rows: int = Field(8, ge=1)
    """Rows the peers push through the model at once: what TRL does by itself, and where it is fastest and leanest."""
    checkpointing: bool = False
    """TRL's own default is true: less memory, more time."""
    threads: int = Field(default_factory=lambda: os.cpu_count() or 1, ge=1)
    patience: float = Field(1800.0, gt=0)
    """Seconds to wait for one step."""
    seed: int = 0

    def measured(self, model: str) -> int:
        return self.steps or {"tiny": 7, "14m": 5}.get(model, 3)


@dataclass
class Result:
    """What one contender did on one model."""

    trouble: str = ""
    checks: list[dict[str, Any]] = field(default_factory=list)
    steps: list[dict[str, Any]] = field(default_factory=list)
    memory_before: float = 0.0
    memory: float = 0.0

    def seconds(self, part: str) -> list[float]:
        return [step["seconds"][part] for step in self.steps]


def run(model: str | None = None, curve_seeds: int = 0, **options: Any) -> list[Table]:
    """Measure `model`, by default all of `BARS`; with `curve_seeds`, also compare learning over 100 steps."""
    try:
        settings = CpuSettings(**options)
    except ValidationError as error:
        first = error.errors()[0]
        raise OneiroError(f"bench cpu: {'.'.join(map(str, first['loc']))}: {first['msg']}") from error
    results: dict[str, dict[str, Result]] = {}
    tables: list[Table] = []
    for name in [model] if model else BARS:
        with tempfile.TemporaryDirectory(prefix="oneiro-bench-") as scratch:
            results[name] = measure(name, settings, Path(scratch))
        tables.append(seconds_table(name, settings, results[name]))
    tables += [ratio_table(results), agreement_table(results)]
    if curve_seeds:
        tables.append(curves.compare(curve_seeds, settings.threads, settings.patience))
    return tables


def measure(model: str, settings: CpuSettings, scratch: Path) -> dict[str, Result]:
    """All contenders on one model, turn and turn about."""
    folder = models.prepare(model, scratch / "model", settings.seed)
    prompts = models.make_prompts(folder, settings.prompts, settings.prompt_tokens, settings.seed)
    results = {name: Result() for name in NAMES}
    rounds = CHECKS + WARM_UP + settings.measured(model)
    progress = Bar(f"bench cpu {model}", rounds, 0, console(), lambda line: None)
    with opened(folder, prompts, settings, scratch) as contenders, progress as bar:
        for number in range(rounds):
            for contender in contenders:
                step = contender.step(number, given=number < CHECKS)
                result = results[contender.name]
                result.trouble = contender.trouble
                result.memory_before, result.memory = contender.memory_before, contender.memory
                if step is not None and number < CHECKS:
                    result.checks.append(step)
                elif step is not None and number >= CHECKS + WARM_UP:
                    result.steps.append(step)
            bar.advance()
    return results


@contextmanager
def opened(folder: Path, prompts: Sequence[str], settings: CpuSettings, scratch: Path) -> Iterator[list[Contender]]:
    """Every contender with its model built, waiting."""
    with ExitStack() as stack:
        jobs = [
            Job(
                contender=name,
                folder=str(folder),
                prompts=prompts,
                given=given_completions(settings),
                group=settings.group,
                tokens=settings.new_tokens,
                lr=settings.lr,
                rows=settings.rows,
                checkpointing=settings.checkpointing,
                seed=settings.seed,
            )
            for name in NAMES
        ]
        yield [
            stack.enter_context(closing(Contender(job, scratch, settings.threads, settings.patience))) for job in jobs
        ]


def given_completions(settings: CpuSettings) -> list[list[list[int]]]:
    """[prompt][member] random tokens, of unequal lengths: with equal ones a group's advantages and loss sum to 0."""
    random = seeds.generator(settings.seed, "given")
    return [
        [
            random.integers(3, 280, random.integers(1, settings.new_tokens // 2 + 1)).tolist()
            for _ in range(settings.group)
        ]
        for _ in range(settings.prompts)
    ]


def seconds_table(model: str, settings: CpuSettings, results: dict[str, Result]) -> Table:
    """The median step of every contender, in parts, and its memory."""
    samples = settings.prompts * settings.group
    columns = [
        "contender",
        "step",
        "generate",
        "score",
        "update",
        "processor",
        "tokens/s",
        "peak memory",
        "libraries",
        "trouble",
    ]
    parts = ("step", "generate", "score", "update", "processor")
    table = Table(
        f"{model}: a GRPO step of {settings.prompts} prompts x {settings.group} samples, {settings.prompt_tokens} + "
        f"{settings.new_tokens} tokens, {settings.threads} threads",
        columns,
        {**dict.fromkeys(parts, "s"), "peak memory": "MB", "libraries": "MB"},
        "Medians; processor: time of all threads; tokens/s: sampled tokens over the whole step; libraries: memory "
        "before the model is built.",
    )
    for name, result in results.items():
        if result.trouble:
            table.add(NAMES[name], *[None] * 8, result.trouble)
            continue
        medians = [median(result.seconds(part)) for part in parts]
        speed = samples * settings.new_tokens / medians[0]
        table.add(NAMES[name], *medians, speed, result.memory, result.memory_before, None)
    return table


def ratio_table(results: dict[str, dict[str, Result]]) -> Table:
    """How many times what Oneiro takes each peer takes, beside the bar."""
    peers = [name for name in NAMES if name != "oneiro"]
    table = Table(
        "Times what Oneiro takes",
        ["model", "of", *(NAMES[peer] for peer in peers), "bar, against TRL", "verdict"],
        note="Medians over rounds in which each took one step; in brackets the smallest and the largest round.",
    )
    for model, by_name in results.items():
        for part in ("step", "generate", "update", "processor"):
            cells = [paired(by_name[peer].seconds(part), by_name["oneiro"].seconds(part)) for peer in peers]
            judge(table, model, part, cells, BARS.get(model) if part == "step" else None)
        for part, libraries in (("peak memory", 0.0), ("memory above libraries", 1.0)):
            own = by_name["oneiro"]
            held = own.memory - libraries * own.memory_before
            found = [by_name[peer] for peer in peers]
            cells = [Cell(None if r.trouble else (r.memory - libraries * r.memory_before) / held) for r in found]
            judge(table, model, part, cells, None if libraries else MEMORY_BAR)
    return table


def paired(theirs: Sequence[float], ours: Sequence[float]) -> Cell:
    """The median ratio of rounds; empty where the peer has none."""
    ratios = [a / b for a, b in zip(theirs, ours, strict=False)]
    return Cell(median(ratios), min(ratios), max(ratios), len(ratios)) if ratios else Cell(None)


def judge(table: Table, model: str, part: str, cells: list[Cell], bar: float | None) -> None:
    value = cells[-1].value
    verdict = None
    if bar is not None:
        verdict = "no peer" if not isinstance(value, float) else "met" if value >= bar else "missed"
    table.add(model, part, *cells, bar, verdict)


def agreement_table(results: dict[str, dict[str, Result]]) -> Table:
    """Loss and gradient norm of each contender's first updates, all on the same completions and rewards."""
    columns = ["model", "contender"]
    for update in range(1, CHECKS + 1):
        columns += [f"loss {update}", f"gradient norm {update}"]
    table = Table(
        "The same completions and rewards, the same numbers",
        [*columns, "difference", "verdict"],
        note=f"difference: the largest relative difference to Oneiro's numbers; the same up to {TOLERANCE:g}.",
    )
    for model, by_name in results.items():
        own = numbers(by_name["oneiro"])
        for name, result in by_name.items():
            if result.trouble:
                table.add(model, NAMES[name], *[None] * (2 * CHECKS + 1), result.trouble)
                continue
            found = numbers(result)
            difference = max(abs(a - b) / max(abs(b), 1e-6) for a, b in zip(found, own, strict=True))
            verdict = None if name == "oneiro" else "same" if difference <= TOLERANCE else "DIFFERENT"
            table.add(
                model, NAMES[name], *(f"{x:.6f}" for x in found), None if name == "oneiro" else difference, verdict
            )
    return table


def numbers(result: Result) -> list[float]:
    return [check[key] for check in result.checks for key in ("loss", "grad_norm")]
