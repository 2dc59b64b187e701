"""gymnasium: grid worlds as a vector environment.

`gymnasium.make_vec("oneiro/sokoban-v0", num_envs=256)` steps all episodes as arrays. The way back is `gymnasium_world`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from oneiro.runtime.errors import OneiroError
from oneiro.worlds.base import World
from oneiro.worlds.grid.vector import make_batch

Texts = tuple[str, ...]
VectorStep = tuple[Texts, NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_], dict[str, Any]]


class VectorWorld(VectorEnv[Texts, Sequence[str], NDArray[Any]]):
    """N episodes of a grid world behind gymnasium's vector interface, stepped as arrays.

    An episode that has ended begins anew at the next step, on the level N seeds further, so that rows never repeat each
    other's levels; that step's action counts for nothing.
    """

    def __init__(self, name: str, num_envs: int, **settings: Any) -> None:
        self.batch = make_batch(name, **settings)
        self.num_envs = num_envs
        self.metadata = {**World.metadata, "autoreset_mode": AutoresetMode.NEXT_STEP}
        world = self.batch.world
        self.single_observation_space, self.single_action_space = world.observation_space, world.action_space
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.seeds = np.arange(-num_envs, 0)
        self.split: str | None = None

    def reset(
        self, *, seed: int | list[int] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Texts, dict[str, Any]]:
        if seed is None:
            self.seeds = self.seeds + self.num_envs
        else:
            self.seeds = np.arange(seed, seed + self.num_envs) if isinstance(seed, int) else np.array(seed)
        if len(self.seeds) != self.num_envs:
            raise OneiroError(f"{len(self.seeds)} seeds for {self.num_envs} episodes: give one number, or one for each")
        self.split = (options or {}).get("split")
        return tuple(self.batch.reset(self.seeds.tolist(), split=self.split)), {}

    def step(self, actions: Sequence[str]) -> VectorStep:
        ended = np.flatnonzero(self.batch.over)
        result = self.batch.step(list(actions))
        info = {name: getattr(result, name) for name in ("valid", "effective", "success")}
        terminated, truncated, shown = result.terminated, result.truncated, result.observations
        if len(ended):
            self.seeds[ended] += self.num_envs
            self.batch.restart(ended, self.seeds[ended].tolist(), split=self.split)
            terminated[ended] = truncated[ended] = info["success"][ended] = False
            shown = self.batch.render()
        return tuple(shown), result.rewards, terminated, truncated, info


def open_vector(
    num_envs: int, world: str, variant: str | None = None, render_mode: str | None = None, **settings: Any
) -> VectorWorld:
    """What `gymnasium.make_vec` calls."""
    return VectorWorld(f"{world}:{variant}" if variant else world, num_envs, **settings)
