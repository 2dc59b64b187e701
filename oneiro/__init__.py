"""Oneiro trains world models with verifiable rewards, and the agents that use them.

import oneiro
run = oneiro.run("spa/frozen-lake", out="runs/first", overrides=["preset=smoke"])    # a recipe
model = oneiro.train("smollm2-135m", prompts, reward, out="runs/mine")               # your prompts, your reward
agent = oneiro.train_agent("smollm2-135m", MyWorld, out="runs/agent")                # your world
"""

from __future__ import annotations

TYPE_CHECKING = False  # typing.TYPE_CHECKING, without the import: Ctrl-C while this page is read cannot be caught
if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path
    from typing import Any

    from oneiro.recipe import Recipe
    from oneiro.rundir.run import Run
    from oneiro.systems.simple import train, train_agent

__version__ = "0.4.0"
__all__ = ["Run", "run", "train", "train_agent"]


def run(recipe: Recipe | str | Path, out: str | Path | None = None, overrides: Sequence[str] = ()) -> Run:
    """Carry out a recipe, or go on with a run directory; see `oneiro.systems.run`."""
    from oneiro.runtime import threads

    threads.prepare()
    from oneiro import systems

    return systems.run(recipe, out, overrides)


def __getattr__(name: str) -> Any:
    """What brings more than this page is imported when it is asked for; `train` and `train_agent` bring torch."""
    if name == "Run":
        from oneiro.rundir.run import Run

        return Run
    if name not in ("train", "train_agent"):
        raise AttributeError(f"module 'oneiro' has no attribute '{name}'")
    from oneiro.runtime import threads

    threads.prepare()
    from oneiro.systems import simple

    return getattr(simple, name)
