"""Killing runs in real processes, and comparing what they leave: shared by the tests of every system."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np


class Forked:
    """A copy of this process at work, with what `kill_in` uses of `subprocess.Popen`. It has imported everything, so
    that it begins at once; its output goes to `log`.
    """

    def __init__(self, work: Callable[[], object], log: Path | None = None) -> None:
        self.returncode: int | None = None
        self.pid = os.fork()
        if self.pid:
            return
        code = 1
        try:
            # Whatever pytest has done to the streams, a process writes to its own.
            out = os.open(log or os.devnull, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            os.dup2(out, 1), os.dup2(out, 2)
            work()
            code = 0
        except BaseException:
            os.write(2, traceback.format_exc().encode())
        finally:
            os._exit(code)

    def poll(self) -> int | None:
        if self.returncode is None:
            done, status = os.waitpid(self.pid, os.WNOHANG)
            self.returncode = os.waitstatus_to_exitcode(status) if done else None
        return self.returncode

    def wait(self) -> int:
        """Until it ends. A test that waits for ever fails by its own limit, and takes the copy with it."""
        try:
            while self.poll() is None:
                time.sleep(0.005)
        except BaseException:
            self.send_signal(signal.SIGKILL)
            raise
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)


def stage_status(out: Path, stage: str) -> str:
    try:
        return str(json.loads((out / "run.json").read_text())["stages"].get(stage, {}).get("status", ""))
    except (OSError, json.JSONDecodeError):
        return ""


def kill_in(stages: Sequence[str], out: Path, start: Callable[[], subprocess.Popen[bytes] | Forked]) -> int:
    """Start a run again and again, each time killed at a random moment of the next stage; how often it was in time."""
    rng, kills = np.random.default_rng(5), 0
    for stage in stages:
        process = start()
        while stage_status(out, stage) != "running" and process.poll() is None:
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
