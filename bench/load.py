"""`oneiro bench cpu --load`: what one busy neighbour costs, with torch's own threads and with those Oneiro chooses.

Both take turns on the same GRPO steps, alone and beside a process that never rests, round after round.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from bench import models
from bench.measure import median_and_range, paired
from bench.process import Contender
from bench.step import StepSettings, job
from oneiro.report.table import Table
from oneiro.runtime import threads
from oneiro.runtime.progress import Bar, console

WARM_UP = 1


@dataclass
class Choice:
    """A number of threads and how they wait; seconds a step, alone and beside a busy process."""

    name: str
    threads: int
    environment: Mapping[str, str]
    alone: list[float] = field(default_factory=list)
    beside: list[float] = field(default_factory=list)


def compare(model: str, settings: StepSettings) -> Table:
    """Rounds of one step each, alone and beside a busy process."""
    with tempfile.TemporaryDirectory(prefix="oneiro-bench-") as name, ExitStack() as stack:
        folder = models.prepare(model, Path(name) / "model", settings.seed, "cpu")
        prompts = models.make_prompts(folder, settings.prompts, settings.prompt_tokens, settings.seed)
        tried = choices(size_of(folder))
        contenders = []
        for number, choice in enumerate(tried):
            scratch = Path(name) / str(number)
            scratch.mkdir()
            task = job("oneiro", folder, prompts, settings)
            started = Contender(task, scratch, choice.threads, settings.patience, choice.environment)
            contenders.append(stack.enter_context(closing(started)))
        bar = stack.enter_context(Bar(f"load {model}", WARM_UP + settings.rounds, 0, console(), lambda line: None))
        for step in range(WARM_UP + settings.rounds):
            for choice, contender in zip(tried, contenders, strict=True):
                alone = seconds(contender, step)
                with busy_neighbour():
                    beside = seconds(contender, step)
                if step >= WARM_UP:
                    choice.alone.append(alone)
                    choice.beside.append(beside)
            bar.advance()
    return table(model, tried)


def choices(parameters: int) -> list[Choice]:
    """Torch's own, and Oneiro's for a model of that size; both as if nobody had set anything."""
    plain = {k: v for k, v in os.environ.items() if k not in (*threads.SPINNING, threads.COUNT)}
    own = threads.by_size(parameters)
    return [
        Choice("torch's default", threads.cores(), plain),
        Choice("Oneiro's choice", own, {**plain, **threads.WAITING}),
    ]


def size_of(folder: Path) -> int:
    """Parameters of the weights in a folder."""
    from oneiro.models import language

    return language.load(str(folder), "cpu").backbone.shape.parameters


def seconds(contender: Contender, number: int) -> float:
    done = contender.step(number)
    assert done is not None  # Oneiro's own trouble ends the benchmark
    return float(done["seconds"]["step"])


@contextmanager
def busy_neighbour() -> Iterator[subprocess.Popen[bytes]]:
    """A process that keeps one core busy."""
    neighbour = subprocess.Popen([sys.executable, "-S", "-c", "while True: pass"])
    try:
        yield neighbour
    finally:
        neighbour.kill()
        neighbour.wait()


def table(model: str, tried: list[Choice]) -> Table:
    default = tried[0]
    found = Table(
        f"{model}: one GRPO step, alone and beside one busy process, on {threads.cores()} cores",
        ["threads", "count", "seconds alone", "seconds beside", "times slower beside", "times torch's speed beside"],
        note="Medians of rounds in which both took turns; in brackets the smallest and the largest round.",
    )
    for choice in tried:
        found.add(
            choice.name,
            choice.threads,
            median_and_range(choice.alone),
            median_and_range(choice.beside),
            paired(choice.beside, choice.alone),
            paired(default.beside, choice.beside),
        )
    return found
