"""A run in a process of its own that can be killed, crashed or refused by its disk at a chosen moment.

Processes are forked from one that has imported everything: a start costs milliseconds, so that hundreds are possible.
"""

from __future__ import annotations

import builtins
import io
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Hook = Callable[[int, str], None]
"""Called before each operation on a file of the run, with its number and name."""

CHANGES = ("replace", "rename", "fsync", "truncate", "unlink", "mkdir", "rmdir", "open", "write")
CRASHED = 99


@dataclass(frozen=True)
class Ended:
    """How a process ended: its exit code (negative: the signal) and what it said on standard error."""

    code: int
    errors: str
    out: str

    @property
    def traceback(self) -> bool:
        return "Traceback (most recent call last)" in self.errors

    @property
    def told(self) -> bool:
        """One line and the exit code for what a person can mend, after notices that a server is asked again."""
        lines = [line for line in self.errors.strip().splitlines() if "; trying again (retries=" not in line]
        return self.code == 2 and len(lines) == 1


def run(words: Sequence[str], logs: Path, hook: Hook | None = None, folder: Path | None = None) -> Ended:
    """The command with these words, to its end."""
    return wait(start(words, logs, hook, folder), logs)


def start(words: Sequence[str], logs: Path, hook: Hook | None = None, folder: Path | None = None) -> int:
    """Fork a process that runs the command; returns its number."""
    logs.mkdir(parents=True, exist_ok=True)
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        for number, name in ((1, "out"), (2, "err")):
            target = os.open(logs / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
            os.dup2(target, number)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        if hook is not None:
            assert folder is not None
            watch(folder.resolve(), hook)
        from oneiro.cli import main

        code = main(list(words))
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def wait(pid: int, logs: Path, seconds: float = 300.0) -> Ended:
    """The end of a process; one that takes too long is killed, which counts as an end that is not right."""
    deadline = time.monotonic() + seconds
    while True:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            break
        if time.monotonic() > deadline:
            os.kill(pid, signal.SIGKILL)
            _, status = os.waitpid(pid, 0)
            break
        time.sleep(0.005)
    errors, out = ((logs / name).read_text(errors="replace") for name in ("err", "out"))
    return Ended(os.waitstatus_to_exitcode(status), errors, out)


def watch(folder: Path, hook: Hook) -> None:
    """Call `hook` before everything this process does to files below `folder`: what is after one thing is before the
    next.
    """
    count, inside, hooked = 0, str(folder), False

    def concerns(arguments: tuple[Any, ...]) -> bool:
        first = arguments[0] if arguments else None
        if isinstance(first, int):
            try:
                first = Path(f"/proc/self/fd/{first}").readlink()
            except OSError:
                return False
        return isinstance(first, str | os.PathLike) and str(Path(first).absolute()).startswith(inside)

    def watched(name: str, work: Callable[..., Any]) -> Callable[..., Any]:
        def operation(*arguments: Any, **options: Any) -> Any:
            nonlocal count, hooked
            if hooked or not concerns(arguments):
                return work(*arguments, **options)
            hooked = True  # what the hook does to files is its own affair
            try:
                hook(count, name)
            finally:
                hooked = False
            count += 1
            return work(*arguments, **options)

        return operation

    for name in CHANGES:
        setattr(os, name, watched(name, getattr(os, name)))
    io.open = builtins.open = watched("open file", builtins.open)  # type: ignore[assignment]
    import safetensors.torch as tensors

    save = tensors.save_file

    def save_file(data: Any, path: Any, *rest: Any, **options: Any) -> None:
        watched("save tensors", lambda target: save(data, target, *rest, **options))(path)

    tensors.save_file = save_file
