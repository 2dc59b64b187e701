"""What every benchmark measures with: contestants that take turns, what the machine can do, and tables of both."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median

import torch

from oneiro.models.language import default_device
from oneiro.report.table import Cell, Table
from oneiro.runtime.errors import OneiroError, first_line
from oneiro.runtime.progress import Bar, console

OURS = "Oneiro"
COPIED = {"cpu": 1 << 27, "cuda": 1 << 31}
"""Bytes that are copied to find a bandwidth: more than any cache holds."""
SQUARE = {"cpu": 1024, "cuda": 8192}
"""Rows and columns of the matrices that are multiplied to find an arithmetic rate."""


def by_device(gpu: int, cpu: int) -> Callable[[], int]:
    """A default that depends on where the benchmark runs."""
    return lambda: gpu if default_device().type == "cuda" else cpu


def wait() -> None:
    """Until the GPU, if there is one, has done what it was told."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def seconds_of(work: Callable[[], object]) -> float:
    wait()
    start = time.perf_counter()
    work()
    wait()
    return time.perf_counter() - start


@dataclass(frozen=True)
class Machine:
    """What the device reaches in this run, with nothing but the simplest work."""

    device: torch.device
    dtype: torch.dtype
    bandwidth: float
    """Bytes a second, read and written, of a large copy."""
    arithmetic: float
    """Floating-point operations a second of a large matrix product."""

    @classmethod
    def measured(cls, threads: int, device_type: str | None = None) -> Machine:
        """Best of several: these are sampling, and whatever slows one try is not the device."""
        torch.set_num_threads(threads)
        device = torch.device(device_type) if device_type else default_device()
        dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
        size = COPIED[device.type]
        source, target = (torch.zeros(size, dtype=torch.uint8, device=device) for _ in range(2))
        copying = min(seconds_of(lambda: target.copy_(source)) for _ in range(8))
        n = SQUARE[device.type]
        left, right = (torch.ones(n, n, dtype=dtype, device=device) for _ in range(2))
        multiplying = min(seconds_of(lambda: left @ right) for _ in range(8))
        return cls(device, dtype, 2 * size / copying, 2 * n**3 / multiplying)

    def table(self) -> Table:
        table = Table("This machine, in this run", ["what", "found"])
        name = torch.cuda.get_device_name() if self.device.type == "cuda" else platform.processor() or "processor"
        table.add("device", f"{name}, {str(self.dtype).removeprefix('torch.')}, torch {torch.__version__}")
        table.add("threads", torch.get_num_threads())
        table.add("load over the last minute", f"{os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
        table.add("copy bandwidth, GB/s", self.bandwidth / 1e9)
        table.add("matrix products, TFLOP/s", self.arithmetic / 1e12)
        return table


@dataclass
class Contestant:
    """One way of doing the benchmark's work. `work` is None for one that cannot, and `trouble` says why."""

    name: str
    work: Callable[[int], object] | None
    """Does round number n."""
    trouble: str = ""
    seconds: list[float] = field(default_factory=list)

    def go(self, number: int, counts: bool) -> None:
        """One round; a peer that breaks is out, Oneiro breaking ends the benchmark."""
        if self.work is None or self.trouble:
            return
        work = self.work
        try:
            spent = seconds_of(lambda: work(number))
        except Exception as error:
            if self.name == OURS:
                raise
            self.trouble = f"failed: {first_line(error)}"
            return
        if counts:
            self.seconds.append(spent)


def take_turns(title: str, contestants: Sequence[Contestant], rounds: int, warm_up: int = 1) -> None:
    """Every contestant once a round, so that whatever else the machine does falls on all of them."""
    with Bar(title, warm_up + rounds, 0, console(), lambda line: None) as bar:
        for number in range(warm_up + rounds):
            for contestant in contestants:
                contestant.go(number, counts=number >= warm_up)
            bar.advance()


def median_and_range(values: Sequence[float]) -> Cell:
    """The median with the smallest and the largest; empty for none."""
    return Cell(median(values), min(values), max(values), len(values)) if values else Cell(None)


def paired(theirs: Sequence[float], ours: Sequence[float]) -> Cell:
    """The median ratio of rounds; empty where the peer has none."""
    return median_and_range([a / b for a, b in zip(theirs, ours, strict=False)])


def comparison(title: str, contestants: Sequence[Contestant], tokens: int, floors: dict[str, float]) -> Table:
    """Contestants and computed floors (name -> seconds), each beside Oneiro."""
    ours = next(c for c in contestants if c.name == OURS)
    if not ours.seconds:
        raise OneiroError("a benchmark needs at least one round; give --rounds 1 or more")
    table = Table(
        title,
        ["contender", "seconds", "tokens/s", "times Oneiro's seconds", "trouble"],
        note="Medians of rounds in which all took turns; in brackets the smallest and the largest round.",
    )
    for c in contestants:
        seconds = median_and_range(c.seconds)
        rate = tokens / seconds.value if isinstance(seconds.value, float) else None
        table.add(c.name, seconds, rate, paired(c.seconds, ours.seconds), c.trouble or None)
    for name, floor in floors.items():
        table.add(name, floor, tokens / floor, floor / median(ours.seconds), None)
    return table
