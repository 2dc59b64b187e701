"""The rows that stand beside every learned one: what chance gets, what an oracle gets, and the best possible.

Level i of an evaluation has the seed `first_seed + i`, or `seeds[i]` where seeds are given (see
`oneiro.worlds.levels.distinct_seeds`); member j of it the option `member=j`. Whoever evaluates an agent with the same
numbers has played the same levels.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oneiro.runtime.errors import OneiroError, nearest
from oneiro.runtime.seeds import generator
from oneiro.worlds.base import World
from oneiro.worlds.registry import config_for, make

Policy = Callable[[World, np.random.Generator], str]
"""Looks at a world and names the next action."""

OUT_OF_REACH = 0.5
"""A mean ceiling below this deserves a warning."""
SCRIPTS = ("random", "oracle", "mixture")
"""Policies that need no model."""


def require_script(name: str | None) -> None:
    """Refuse a policy that nobody knows; None asks for none."""
    if name is not None and name not in SCRIPTS:
        raise OneiroError(f"no policy called '{name}'{nearest(name, SCRIPTS)}")


@dataclass(frozen=True)
class BaselineEpisode:
    """One finished episode."""

    score: float
    success: bool
    actions: int


def random_policy(world: World, rng: np.random.Generator) -> str:
    """The world's own random baseline."""
    return world.random_action(rng)


def oracle_policy(world: World, rng: np.random.Generator) -> str:
    """The oracle; where nothing helps any more, any action will do. A world without an oracle is an error."""
    return with_oracle(world).oracle() or world.random_action(rng)


def mixture(share: float) -> Policy:
    """The oracle's action with probability `share`, else a random one."""

    def choose(world: World, rng: np.random.Generator) -> str:
        return oracle_policy(world, rng) if rng.random() < share else random_policy(world, rng)

    return choose


def with_oracle(world: World) -> World:
    """The world, if it has an oracle; else one line that says so."""
    if not world.has_oracle:
        raise OneiroError(f"world '{world.name}' has no oracle; let a random policy or a model play")
    return world


def play(
    world: World, policy: Policy, rng: np.random.Generator, *, seed: int, split: str | None, member: int
) -> BaselineEpisode:
    """Reset and act until the episode ends."""
    world.reset(seed=seed, options={"split": split, "member": member})
    score, actions = 0.0, 0
    while True:
        _, reward, terminated, truncated, info = world.step(policy(world, rng))
        score, actions = score + reward, actions + 1
        if terminated or truncated:
            return BaselineEpisode(score, bool(info["success"]), actions)


def success_table(
    name: str,
    policy: Policy,
    levels: int,
    samples: int = 1,
    *,
    first_seed: int = 0,
    seeds: Sequence[int] | None = None,
    split: str | None = "eval",
    settings: Mapping[str, Any] | None = None,
    advance: Callable[[int], object] | None = None,
) -> NDArray[np.bool_]:
    """[levels, samples]: which episodes of a policy succeed. `advance` is told of every few episodes played.

    With `seeds`, these levels are played instead of those from `first_seed` on: `levels` of them, or all there are.
    """
    world = make(name, **(settings or {}))
    chosen = level_seeds(levels, first_seed, seeds)
    table = np.zeros((len(chosen), samples), bool)
    for level, seed in enumerate(chosen):
        for member in range(samples):
            # By level and member, so that a row does not depend on how many levels stand before it.
            rng = generator(name, "baseline", seed, member)
            table[level, member] = play(world, policy, rng, seed=seed, split=split, member=member).success
        if advance is not None:
            advance(samples)
    return table


def level_seeds(levels: int, first_seed: int = 0, seeds: Sequence[int] | None = None) -> list[int]:
    """The seeds of an evaluation's levels."""
    return list(range(first_seed, first_seed + levels) if seeds is None else seeds[:levels])


def random_success(name: str, levels: int, samples: int = 1, **options: Any) -> NDArray[np.bool_]:
    """[levels, samples]: which episodes the random policy solves; `options` are those of `success_table`."""
    return success_table(name, random_policy, levels, samples, **options)


def oracle_success(name: str, levels: int, samples: int = 1, **options: Any) -> NDArray[np.bool_]:
    """[levels, samples]: which episodes the oracle solves; `options` are those of `success_table`."""
    return success_table(name, oracle_policy, levels, samples, **options)


@dataclass(frozen=True)
class LevelOptima:
    """What is known of levels without playing them."""

    best: NDArray[np.float64]
    """[levels] the best possible success probability within the action budget; NaN where the world cannot say."""
    optimum: list[int | None]
    """[levels] the length of a shortest solution, where the world knows one."""


def level_optima(
    name: str,
    levels: int,
    *,
    first_seed: int = 0,
    seeds: Sequence[int] | None = None,
    split: str | None = "eval",
    settings: Mapping[str, Any] | None = None,
    seconds: float = float("inf"),
) -> LevelOptima:
    """The ceiling and the optimum of each level; of fewer levels (one at least) where `seconds` are over before.

    The levels are those of `success_table` with the same `first_seed` or `seeds`.
    """
    world, deadline = make(name, **(settings or {})), time.monotonic() + seconds
    best: list[float] = []
    optimum: list[int | None] = []
    for seed in level_seeds(levels, first_seed, seeds):
        if best and time.monotonic() > deadline:  # one level at least, however slow its ceiling is
            break
        _, info = world.reset(seed=seed, options={"split": split})
        value = world.ceiling()
        best.append(np.nan if value is None else value)
        optimum.append(info.get("optimum"))
    return LevelOptima(np.array(best), optimum)


def ceiling(name: str, levels: int, **options: Any) -> NDArray[np.float64]:
    """[levels]: the best possible success probability; NaN where unknown. `options` as in `level_optima`."""
    return level_optima(name, levels, **options).best


def beyond_budget(best: Sequence[float] | NDArray[np.float64], max_actions: int) -> str | None:
    """One line where most of the levels with these ceilings cannot be solved; None where they can, or nobody knows."""
    top = float(np.mean(best))
    if np.isnan(top) or top >= OUT_OF_REACH:
        return None
    return f"mostly out of reach: {top:.1%} is the best possible in {max_actions} action{'s' * (max_actions > 1)}"


def budget_warning(
    name: str, settings: Mapping[str, Any] | None = None, *, levels: int = 32, seconds: float = 3.0
) -> str | None:
    """The line of `beyond_budget` for a configuration, from a few levels in a few seconds, before anybody plays."""
    shortfall = beyond_budget(
        level_optima(name, levels, settings=settings, seconds=seconds).best, config_for(name, settings).max_actions
    )
    return (
        shortfall and f"{name} is {shortfall}; a larger max_actions, or more room in the dialogue's turns, changes that"
    )
