"""Oneiro trains world models with verifiable rewards, and the agents that use them.

import oneiro
run = oneiro.run("spa/frozen-lake", out="runs/first", overrides=["preset=smoke"])
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

# Imported before `run` is defined, so that `oneiro.run` is the function and not its module.
from oneiro.run import Run

if TYPE_CHECKING:
    from oneiro.recipe import Recipe

__version__ = "0.2.0"
__all__ = ["Run", "run"]


def run(recipe: Recipe | str | Path, out: str | Path | None = None, overrides: Sequence[str] = ()) -> Run:
    """Carry out a recipe, or go on with a run directory; see `oneiro.systems.run`."""
    from oneiro import threads

    threads.prepare()
    from oneiro import systems

    return systems.run(recipe, out, overrides)
