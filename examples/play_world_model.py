"""A world model you can play: it learns a frozen lake from random play, then you walk in it. Minutes on 2 cores.

python examples/play_world_model.py               # w a s d and Enter moves, q ends
python examples/play_world_model.py preset=smoke  # trains for seconds, and is often wrong

On the left the true lake, on the right what the model predicts. The model goes on from its own predictions.
"""

from __future__ import annotations

import sys

import oneiro
from oneiro.models.language import load
from oneiro.sampling.engine import Engine
from oneiro.tasks.grid import GridMetadata, GridModel, GridPredictor, LearnedFrozenLake
from oneiro.worlds.base import World

KEYS = {"w": "Up", "a": "Left", "s": "Down", "d": "Right"}


def main(overrides: list[str], out: str = "runs/lake-model") -> None:
    small = ["repeats=1", "goals=[goal]", "evaluation.levels=20", "evaluation.traces=1"]
    run = oneiro.run("plan/frozen-lake", out=out, overrides=[*small, *overrides])
    true, learned = open_lakes(f"{run.path}/checkpoints/world-model-0")
    steps = same = 0
    for world in (true, learned):
        world.reset(seed=7, options={"split": "eval"})
    show(true.render(), learned.render())
    while not true.over and (key := input("w a s d, q ends: ").strip()) != "q":
        if key in KEYS:
            true.step(KEYS[key])
            learned.step(KEYS[key])
            steps, same = steps + 1, same + (true.render() == learned.render())
            show(true.render(), learned.render())
    print(f"the model was right after {same} of {steps} steps")


def open_lakes(folder: str) -> tuple[World, World]:
    """The true lake, and the one that the model predicts."""
    language = load(folder)
    metadata = GridMetadata.read(language, folder)
    assert metadata is not None, f"{folder} is no predictor of grids"
    task = GridPredictor(metadata.task)
    model = GridModel(task, Engine(language), metadata.sampling)
    return metadata.task.world.maker()(), LearnedFrozenLake(model, task.world.config)


def show(true: str, learned: str) -> None:
    for left, right in zip(true.splitlines(), learned.splitlines(), strict=False):
        print(f"  {left}    {right}  {'' if left == right else '<- differs'}")
    print()


if __name__ == "__main__":
    main(sys.argv[1:])
