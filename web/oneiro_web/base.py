"""A gymnasium environment of texts: one episode at a time, an action is a string, all randomness comes from the seed.

The same seed and the same actions give the same episode in any process. Levels are split into "train" and "eval" by
their content, so no seed can leak a level from one into the other.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, ClassVar, TypeVar

import gymnasium
import numpy as np
from gymnasium.spaces import Text
from pydantic import BaseModel, ConfigDict, Field

from oneiro_web.errors import WebError, nearest
from oneiro_web.seeds import generator

Step = tuple[str, float, bool, bool, dict[str, Any]]

EVAL_SHARE = 8
"""One level in this many belongs to the evaluation split, decided by the level's own content."""
DRAWS = 10_000
"""Levels drawn before a seed is given up: only settings with almost no levels, or none in the split, get there."""
OBSERVATION_CHARACTERS, ACTION_CHARACTERS = 2**16, 2**12

Level = TypeVar("Level")


class BoundedText(Text):
    """Every text up to a length. gymnasium's own class takes only the characters it was given."""

    def __init__(self, max_length: int) -> None:
        super().__init__(max_length, min_length=0)

    def contains(self, x: Any) -> bool:
        return isinstance(x, str) and len(x) <= self.max_length


class EnvConfig(BaseModel):
    """Settings that every environment shares; each extends it beside its class."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    max_actions: int = Field(default=10, ge=1)
    """Actions after which the episode is truncated."""
    view: str = "text"
    """The view used for observations; `TextEnv.views` lists what an environment offers."""


class TextEnv(gymnasium.Env[str, str], ABC):
    """The book-keeping of an episode. A subclass draws levels, acts and shows the state."""

    metadata = {"render_modes": ["ansi"], "render_fps": 4}  # noqa: RUF012 - as gymnasium declares it
    render_mode: str | None = None
    """What gymnasium was given; `render` returns text in any case."""
    name: ClassVar[str]
    Config: ClassVar[type[EnvConfig]] = EnvConfig
    views: ClassVar[tuple[str, ...]] = ("text",)

    def __init__(self, config: EnvConfig | None = None) -> None:
        self.config = config if config is not None else self.Config()
        self.view_named(self.config.view)
        self.seed, self.member = -1, 0
        self.split: str | None = None
        self.taken = 0
        """Actions taken in this episode."""
        self._over: bool | None = None

    @property
    def over(self) -> bool:
        """Whether the episode has ended; then `step` changes nothing and pays nothing."""
        if self._over is None:
            raise WebError(f"'{self.name}' has no episode yet: call reset before step")
        return self._over

    @over.setter
    def over(self, ended: bool) -> None:
        self._over = ended

    @cached_property
    def observation_space(self) -> BoundedText:  # type: ignore[override]
        """Any text."""
        return BoundedText(OBSERVATION_CHARACTERS)

    @cached_property
    def action_space(self) -> BoundedText:  # type: ignore[override]
        """Any text: one that is no action changes nothing and costs one."""
        return BoundedText(ACTION_CHARACTERS)

    @abstractmethod
    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """Draw a level and return its first observation. `options["split"]` is "train", "eval" or absent."""

    @abstractmethod
    def step(self, action: str) -> Step:
        """Apply one action: observation, reward, terminated, truncated, info.

        `info` always has `valid` (the action was understood), `effective` (the state changed) and `success`.
        """

    @abstractmethod
    def render(self, view: str | None = None) -> str:
        """The current state in one of `views` (default: the configured one)."""

    @property
    @abstractmethod
    def instruction(self) -> str:
        """What a player is told before the first turn: goal and actions."""

    def view_named(self, view: str | None) -> str:
        """`view`, or the configured one; a view that is not offered is a user's mistake."""
        view = self.config.view if view is None else view
        if view not in self.views:
            raise WebError(f"'{self.name}' has no view '{view}'{nearest(view, self.views)}")
        return view

    @property
    def remaining(self) -> int:
        """Actions left before the episode is truncated."""
        return max(0, self.config.max_actions - self.taken)

    def begin(self, seed: int | None, options: Mapping[str, Any] | None) -> None:
        """Start an episode's book-keeping: `seed`, `split`, `member`, no actions taken. No seed: the next one."""
        options = options or {}
        self.seed = self.seed + 1 if seed is None else int(seed)
        self.split, self.member = options.get("split"), int(options.get("member", 0))
        if self.split not in (None, "train", "eval"):
            raise WebError(f"unknown split '{self.split}'; use 'train', 'eval' or leave it out")
        self.taken, self._over = 0, False
        # Nothing here draws from gymnasium's own generator; its checker and wrappers expect it to follow the seed.
        gymnasium.Env.reset(self, seed=None if seed is None else abs(self.seed))

    def outcome(
        self,
        reward: float,
        *,
        done: bool = False,
        success: bool = False,
        valid: bool = True,
        effective: bool,
        **info: Any,
    ) -> Step:
        """Count the action and return the five-tuple for the present state."""
        self.taken += 1
        last = self.taken >= self.config.max_actions
        # Where one action is all there is, it ends the episode: no time limit cuts off what could go on.
        done = done or (last and self.config.max_actions == 1)
        truncated = last and not done
        self._over = done or truncated
        info = {"valid": valid, "effective": effective, "success": success, **info}
        return self.render(), reward, done, truncated, info

    def ended(self, *, success: bool) -> Step:
        """What `step` returns after the end: nothing happens."""
        return self.render(), 0.0, True, False, {"valid": False, "effective": False, "success": success}


def level_key(content: bytes | str, split_key: str | None = None) -> str:
    """A stable name for a level, from its content.

    Levels with one `split_key` always share a split: the last digit, which decides it, is then that of `split_key`.
    """
    data = content.encode() if isinstance(content, str) else content
    key = hashlib.blake2b(data, digest_size=8).hexdigest()
    return key if split_key is None else key[:-1] + level_key(split_key)[-1]


def in_split(key: str, split: str | None) -> bool:
    """Whether the level called `key` belongs to `split`."""
    return split is None or (int(key[-1], 16) % EVAL_SHARE == 0) == (split == "eval")


def draw_level(
    name: str,
    seed: int,
    split: str | None,
    draw: Callable[[np.random.Generator], Level | None],
    key: Callable[[Level], str],
) -> tuple[Level, str]:
    """The first level of this seed that lies in `split`, with its key. `draw` may decline with None."""
    for attempt in range(DRAWS):
        level = draw(generator(name, seed, "level", attempt))
        if level is not None and in_split(name_of_level := key(level), split):
            return level, name_of_level
    raise WebError(
        f"{name}: no level in split '{split}' after {DRAWS} draws; choose settings with more distinct levels"
    )
