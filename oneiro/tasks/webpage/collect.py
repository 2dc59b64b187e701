"""Steps of any web world, played by a script."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from oneiro.tasks.webpage.record import collect, recorded_web
from oneiro.tasks.webpage.state import PageTransition
from oneiro.worlds.baselines import Policy, mixture, oracle_policy, random_policy

Advance = Callable[[int], object]


@dataclass(frozen=True)
class Collection:
    """What is to be played."""

    world: str
    settings: dict[str, Any]
    policy: str
    """`random`, `oracle`, `mixture`, or the folder of a model."""
    episodes: int
    split: str = "train"
    """`train`, or `test`: content that training never has."""
    steps: int = 0
    """Of an episode at most; 0: all."""
    probes: float = 0.0
    """Chance, before each step, of an action that should do nothing."""
    oracle_share: float = 0.85
    seed: int = 0

    @property
    def world_split(self) -> str:
        return "eval" if self.split == "test" else "train"

    @property
    def scripts(self) -> dict[str, Policy]:
        """The policies that need no model."""
        return {"random": random_policy, "oracle": oracle_policy, "mixture": mixture(self.oracle_share)}


def steps_of(asked: Collection, advance: Advance = lambda episodes: None) -> Iterator[PageTransition]:
    """Every step of a scripted policy, episode after episode."""
    world = recorded_web(asked.world, asked.settings)
    try:
        yield from collect(
            world,
            asked.scripts[asked.policy],
            asked.episodes,
            split=asked.world_split,
            seed=asked.seed,
            probes=asked.probes,
            steps=asked.steps,
            advance=advance,
        )
    finally:
        world.close()
