"""Killing runs in real processes, and comparing what they leave: shared by the tests of every system."""

from __future__ import annotations

import hashlib
import json
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np


def stage_status(out: Path, stage: str) -> str:
    try:
        return str(json.loads((out / "run.json").read_text())["stages"].get(stage, {}).get("status", ""))
    except (OSError, json.JSONDecodeError):
        return ""


def kill_in(stages: Sequence[str], out: Path, start: Callable[[], subprocess.Popen[bytes]]) -> int:
    """Start a run again and again, each time killed at a random moment of the next stage; how often it was in time."""
    rng, kills = np.random.default_rng(5), 0
    for stage in stages:
        process = start()
        deadline = time.monotonic() + 120
        while stage_status(out, stage) != "running" and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.005)
        time.sleep(float(rng.random()) * 0.25)
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
            kills += 1
        process.wait()
    return kills


def fingerprint(out: Path, folders: Sequence[str] = ()) -> dict[str, str]:
    """Digests of what a run must reproduce: metrics, summary, episodes, weights, and everything in `folders`."""
    weights = [
        *(out / "checkpoints").glob("base/**/*.safetensors"),
        *(out / "checkpoints").glob("*/step-*/**/*.safetensors"),
    ]
    files = [out / "metrics.jsonl", out / "summary.json", *sorted(weights)]
    for folder in ("episodes", *folders):
        files += sorted((out / folder).iterdir())
    return {str(f.relative_to(out)): hashlib.sha256(f.read_bytes()).hexdigest() for f in files}
