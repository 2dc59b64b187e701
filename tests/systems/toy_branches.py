"""A run of two independent stages, for the tests of `side_by_side`: imported by the processes they start."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from oneiro.rundir.run import Run
from oneiro.runtime.errors import OneiroError
from oneiro.runtime.seeds import generator
from oneiro.systems.side_by_side import side_by_side
from tests.toy_system import ToyRecipe

NAMES = ["first", "second", "third"]


def walk(run: Run, name: str, trouble: str) -> None:
    """Three logged steps of a random walk. `trouble`: what happens to `second` when it is done for the first time."""
    run.stage(name, lambda: steps(run, name, trouble))


def steps(run: Run, name: str, trouble: str) -> dict[str, float]:
    run.rewind(name, -1)
    place = 0.0
    for step in range(1, 4):
        place += float(generator(name, step).normal())
        run.log(name, step, {"place": place})
        run.say(f"{name} is at step {step}")
    run.remember(f"seen by {name}", step)
    mark = run.path / "trouble"
    if name == "second" and trouble and not mark.exists():
        mark.touch()
        if trouble == "error":
            raise OneiroError("second has a problem of its own")
        os.kill(os.getpid(), signal.SIGKILL)
    return {"place": place, "process": float(os.getpid())}


def whole(path: Path, workers: int, trouble: str = "") -> Run:
    """The run, from its beginning or from where it was."""
    with Run.open(path, ToyRecipe(system="toy")) as run:
        run.remember("threads", 1)
        run.plan(["before", *NAMES, "after"])
        run.stage("before", lambda: run.log("before", 1, {"place": 0.0}))
        side_by_side(run, walk, [(name, trouble) for name in NAMES], workers)
        run.stage("after", lambda: run.log("after", 1, {"place": 0.0}))
        run.finish()
    return run
