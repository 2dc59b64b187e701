"""Shared work: workers that die, are stopped, or lose their parent."""

from __future__ import annotations

import importlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from oneiro.runtime.errors import OneiroError
from oneiro.runtime.processes import each_done

HERE = Path(__file__).resolve().parents[2]


def square(number: int) -> int:
    return number * number


def die_at_three(number: int, folder: str = "", often: int = 99) -> int:
    """Ends its process at 3, the first `often` times."""
    if number == 3:
        marks = Path(folder)
        if len(list(marks.iterdir())) < often:
            (marks / str(os.getpid())).touch()
            os.kill(os.getpid(), signal.SIGKILL)
    return number * number


def complain(number: int) -> int:
    raise OSError(28, "No space left on device", "file")


def test_every_item_is_done_once() -> None:
    assert sorted(each_done(square, ((n,) for n in range(7)), 2)) == [n * n for n in range(7)]
    assert list(each_done(square, (), 2)) == []


def test_a_worker_that_dies_once_costs_nothing(tmp_path: Path) -> None:
    items = [(n, str(tmp_path), 1) for n in range(6)]
    assert sorted(each_done(die_at_three, items, 2)) == [n * n for n in range(6)]
    assert len(list(tmp_path.iterdir())) == 1


def test_an_item_that_kills_every_worker_is_lost_alone(tmp_path: Path) -> None:
    items = [(n, str(tmp_path), 99) for n in range(6)]
    found = list(each_done(die_at_three, items, 2, lambda number, folder, often: -number))
    assert sorted(found) == [-3, 0, 1, 4, 16, 25]
    assert len(list(tmp_path.iterdir())) == 2
    with pytest.raises(OneiroError, match="died twice"):
        list(each_done(die_at_three, items, 2))


def test_what_work_raises_is_raised_here() -> None:
    with pytest.raises(OSError, match="No space left"):
        list(each_done(complain, [(1,), (2,)], 2))


PROGRAM = """
import os, sys, time
from pathlib import Path
from oneiro.runtime.processes import each_done

def mark_and_sleep(folder, number):
    (Path(folder) / str(os.getpid())).touch()
    time.sleep(120)
    return number

if __name__ == "__main__":
    for _ in each_done(mark_and_sleep, [(sys.argv[1], n) for n in range(4)], 2):
        pass
"""


def wait_until_gone(folder: Path) -> None:
    """Until every process that left its mark has ended; a test that waits for ever fails by its own limit."""
    while any(Path(f"/proc/{mark.name}").exists() for mark in folder.iterdir()):
        time.sleep(0.05)


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="looks for processes in /proc")
@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_workers_end_with_their_parent_however_it_ends(tmp_path: Path, end: signal.Signals) -> None:
    program, marks = tmp_path / "program.py", tmp_path / "marks"
    program.write_text(PROGRAM)
    marks.mkdir()
    hear: Callable[[], object] = lambda: signal.signal(signal.SIGINT, signal.default_int_handler)  # noqa: E731
    process = subprocess.Popen(
        [sys.executable, str(program), str(marks)],
        env={**os.environ, "PYTHONPATH": str(HERE)},
        stderr=subprocess.DEVNULL,
        preexec_fn=hear,
    )
    while len(list(marks.iterdir())) < 2:
        assert process.poll() is None
        time.sleep(0.02)
    process.send_signal(end)
    assert process.wait() != 0
    wait_until_gone(marks)


INTERRUPTED = """
import os, signal
from multiprocessing import current_process
if current_process().name != "MainProcess":
    os.kill(os.getpid(), signal.SIGINT)  # as a terminal's Ctrl-C, which reaches workers too
def held_back():
    return signal.pthread_sigmask(signal.SIG_BLOCK, [])
"""


def test_control_c_while_a_worker_imports_is_its_parents_business(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "interrupted.py").write_text(INTERRUPTED)
    monkeypatch.syspath_prepend(str(tmp_path))
    work = importlib.import_module("interrupted").held_back
    heard = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have set it aside
    try:
        assert list(each_done(work, [()], 1)) == [set()]
    finally:
        signal.signal(signal.SIGINT, heard)
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, [])
