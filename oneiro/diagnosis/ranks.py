"""What the ranks of a torchrun see of one another: hosts, versions, clocks, devices, and their rate of exchange."""

from __future__ import annotations

import os
import socket
import time
from importlib.metadata import version
from typing import Any

from oneiro.diagnosis.doctor import Finding
from oneiro.runtime import distributed

NUMBERS = 1 << 22
"""Float32 numbers of the exchange that is timed."""
ROUNDS = 3  # all-reduces that are timed
SKEW = 1.0
"""Seconds by which clocks may differ before logs are hard to read together."""
PORTS = "MASTER_ADDR", "MASTER_PORT"


def examine_ranks() -> list[Finding]:
    """Called on every rank; rank 0 gets the findings."""
    if not distributed.launched():
        advice = "start it as: torchrun --nproc-per-node 2 -m oneiro doctor --distributed"
        return [Finding("ranks", "this process was not started by torchrun", advice, fatal=True)]
    with distributed.setup():
        seen, gigabytes = distributed.gather(_look()), _exchange()
        if not distributed.is_main_process():
            return []
    findings = [Finding("store", ":".join(os.environ.get(name, "?") for name in PORTS), "")]
    for rank, one in enumerate(seen):
        findings.append(Finding(f"rank {rank}", f"{one['host']}, {one['device']}, torch {one['torch']}"))
    for name in ("torch", "oneiro", "transformers"):
        versions = sorted({str(one[name]) for one in seen})
        advice = "" if len(versions) == 1 else "install the same version everywhere"
        findings.append(Finding(f"{name} versions", ", ".join(versions), advice, fatal=len(versions) > 1))
    skew = max(one["clock"] for one in seen) - min(one["clock"] for one in seen)
    findings.append(Finding("clocks", f"{skew:.2f} s apart at most", "" if skew < SKEW else "set them by NTP"))
    findings.append(Finding("all-reduce", f"{gigabytes:.2f} GB/s over {len(seen)} ranks"))
    return findings


def _look() -> dict[str, Any]:
    import torch

    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "no GPU"
    distributed.barrier()  # all clocks are read right after
    own = {"host": socket.gethostname(), "device": device, "clock": time.time()}
    return own | {name: version(name) for name in ("torch", "oneiro", "transformers")}


def _exchange() -> float:
    """GB/s at which an all-reduce takes numbers in."""
    import torch
    import torch.distributed as dist

    numbers = torch.ones(NUMBERS, device="cuda" if torch.cuda.is_available() else "cpu")
    dist.all_reduce(numbers)
    began = time.perf_counter()
    for _ in range(ROUNDS):
        dist.all_reduce(numbers)
    if numbers.is_cuda:
        torch.cuda.synchronize()
    return ROUNDS * 4 * NUMBERS / (time.perf_counter() - began) / 1e9
