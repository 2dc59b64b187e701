"""Lakes for tests of workers, in a module that a worker imports fast."""

from __future__ import annotations

import gc
import os
import time
from typing import Any

from oneiro.runtime.errors import OneiroError
from oneiro.worlds.base import Step, WorldConfig
from oneiro.worlds.grid.frozen_lake.world import FrozenLake

HANGS, BREAKS = 103, 104


class Lake(FrozenLake):
    """A lake that tells which process it is in, hangs at one of its levels, and breaks for good at another."""

    name = "test-lake"
    broken = False

    @property
    def process_id(self) -> int:
        return os.getpid()

    @property
    def new_objects(self) -> int:
        """After how many new ones the garbage collector of its process looks."""
        return gc.get_threshold()[0]

    def step(self, action: str) -> Step:
        if self.seed == HANGS:
            time.sleep(600)
        self.broken = self.broken or self.seed == BREAKS
        if self.broken:
            raise RuntimeError("broken")
        return super().step(action)


class Visited(FrozenLake):
    """A lake that others use too, and that says of a level what it is without a reset."""

    name = "test-visited"

    def __init__(self, config: WorldConfig | None = None) -> None:
        super().__init__(config)
        self.shared = True

    def peek(self, seed: int, split: str | None) -> dict[str, Any]:
        return {"level": seed, "split": split, "resets": self.seed}


class Unmakeable(FrozenLake):
    """A lake that no process can make."""

    name = "test-unmakeable"

    def __init__(self, config: WorldConfig | None = None) -> None:
        raise RuntimeError("not here")


def square(number: int) -> int:
    return number * number


def die(number: int) -> int:
    os._exit(1)


def complain(number: int) -> int:
    raise OneiroError(f"{number} is wrong")
