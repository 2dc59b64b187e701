"""Measure how long recipes run on this machine, and write it into their `takes:`.

python tools/measure_takes.py spa/frozen-lake spa/bandit          # run each, print its time
python tools/measure_takes.py spa/frozen-lake --write             # ... and write it into the recipe

A recipe whose time nobody has measured says "estimate". The clock counts from the command's start to its end. The
result is refused where other processes took more than a tenth of the cores meanwhile.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from oneiro.recipe import find

OTHERS = 0.1
"""Share of the cores that other processes may take."""


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("recipes", nargs="+")
    arguments.add_argument("--write", action="store_true", help="write the times into the recipes")
    chosen = arguments.parse_args()
    refused = 0
    for name in chosen.recipes:
        seconds, others = measure(name)
        takes = f"{words(seconds)} on {os.cpu_count()} cores"
        print(f"{name}: {seconds:.0f} s; {takes}; others took {others:.0%} of the cores", flush=True)
        if others > OTHERS:
            refused += 1
            print(f"{name}: not a quiet machine, nothing is written", flush=True)
        elif chosen.write:
            write(find(name), takes)
    return 1 if refused else 0


def measure(name: str) -> tuple[float, float]:
    """Seconds of the whole command, and the share of the cores that others took meanwhile."""
    folder = Path(tempfile.mkdtemp(prefix="takes-"))
    try:
        clock, busy, own = time.monotonic(), busy_seconds(), os.times()
        command = [sys.executable, "-m", "oneiro", "run", name, "--out", str(folder / "run")]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        seconds, spent = time.monotonic() - clock, os.times()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    ours = spent.children_user + spent.children_system - own.children_user - own.children_system
    return seconds, max(0.0, busy_seconds() - busy - ours) / (seconds * (os.cpu_count() or 1))


def busy_seconds() -> float:
    """Processor seconds that the whole machine has spent since it started (Linux)."""
    user, nice, system, _, _, irq, softirq, *_ = map(int, Path("/proc/stat").read_text().split()[1:9])
    return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")


def words(seconds: float) -> str:
    """`about 4 minutes`, rounded up: who is promised four waits no longer."""
    minutes = max(1, -(-round(seconds) // 60))
    return f"about {minutes} minute{'s' if minutes > 1 else ''}"


def write(path: Path, takes: str) -> None:
    text = path.read_text()
    path.write_text(re.sub(r"^takes: .*$", f"takes: {takes}", text, count=1, flags=re.MULTILINE))


if __name__ == "__main__":
    sys.exit(main())
