"""What this machine has and what it lacks, in words."""

from __future__ import annotations

import ctypes.util
import os
import platform
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from oneiro.runtime import distributed, threads

GIB = 2**30
EXTRAS = {
    "board": ("starlette", "uvicorn"),
    "smollm": ("gguf",),
    "web": ("oneiro_web", "playwright"),
    "miniwob": ("miniwob",),
    "robot": ("mujoco", "metaworld", "imageio", "PIL"),
    "quantise": ("bitsandbytes", "accelerate"),
    "track": ("tensorboard", "wandb", "trackio"),
    "bench": ("trl", "datasets", "accelerate"),
    "mcp": ("mcp",),
    "ray": ("ray",),
    "rt1": ("tensorflow",),
}
"""Extra -> the modules it brings."""
HUB_SECONDS = 3.0  # a look at a machine should end in seconds, with or without a network
DRAWING = {"osmesa": "OSMesa", "egl": "EGL"}
"""What MUJOCO_GL calls it -> the library that draws a robot's frames, the preferred one first."""
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "firefox")


@dataclass(frozen=True)
class Finding:
    """One line of `oneiro doctor`."""

    what: str
    found: str
    advice: str = ""
    fatal: bool = False


def examine() -> list[Finding]:
    """Look at everything; a look that fails is a finding too."""
    findings: list[Finding] = []
    for check in CHECKS:
        try:
            findings.extend(check())
        except Exception as error:
            findings.append(Finding(check.__name__, f"{type(error).__name__}: {error}", "please report this"))
    return findings


def python() -> Iterator[Finding]:
    good = sys.version_info >= (3, 11)
    yield Finding("Python", platform.python_version(), "" if good else "Oneiro needs Python 3.11 or newer", not good)


def packages() -> Iterator[Finding]:
    for name in ("oneiro", "torch", "transformers", "peft", "tokenizers", "numpy"):
        try:
            yield Finding(name, version(name))
        except PackageNotFoundError:
            yield Finding(name, "missing", "install the package again: pip install -e .", fatal=True)


def processor() -> Iterator[Finding]:
    import torch

    cores, load = threads.cores(), os.getloadavg()[0]
    busy = "others are busy here: runs take longer" if load > 0.5 * cores else ""
    yield Finding("processor", f"{cores} cores, load {load:.1f}", busy)
    small, large = threads.choose(1), threads.choose()
    waiting = next((f"{name}={os.environ[name]}" for name in threads.SPINNING if name in os.environ), "spinning")
    forced = threads.forced_count(os.environ) is not None
    yield Finding(
        "threads",
        f"{small} for a small model, {large} for a large one; they wait with {waiting}",
        f"{threads.COUNT} is set and decides" if forced and torch.get_num_threads() < cores else "",
    )
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    yield Finding("memory", f"{memory / GIB:.1f} GiB", "" if memory > 4 * GIB else "stay with model=tiny")


def accelerator() -> Iterator[Finding]:
    import torch

    if not torch.cuda.is_available():
        built = torch.version.cuda
        advice = "no driver answers: see nvidia-smi" if built else "recipes with model=tiny need none"
        yield Finding("GPU", "none" if built else "none, and torch is a CPU build", advice)
        return
    for index in range(torch.cuda.device_count()):
        properties = torch.cuda.get_device_properties(index)
        bfloat = "bfloat16" if torch.cuda.is_bf16_supported() else "no bfloat16"
        free, total = torch.cuda.mem_get_info(index)
        advice = "another process fills its memory" if free < total / 2 else ""
        yield Finding(
            f"GPU {index}", f"{properties.name}, {free / GIB:.0f} of {total / GIB:.0f} GiB free, {bfloat}", advice
        )


def disk() -> Iterator[Finding]:
    here = Path.cwd()
    free = shutil.disk_usage(here).free
    yield Finding(
        "disk", f"{free / GIB:.1f} GiB free in {here}", "" if free > 2 * GIB else "runs may fill it: use --out"
    )
    try:
        with tempfile.TemporaryFile(dir=here):
            pass
    except OSError as error:
        yield Finding("runs", f"cannot write in {here}: {error.strerror}", "give --out DIR somewhere else")


def extras() -> Iterator[Finding]:
    for extra, modules in EXTRAS.items():
        missing = [module for module in modules if find_spec(module) is None]
        advice = f"pip install 'oneiro[{extra}]'" if missing else ""
        yield Finding(f"extra [{extra}]", f"without {', '.join(missing)}" if missing else "complete", advice)


def drawing() -> Iterator[Finding]:
    """Who can draw the frames of the robot."""
    libraries = [name for name in DRAWING.values() if ctypes.util.find_library(name)]
    chosen = os.environ.get("MUJOCO_GL")
    advice = f"MUJOCO_GL={chosen} is set and decides" if chosen else ""
    if not libraries:
        advice = "only the robot needs one: apt-get install libosmesa6 libgl1"
    yield Finding(
        "robot frames", f"drawn by {' or '.join(libraries)}" if libraries else "neither OSMesa nor EGL", advice
    )


def browsers() -> Iterator[Finding]:
    installed = [name for name in BROWSERS if shutil.which(name)]
    advice = "" if installed else "reports open in any; only worlds of web pages need one on this machine"
    yield Finding("browser", ", ".join(installed) or "none", advice)


def hub() -> Iterator[Finding]:
    from urllib.request import Request, urlopen

    from huggingface_hub.constants import ENDPOINT

    try:
        with urlopen(Request(ENDPOINT, method="HEAD"), timeout=HUB_SECONDS):
            yield Finding("model hub", f"{ENDPOINT} answers")
    except OSError:
        yield Finding("model hub", f"{ENDPOINT} does not answer", "use tiny, smollm2-135m, or a model folder")


CHECKS: tuple[Callable[[], Iterator[Finding]], ...] = (
    python,
    packages,
    processor,
    accelerator,
    disk,
    extras,
    drawing,
    browsers,
    hub,
)


# What the ranks of a torchrun see of one another ----------------------------------------------------------------------

NUMBERS = 1 << 22
"""Float32 numbers of the exchange that is timed."""
ROUNDS = 3  # all-reduces that are timed
SKEW = 1.0
"""Seconds by which clocks may differ before logs are hard to read together."""
PORTS = "MASTER_ADDR", "MASTER_PORT"


def examine_ranks() -> list[Finding]:
    """Called on every rank; rank 0 gets the findings."""
    if not distributed.is_launched():
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
