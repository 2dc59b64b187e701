"""A run on several ranks, one of which is killed at a random moment; it goes on with another number of ranks."""

from __future__ import annotations

import json
import math
import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tests.chaos import child
from tests.ranks import free_port

NAMES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
SECONDS = 120.0
"""The longest that ranks may take to end once one of them is killed, or to finish the small run."""


def start(words: Sequence[str], logs: Path, size: int) -> list[int]:
    """The processes of all ranks."""
    pids, port = [], str(free_port())
    for rank in range(size):
        values = [str(rank), str(size), str(rank), str(size), "127.0.0.1", port]
        os.environ |= dict(zip(NAMES, values, strict=True))
        pids.append(child.start(words, logs / str(rank)))
    for name in NAMES:
        del os.environ[name]
    return pids


def finish(words: Sequence[str], logs: Path, size: int) -> child.Ended:
    """The run to its end; what rank 0 said."""
    pids = start(words, logs, size)
    ended = [child.wait(pid, logs / str(rank), SECONDS) for rank, pid in enumerate(pids)]
    return ended[0]


def kill_one(words: Sequence[str], logs: Path, out: Path, size: int, rng: np.random.Generator, seconds: float) -> str:
    """Kill a random rank at a random moment; what is wrong with how the others ended, or nothing.

    Not before all have met: there it is torchrun that ends the others.
    """
    pids, victim = start(words, logs, size), int(rng.integers(size))
    deadline = time.monotonic() + SECONDS
    while not ((out / "log.txt").exists() and "stage 1" in (out / "log.txt").read_text()):
        time.sleep(0.02)
        if time.monotonic() > deadline:
            return "ranks do not meet"
    time.sleep(float(rng.uniform(0, seconds)))
    os.kill(pids[victim], signal.SIGKILL)
    began, problem = time.monotonic(), ""
    ended = [child.wait(pid, logs / str(rank), SECONDS) for rank, pid in enumerate(pids)]
    if time.monotonic() - began > SECONDS:
        problem = "ranks hang"
    in_time = ended[victim].code == -signal.SIGKILL and any(one.code for r, one in enumerate(ended) if r != victim)
    lines = [one.errors for rank, one in enumerate(ended) if rank != victim]
    if in_time and not any("lost the others" in errors and "the same command resumes" in errors for errors in lines):
        problem = problem or f"no rank says that it lost rank {victim}"
    return problem


def alike(one: Path, other: Path) -> bool:
    """Whether two runs logged the same numbers, to float tolerance."""
    rows = [[json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()] for run in (one, other)]
    if [(row["stage"], row["step"]) for row in rows[0]] != [(row["stage"], row["step"]) for row in rows[1]]:
        return False
    return all(
        mine.keys() == theirs.keys()
        and all(
            mine[key] == theirs[key] or math.isclose(mine[key], theirs[key], rel_tol=1e-3, abs_tol=1e-4)
            for key in mine
            if isinstance(mine[key], float)
        )
        for mine, theirs in zip(*rows, strict=True)
    )
