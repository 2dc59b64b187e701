"""The rows that stand beside every learned one: what chance gets, what an oracle gets, and the best possible.

Level i of an evaluation has the seed `first_seed + i`; member j of it the option `member=j`. Whoever evaluates an agent
with the same numbers has played the same levels.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oneiro.seeds import generator
from oneiro.worlds.base import World
from oneiro.worlds.registry import make

Policy = Callable[[World, np.random.Generator], str]
"""Looks at a world and names the next action."""


@dataclass(frozen=True)
class Played:
    """One finished episode."""

    score: float
    success: bool
    actions: int


def random_policy(world: World, rng: np.random.Generator) -> str:
    """The world's own random baseline."""
    return world.random_action(rng)


def oracle_policy(world: World, rng: np.random.Generator) -> str:
    """The oracle; a random action where it has none to give."""
    return world.oracle() or world.random_action(rng)


def play(
    world: World, policy: Policy, rng: np.random.Generator, *, seed: int, split: str | None, member: int
) -> Played:
    """Reset and act until the episode ends."""
    world.reset(seed=seed, options={"split": split, "member": member})
    score, actions = 0.0, 0
    while True:
        _, reward, terminated, truncated, info = world.step(policy(world, rng))
        score, actions = score + reward, actions + 1
        if terminated or truncated:
            return Played(score, bool(info["success"]), actions)


def success_table(
    name: str,
    policy: Policy,
    levels: int,
    members: int = 1,
    *,
    first_seed: int = 0,
    split: str | None = "eval",
    settings: Mapping[str, Any] | None = None,
) -> NDArray[np.bool_]:
    """[levels, members]: which episodes of a policy succeed."""
    world = make(name, **(settings or {}))
    table = np.zeros((levels, members), bool)
    for level in range(levels):
        for member in range(members):
            rng = generator(name, "baseline", first_seed + level, member)
            table[level, member] = play(world, policy, rng, seed=first_seed + level, split=split, member=member).success
    return table


def random_success(
    name: str,
    levels: int,
    members: int = 1,
    *,
    first_seed: int = 0,
    split: str | None = "eval",
    settings: Mapping[str, Any] | None = None,
) -> NDArray[np.bool_]:
    """[levels, members]: which episodes the random policy solves."""
    return success_table(name, random_policy, levels, members, first_seed=first_seed, split=split, settings=settings)


def oracle_success(
    name: str,
    levels: int,
    members: int = 1,
    *,
    first_seed: int = 0,
    split: str | None = "eval",
    settings: Mapping[str, Any] | None = None,
) -> NDArray[np.bool_]:
    """[levels, members]: which episodes the oracle solves."""
    return success_table(name, oracle_policy, levels, members, first_seed=first_seed, split=split, settings=settings)


def ceiling(
    name: str,
    levels: int,
    *,
    first_seed: int = 0,
    split: str | None = "eval",
    settings: Mapping[str, Any] | None = None,
) -> NDArray[np.float64]:
    """[levels]: the best possible success probability within the action budget; NaN where the world cannot say."""
    world = make(name, **(settings or {}))
    best = np.full(levels, np.nan)
    for level in range(levels):
        world.reset(seed=first_seed + level, options={"split": split})
        if (value := world.ceiling()) is not None:
            best[level] = value
    return best
