"""The smallest system: a learner whose one weight follows seeded noise. Used to test recipes, runs and commands.

`python tests/toy_system.py ARGS...` is the `oneiro` command with this system in it.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from time import sleep

from oneiro.recipe import Recipe, Settings
from oneiro.rundir.run import Run
from oneiro.runtime.errors import OneiroError
from oneiro.runtime.files import read_json, write_json
from oneiro.runtime.seeds import generator


class ToyModel(Settings):
    name: str = "tiny"
    width: int = 8
    lora: int = 0


class ToyLearn(Settings):
    steps: int = 20
    lr: float = 0.1
    save_every: int = 5


class ToyRecipe(Recipe):
    model: ToyModel = ToyModel()
    learn: ToyLearn = ToyLearn()
    pause: float = 0.0
    """Seconds each step sleeps, so that a test can interrupt it."""
    note: str | None = None
    needs: str | None = None
    """A folder that has to be there when a run begins."""

    def check_places(self) -> None:
        if self.needs is not None and not Path(self.needs).is_dir():
            raise OneiroError(f"needs: no folder {self.needs}")


def run(recipe: ToyRecipe, run: Run) -> None:
    run.plan(["gather", "learn"])
    start = run.stage("gather", lambda: {"weight": float(generator(recipe.seed, "gather").normal())})
    end = run.stage("learn", lambda: learn(recipe, run, start["weight"]))
    row = {
        "arm": "toy",
        "weight": {"value": end["weight"], "low": end["weight"] - 1, "high": end["weight"] + 1, "n": 1},
    }
    run.summary({"tables": [{"title": "Toy", "columns": ["arm", "weight"], "units": {}, "rows": [row], "note": ""}]})


def learn(recipe: ToyRecipe, run: Run, weight: float) -> dict[str, float]:
    saved = run.checkpoint_dir("learn") / "state.json"
    done = 0
    if saved.exists():
        done, weight = (state := read_json(saved))["step"], state["weight"]
    run.rewind("learn", done)
    saving = run.saving()
    with run.progress("learn", recipe.learn.steps, done) as bar, saving.defer():
        for step in range(done + 1, recipe.learn.steps + 1):
            weight += recipe.learn.lr * float(generator(recipe.seed, "learn", step).normal())
            run.log("learn", step, {"weight": weight, "loss": weight**2})
            run.time("learn", step, {"seconds": recipe.pause})
            run.episodes("learn", step, [{"task": f"level {step}", "score": weight, "turns": []}])
            sleep(recipe.pause)
            if step % recipe.learn.save_every == 0 or saving.due():
                write_json(saved, {"step": step, "weight": weight})
                saving.done()
            bar.advance(loss=weight**2)
            saving.stop()
    return {"weight": weight}


if __name__ == "__main__":
    from oneiro.cli import main
    from oneiro.systems import SYSTEMS

    SYSTEMS["toy"] = "toy_system:ToyRecipe"
    os.environ.setdefault("COLUMNS", "200")
    sys.exit(main())
