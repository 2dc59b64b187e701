"""A contender seen from outside: a process that is asked for one step at a time."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import oneiro
from bench import contender
from bench.contender import Job
from oneiro.runtime import files
from oneiro.runtime.errors import OneiroError

PEER_PYTHON = "ONEIRO_PEER_PYTHON"
"""Names the Python that peers run under, when they live in an environment of their own."""


class Contender:
    """Starts a process, asks it for steps, and remembers its memory. A peer that is missing or breaks has `trouble`."""

    def __init__(
        self, job: Job, scratch: Path, threads: int, patience: float, environment: Mapping[str, str] | None = None
    ) -> None:
        """`environment`: another one than this process has."""
        self.name, self.patience = job.contender, patience
        self.trouble = ""
        self.memory_before = self.memory = 0.0
        """MB: with its libraries imported but no model, and at the most."""
        own = job.contender == "oneiro"
        python = sys.executable if own else os.environ.get(PEER_PYTHON) or sys.executable
        # Whatever a peer leaves behind goes away with the scratch folder.
        kept = {"OMP_NUM_THREADS": str(threads), "HF_HUB_OFFLINE": "1", "TMPDIR": str(scratch)}
        environment = {**(os.environ if environment is None else environment), **kept}
        if own:
            places = [str(Path(oneiro.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
            environment["PYTHONPATH"] = os.pathsep.join(filter(None, places))
        task, self._log = scratch / f"{self.name}.json", scratch / f"{self.name}.log"
        files.write_json(task, asdict(job))
        try:
            with self._log.open("wb") as log:
                self._process = subprocess.Popen(
                    [python, "-P", contender.__file__, str(task)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    env=environment,
                )
        except OSError as error:
            raise OneiroError(
                f"{PEER_PYTHON}: cannot run '{python}' ({error.strerror}); give the path of a Python"
            ) from error
        self._rest = b""
        imported = self._hear("importing its libraries")
        if imported is not None:
            self.memory_before = imported["memory"]
            self._hear("building its model")

    def step(self, number: int, given: bool = False) -> dict[str, Any] | None:
        """One GRPO step on sampled or on the job's completions; None once there is trouble."""
        if self.trouble:
            return None
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps({"step": number, "given": given}).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            self._fail()
            return None
        return self._hear(f"step {number}")

    def close(self) -> None:
        """Let the process end; it is killed if it does not."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()

    def _hear(self, awaited: str) -> dict[str, Any] | None:
        line = self._line(awaited)
        if line is None:
            self._fail()
            return None
        message: dict[str, Any] = json.loads(line)
        if "absent" in message:
            self.trouble = f"not installed: no module '{message['absent']}'"
            return None
        self.memory = message["memory"]
        return message

    def _line(self, awaited: str) -> bytes | None:
        """The next line of the process; None when it has ended."""
        assert self._process.stdout is not None
        deadline = time.monotonic() + self.patience
        while b"\n" not in self._rest:
            if not select.select([self._process.stdout], [], [], max(0.0, deadline - time.monotonic()))[0]:
                self._process.kill()
                raise OneiroError(
                    f"{self.name} did not finish {awaited} within {self.patience:.0f} s; measure a smaller model"
                )
            piece = os.read(self._process.stdout.fileno(), 1 << 16)
            if not piece:
                return None
            self._rest += piece
        line, _, self._rest = self._rest.partition(b"\n")
        return line

    def _fail(self) -> None:
        """Our own failure ends the run; a peer's becomes its row."""
        said = self._log.read_text(errors="replace").strip().splitlines() or ["it said nothing"]
        self.trouble = f"failed: {said[-1][:200]}"
        if self.name == "oneiro":
            raise OneiroError(f"the benchmark's own contender {self.trouble}")
