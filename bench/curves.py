"""Do Oneiro and TRL learn alike? Both train `tiny` on one simple reward, over several seeds."""

from __future__ import annotations

import tempfile
from contextlib import closing
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bench import models
from bench.contender import Job
from bench.process import Contender
from oneiro.report.table import Cell, Table
from oneiro.runtime.errors import OneiroError
from oneiro.runtime.progress import Bar, console

ENDS = 10
"""Steps that count as the beginning and as the end of a curve."""
STUDENT = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262)
"""Quantiles of a 95 % interval for 1, 2, ... degrees of freedom."""


def compare(seeds: int, steps: int, threads: int, patience: float) -> Table:
    """Mean rewards of both over `steps` steps and `seeds` runs, and their difference with its 95 % interval."""
    if not 2 <= seeds <= len(STUDENT) + 1:
        raise OneiroError(f"--seeds: an interval needs 2 to {len(STUDENT) + 1} seeds, got {seeds}")
    table = Table(
        f"Learning over {steps} steps: mean reward (share of even tokens) of tiny",
        ["contender", f"first {ENDS} steps", f"last {ENDS} steps", "all steps", "trouble"],
        note=f"{seeds} seeds; Student's 95 % intervals over seeds. Alike: the difference's interval holds 0.",
    )
    found: dict[str, NDArray[np.float64]] = {}
    with Bar("bench cpu curves", 2 * seeds * steps, 0, console(), lambda line: None) as bar:
        for name in ("oneiro", "trl"):
            rewards = []
            for seed in range(seeds):
                curve, trouble = train(name, seed, threads, patience, steps, bar)
                if trouble:
                    table.add(name, None, None, None, trouble)
                    break
                rewards.append(curve)
            else:
                found[name] = np.array(rewards)
                table.add(name, *parts(found[name]), None)
    if len(found) == 2:
        table.add("difference", *parts(found["oneiro"] - found["trl"]), None)
    return table


def train(name: str, seed: int, threads: int, patience: float, steps: int, bar: Bar) -> tuple[list[float], str]:
    """One run's mean reward at every step, or what went wrong."""
    with tempfile.TemporaryDirectory(prefix="oneiro-bench-") as scratch:
        folder = models.prepare("tiny", Path(scratch) / "model")
        prompts = models.make_prompts(folder, count=8, length=8)
        job = Job(
            name, str(folder), prompts, [], group=8, tokens=16, lr=3e-4, rows=64, checkpointing=False, seed=1000 * seed
        )
        curve = []
        with closing(Contender(job, Path(scratch), threads, patience)) as contender:
            for number in range(steps):
                step = contender.step(number)
                if step is None:
                    break
                curve.append(step["reward"])
                bar.advance(reward=step["reward"])
            return curve, contender.trouble


def parts(curves: NDArray[np.float64]) -> list[Cell]:
    """Beginning, end and whole of curves [seeds, steps], each averaged, with Student's interval over seeds."""
    return [student(curves[:, :ENDS].mean(1)), student(curves[:, -ENDS:].mean(1)), student(curves.mean(1))]


def student(values: NDArray[np.float64]) -> Cell:
    """The mean of a few independent values with its 95 % interval."""
    n, mean = len(values), float(values.mean())
    half = STUDENT[n - 2] * float(values.std(ddof=1)) / n**0.5
    return Cell(mean, mean - half, mean + half, n)
