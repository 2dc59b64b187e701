"""gymnasium: grid worlds as a vector environment.

`gymnasium.make_vec("oneiro/sokoban-v0", num_envs=256)` steps all episodes as arrays. The way back, for
text environments: `make("gymnasium", env="Taxi-v4")` plays Taxi where a world is taken.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, ClassVar, Literal

import gymnasium
import numpy as np
from gymnasium.spaces import Discrete, Text
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray
from pydantic import Field

from oneiro.runtime.errors import OneiroError, first_line
from oneiro.worlds.base import Step, World, WorldConfig, draw_level, level_key
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


# The way back: its text environments as worlds ------------------------------------------------------------------------


COLOURED = re.compile(r"((?:\x1b\[[1-9][0-9;]*m)+)([^\x1b]*)((?:\x1b\[0m)+)")
COLOURS = ("black", "red", "green", "yellow", "blue", "magenta", "cyan", "white")
"""Of terminals, in the order of their codes. In gymnasium's text views only the colour says where the player is."""


class GymWorldConfig(WorldConfig):
    """Which environment, and what a player is told of it."""

    max_actions: int = Field(default=100, ge=1)
    env: str = "Blackjack-v1"
    """What `gymnasium.make` takes: a name, or `module:name`, which imports the module first."""
    env_options: dict[str, Any] = Field(default_factory=dict)
    """Arguments of `gymnasium.make`."""
    words: tuple[str, ...] = ()
    """A word for each number of a discrete action space; without them actions are the numbers."""
    goal: str = ""
    """What the player is told; without it the name of the environment."""
    success_return: float | None = None
    """The return from which an episode is a success; without it, one that terminates with a positive last reward."""
    split_by: Literal["start", "seed"] = "start"
    """What a level is: equal first observations are one level, or every seed is. `seed` is for environments that
    always show the same start or hide what is drawn; nothing then keeps train and eval apart but the seeds."""


class GymWorld(World):
    """An environment of gymnasium. A state is shown as the observation, where that is text, else in the environment's
    `ansi` view; where it has neither, as the observation printed.

    Level and noise come from one seed of the environment, so that members of a group see the same noise.
    """

    name = "gymnasium"
    about = "any text environment of gymnasium: env=NAME"
    Config = GymWorldConfig
    config: GymWorldConfig
    variants: ClassVar = {
        "blackjack": {
            "words": ("Stick", "Hit"),
            "goal": "Come closer to 21 than the dealer without going over. You see your sum, the dealer's card (1: an "
            "ace), and 1 if you hold an ace that counts 11.",
        }
    }

    def __init__(self, config: WorldConfig | None = None) -> None:
        super().__init__(config)
        self.env = self._open()
        if not isinstance(self.env.observation_space, Text) and "ansi" in self.env.metadata.get("render_modes", ()):
            self.env = self._open(render_mode="ansi")
        space = self.env.action_space
        if isinstance(space, Discrete):
            self.numbers = range(int(space.start), int(space.start + space.n))
            self.actions = self.config.words or tuple(str(number) for number in self.numbers)
            if len(self.actions) != space.n:
                raise OneiroError(f"world 'gymnasium': {self.config.env} has {space.n} actions; give as many words")
        elif not isinstance(space, Text):
            raise OneiroError(f"world 'gymnasium': {self.config.env} takes {space}; only Discrete and Text will do")

    def _open(self, **mode: Any) -> gymnasium.Env[Any, Any]:
        try:
            return gymnasium.make(self.config.env, disable_env_checker=True, **self.config.env_options, **mode)
        except Exception as error:  # of gymnasium, or of the environment's own code
            raise OneiroError(f"gymnasium cannot make '{self.config.env}': {first_line(error)}") from error

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        self.begin(seed, options)
        (_, self.shown), key = draw_level(self.name, self.seed, self.split, self._draw, self._key)
        self.score, self.success = 0.0, False
        return self.shown, {"key": key} | ({"canonical": level_key(self.shown)} if self.by_start else {})

    @property
    def by_start(self) -> bool:
        return self.config.split_by == "start"

    def _draw(self, rng: np.random.Generator) -> tuple[int, str]:
        env_seed = int(rng.integers(2**31))
        return env_seed, self._show(self.env.reset(seed=env_seed)[0])

    def _key(self, level: tuple[int, str]) -> str:
        env_seed, shown = level
        # The end of the key decides the split: the same start is never in both.
        return level_key(f"{self.config.env} {env_seed}", shown if self.by_start else None)

    def step(self, action: str) -> Step:
        if self.over:
            return self.ended(success=self.success)
        choice: Any = action
        if self.actions:
            index = {word.lower(): number for word, number in zip(self.actions, self.numbers, strict=True)}
            if (choice := index.get(action.strip().lower())) is None:
                return self.outcome(0.0, valid=False, effective=False)
        elif not self.env.action_space.contains(action):
            return self.outcome(0.0, valid=False, effective=False)
        observation, reward, terminated, truncated, _ = self.env.step(choice)
        before, self.shown = self.shown, self._show(observation)
        reward = float(reward)
        self.score += reward
        good = reward > 0 if self.config.success_return is None else self.score >= self.config.success_return
        self.success = bool(terminated and good)
        step = self.outcome(reward, done=terminated, success=self.success, effective=self.shown != before)
        if truncated and not self.over:
            self.over = True
            return (*step[:3], True, step[4])
        return step

    def _show(self, observation: Any) -> str:
        if self.env.render_mode == "ansi":
            return COLOURED.sub(_name_colour, str(self.env.render())).strip()
        return str(observation)

    def render(self, view: str | None = None) -> str:
        return self.shown

    @property
    def instruction(self) -> str:
        known = f"\nActions: {', '.join(self.actions)}." if self.actions else ""
        return f"{self.config.goal or f'Play {self.config.env}.'}{known}"

    def random_action(self, rng: np.random.Generator) -> str:
        if self.actions:
            return super().random_action(rng)
        self.env.action_space.seed(int(rng.integers(2**31)))
        return str(self.env.action_space.sample())

    def close(self) -> None:
        self.env.close()


def _name_colour(match: re.Match[str]) -> str:
    """`{red: S}` for a red S: a colour is part of the state, and models read words better than escapes."""
    names = [COLOURS[int(code) % 10 % 8] for code in re.findall(r"\[([1-9][0-9]*)", match[1])]
    return f"{{{' '.join(names)}: {match[2]}}}"
