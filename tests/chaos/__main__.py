"""`python -m tests.chaos`: break runs in every way we know, let them go on, and count how they end.

    kills            SIGKILL at random moments, again and again
    crashes          the process ends before each of its operations on files
    disk faults      one operation fails with ENOSPC, EIO, EMFILE, ...; the next process has a good disk again
    damaged folders  the catalogue of `folders.py`, on a run that was stopped in the middle and on a finished one
    hostile server   a server that echoes the key, lies, floods, stalls
    ranks            SIGKILL of a random rank of 2 or 3; the run goes on with another number of ranks

A case ends right if the run ends with the bytes of one left alone, or says in one line what to mend (exit code 2).
Anything else is counted in its own column: a run that ends with other bytes is silently wrong.
"""

from __future__ import annotations

import argparse
import errno
import gzip
import hashlib
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from rich.console import Console

from oneiro.cli import main
from oneiro.report.table import Table
from tests.chaos import child, ranks, server
from tests.chaos.child import Ended
from tests.chaos.folders import CHECKPOINTS, FINISHED, LOGS, REPORT_FILES, RUN_FILES, Case
from tests.interruption import fingerprint

SMALL = [
    "preset=smoke",
    "variants=[spa]",
    "model.layers=1",
    "model.width=16",
    "model.heads=2",
    "model.mlp=16",
    "self_play.batches=2",
    "self_play.levels=6",
    "sft.epochs=1.0",
    "sft.checkpoint_every=2",
    "rollout.prompts_per_step=2",
    "rollout.group_size=2",
    "dialogue.max_turns=2",
    "sampling.max_tokens=8",
    "rl.steps=3",
    "evaluation.levels=2",
    "evaluation.samples=1",
]
"""Every stage of a recipe in about a second."""
FAULTS = (errno.ENOSPC, errno.EIO, errno.EMFILE, errno.EACCES, errno.EROFS, errno.EDQUOT)
SIZES = {"small": (6, 12, 10), "full": (100, 0, 100)}
"""Kills, crash points (0: every one), disk faults."""


@dataclass
class Count:
    """How the cases of one kind ended."""

    cases: int = 0
    right: int = 0
    silent: list[str] = field(default_factory=list)
    tracebacks: list[str] = field(default_factory=list)
    leaked: list[str] = field(default_factory=list)
    other: list[str] = field(default_factory=list)
    note: str = ""

    def add(self, name: str, ended: Ended, same: bool | None, leaked: bool = False) -> None:
        """`same`: whether a run that went to its end has the right bytes; None where there is nothing to compare."""
        self.cases += 1
        if leaked:
            self.leaked.append(name)
        elif ended.traceback:
            self.tracebacks.append(f"{name}: {ended.errors.strip().splitlines()[-1]}")
        elif ended.code == 0 and same is False:
            self.silent.append(name)
        elif ended.code == 0 or ended.told:
            self.right += 1
        else:
            self.other.append(f"{name}: exit {ended.code}, {ended.errors.strip()[-200:]}")


class Chaos:
    """One small run left alone, and everything done to its siblings."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder, self.rng = folder, np.random.default_rng(seed)
        main(self.words(folder / "alone"))  # in this process, so that its children need not import anything
        self.whole = fingerprint(folder / "alone")
        began = time.monotonic()
        ended, same = self.go_on(folder / "again")
        assert same, ended
        self.seconds = time.monotonic() - began

    def words(self, out: Path, *more: str) -> list[str]:
        return ["run", "spa/frozen-lake", *SMALL, *more, "--out", str(out)]

    def fresh(self) -> Path:
        out = self.folder / "run"
        shutil.rmtree(out, ignore_errors=True)
        return out

    def go_on(self, out: Path) -> tuple[Ended, bool]:
        """The same command once more; whether it ends like the run left alone."""
        ended = child.run(self.words(out), self.folder / "logs")
        return ended, ended.code == 0 and fingerprint(out) == self.whole

    def kills(self, count: int) -> Count:
        found, done = Count(), 0
        while done < count:
            out, killed = self.fresh(), 0
            for number in range(int(min(count - done, self.rng.integers(1, 6)))):
                pid = child.start(self.words(out), self.folder / "logs")
                self.pause(pid, fresh=number == 0)
                os.kill(pid, signal.SIGKILL)
                killed += child.wait(pid, self.folder / "logs").code == -signal.SIGKILL
            done += max(1, killed)
            ended, same = self.go_on(out)
            for number in range(max(1, killed)):
                found.add(f"kill {done - number}", ended, same)
            progress("kills", found.cases, count, by=max(1, killed))
        return found

    def pause(self, pid: int, fresh: bool) -> None:
        """Up to a random moment of a run. One that ends before it says how long a fresh run takes by now."""
        began = time.monotonic()
        until = began + float(self.rng.uniform(0, 1.1 * self.seconds))
        while time.monotonic() < until:
            if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
                self.seconds = time.monotonic() - began if fresh else self.seconds
                return
            time.sleep(0.01)

    def crashes(self, most: int) -> Count:
        """Every operation on files, or as many of them as asked for, evenly spread.

        What a process leaves that ends before an operation is what lies there at that moment: one run copies it each
        time. Many operations change nothing (a read, an fsync): states that are alike are gone on from once.
        """
        out, states, found = self.fresh(), self.folder / "states", Count()
        log = self.folder / "operations"
        shutil.rmtree(states, ignore_errors=True)
        log.write_text("")

        def copy(number: int, name: str) -> None:
            state = listing(out)
            with log.open("a") as handle:
                handle.write(f"{state} {number} {name}\n")
            if out.exists() and not (states / state).exists():
                shutil.copytree(out, states / state, symlinks=True)

        assert child.run(self.words(out), self.folder / "logs", copy, out).code == 0
        operations = log.read_text().splitlines()
        chosen = range(len(operations)) if not most else np.linspace(0, len(operations) - 1, most).astype(int)
        alike: dict[str, tuple[Ended, bool]] = {}
        for point in chosen:
            state, _, name = operations[int(point)].partition(" ")
            if state not in alike:
                self.fresh()
                if (states / state).exists():
                    shutil.copytree(states / state, out, symlinks=True)
                alike[state] = self.go_on(out)
            found.add(f"crash {name}", *alike[state])
            progress("crashes", found.cases, len(chosen), 50)
        found.note = f"{len(alike)} different states"
        return found

    def disk_faults(self, count: int) -> Count:
        found = Count()
        log = self.folder / "counted"

        def note(number: int, name: str) -> None:
            with log.open("a") as handle:
                handle.write(name + "\n")

        out = self.fresh()
        child.run(self.words(out), self.folder / "logs", note, out)
        total = len(log.read_text().splitlines())
        for number in range(count):
            out, point = self.fresh(), int(self.rng.integers(total))
            kind = FAULTS[number % len(FAULTS)]

            def fault(at: int, name: str, point: int = point, kind: int = kind) -> None:
                if at == point:
                    raise OSError(kind, os.strerror(kind), "a file of the run")

            first = child.run(self.words(out), self.folder / "logs", fault, out)
            name = f"{errno.errorcode[kind]} at {point}"
            if first.traceback or (first.code != 0 and not first.told):
                found.add(name, first, None)
                continue
            ended, same = self.go_on(out)
            found.add(name, ended, same)
            progress("disk faults", found.cases, count)
        return found

    def stopped(self) -> Path:
        """A run that ended in the middle of RL, with two checkpoints."""
        out = self.folder / "stopped"
        shutil.rmtree(out, ignore_errors=True)

        def stop(number: int, name: str) -> None:
            if (
                len(list(out.glob("checkpoints/rl-spa/step-*"))) == 2
                and (out / "checkpoints/rl-spa/step-000002").exists()
            ):
                os._exit(child.CRASHED)

        child.run(self.words(out), self.folder / "logs", stop, out)
        return out

    def damaged_folders(self) -> Count:
        found, source = Count(), self.stopped()
        for name, case in self.cases():
            out = self.fresh()
            shutil.copytree(source, out)
            case.damage(out)
            if name not in REPORT_FILES:
                ended, same = self.go_on(out)
                found.add(name, ended, same)
            if name not in CHECKPOINTS:
                found.add(f"report, {name}", child.run(["report", str(out)], self.folder / "logs"), None)
        for name, case in FINISHED.items():
            out = self.fresh()
            shutil.copytree(self.folder / "alone", out, symlinks=True)
            case.damage(out)
            found.add(name, self.go_on(out)[0], False)  # to end as if nothing had happened is silent
        return found

    def cases(self) -> Iterator[tuple[str, Case]]:
        yield from RUN_FILES.items()
        yield from LOGS.items()
        yield from REPORT_FILES.items()
        yield from CHECKPOINTS.items()

    def hostile_server(self) -> Count:
        found = Count()
        os.environ["CHAOS_KEY"] = server.KEY
        for name in server.ANSWERS:
            out = self.fresh()
            with server.Host(name) as host:
                settings = {"base_url": host.address, "model": "m", "api_key_env": "CHAOS_KEY", "retries": 1}
                settings |= {"timeout_s": 1.0, "total_s": 5.0, "max_tokens": 20}
                more = [f"self_play.server.{key}={value}" for key, value in settings.items()]
                words = self.words(out, "self_play.policy=server", "self_play.batches=1", *more)
                ended = child.run(words, self.folder / "logs")
            written = [ended.out, ended.errors, *(text(path) for path in out.rglob("*") if path.is_file())]
            leaked = any(server.KEY in part or "\x1b" in ended.out + ended.errors for part in written)
            found.add(name, ended, None, leaked)
        return found

    def lost_ranks(self, count: int) -> Count:
        """Numbers to float tolerance: the order of sums depends on the number of ranks."""
        found = Count()
        for number in range(count):
            out, size = self.fresh(), 2 + number % 2
            problem = ranks.kill_one(self.words(out), self.folder / "ranks", out, size, self.rng, 2 * self.seconds)
            ended = ranks.finish(self.words(out), self.folder / "ranks", 5 - size)
            same = ended.code == 0 and ranks.alike(out, self.folder / "alone")
            found.add(f"rank lost {number}: {problem}", ended, same and not problem)
        return found


def listing(folder: Path) -> str:
    """A folder's files, links and bytes as one text."""
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        digest.update(f"{path.relative_to(folder)}\0{path.is_dir()}\0".encode())
        digest.update(bytes(path.readlink()) if path.is_symlink() else path.read_bytes() if path.is_file() else b"")
    return f"{folder.exists()}-{digest.hexdigest()[:20]}"


def progress(kind: str, done: int, total: int, every: int = 10, by: int = 1) -> None:
    if done // every > (done - by) // every:
        print(f"{kind}: {done} of {total}", flush=True)


def text(path: Path) -> str:
    data = path.read_bytes()
    return (gzip.decompress(data) if path.suffix == ".gz" else data).decode(errors="replace")


KINDS = ("kills", "crashes", "disk faults", "damaged folders", "hostile server", "ranks")


def count() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.chaos", description=__doc__.splitlines()[0] if __doc__ else ""
    )
    parser.add_argument("--size", choices=SIZES, default="full")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help=f"some of these, with commas: {', '.join(KINDS)}")
    asked = parser.parse_args()
    only = asked.only.split(",") if asked.only else KINDS
    if unknown := set(only) - set(KINDS):
        parser.error(f"--only: nothing is called {sorted(unknown)[0]!r}; there is {', '.join(KINDS)}")
    os.environ |= {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}  # what is forked must have one thread
    torch.set_num_threads(1)
    kills, points, faults = SIZES[asked.size]
    table = Table(
        "Chaos", ["kind", "cases", "ended right", "silently wrong", "tracebacks", "keys leaked", "other", "s"]
    )
    bad: list[str] = []
    with tempfile.TemporaryDirectory(prefix="oneiro-chaos-") as scratch:
        chaos = Chaos(Path(scratch), asked.seed)
        work: list[Callable[[], Count]] = [
            lambda: chaos.kills(kills),
            lambda: chaos.crashes(points),
            lambda: chaos.disk_faults(faults),
            chaos.damaged_folders,
            chaos.hostile_server,
            lambda: chaos.lost_ranks(5),
        ]
        for kind, done in zip(KINDS, work, strict=True):
            if kind not in only:
                continue
            began = time.monotonic()
            found = done()
            wrong = [found.silent, found.tracebacks, found.leaked, found.other]
            seconds = round(time.monotonic() - began)
            table.add(kind, found.cases, found.right, *(len(names) for names in wrong), seconds)
            bad += [f"{kind}: {name}" for names in wrong for name in names]
            note = f" ({found.note})" if found.note else ""
            print(f"{kind}: {found.right} of {found.cases} ended right{note}, {seconds} s", flush=True)
    Console(width=120).print(table)
    for entry in bad:
        print(entry)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(count())
