"""How many threads an operation uses and how they wait, so that a busy machine slows a run down no more than it must.

Threads that wait by spinning take the core from the thread they wait for. Where another process is busy, one operation
of a small model then takes ten times as long. So threads sleep while they wait, and a small model has one.

The count depends on the model and the cores, never on the load: it changes the last digits of sums, and the same
recipe must give the same numbers on a quiet and on a busy machine. A run keeps the count it began with (`run.json`).
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Mapping
from pathlib import Path

COUNT = "OMP_NUM_THREADS"
WAITING = {"OMP_WAIT_POLICY": "PASSIVE"}
"""Understood by every OpenMP library that torch is built with."""
SPINNING = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")
"""What a person may have set to say how threads wait."""
ONE_TEXT_AT_A_TIME = ("TOKENIZERS_PARALLELISM", "false")
"""A tokenizer that has used threads of its own warns at every fork, and one text has no use for them."""
PARAMETERS_PER_THREAD = 8_000_000
"""Below so many, a second thread gains less than waiting for it costs."""
CGROUP = Path("/sys/fs/cgroup")


def prepare() -> None:
    """Choose how threads wait, and keep their number within a container's share. Does nothing once torch is imported.

    Whatever the environment says already stays.
    """
    if "torch" in sys.modules:
        return
    if not any(name in os.environ for name in SPINNING):
        os.environ.update(WAITING)
    os.environ.setdefault(*ONE_TEXT_AT_A_TIME)
    if COUNT not in os.environ and cores() < _visible():
        os.environ[COUNT] = str(cores())


def choose(parameters: int | None = None) -> int:
    """Threads for a model of that many parameters (None: a large one); `OMP_NUM_THREADS` wins."""
    forced = forced_count(os.environ)
    return by_size(parameters) if forced is None else forced


def by_size(parameters: int | None) -> int:
    """The same where nobody has set anything."""
    return cores() if parameters is None else min(cores(), 1 + parameters // PARAMETERS_PER_THREAD)


def forced_count(environment: Mapping[str, str]) -> int | None:
    """What `OMP_NUM_THREADS` asks for; None where it is unset or no count."""
    first = environment.get(COUNT, "").split(",")[0].strip()
    return int(first) if first.isdecimal() and int(first) > 0 else None


def cores() -> int:
    """Processors this process may use: its affinity, and a container's share, rounded up."""
    return max(1, math.ceil(min(_visible(), _share())))


def _visible() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _share() -> float:
    """The control group's limit in processors; infinite where there is none."""
    for names in (("cpu.max",), ("cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us")):
        try:
            quota, period = " ".join((CGROUP / name).read_text() for name in names).split()
            return int(quota) / int(period) if int(quota) > 0 else math.inf
        except (OSError, ValueError, ZeroDivisionError):
            continue  # no such file, or "max"
    return math.inf
