"""What a world is: true dynamics behind gymnasium's five-tuple, in words.

A world holds one episode at a time. `reset` draws a level, `step` applies one action (a string), `render` shows the same
state in another view. Everything random comes from the seeds given to `reset`: the same seed and the same actions give the
same episode in any process. No torch here.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from typing import Any, ClassVar

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

Step = tuple[str, float, bool, bool, dict[str, Any]]

EVAL_SHARE = 8
"""One level in this many belongs to the evaluation split, decided by the level's own content."""


class WorldConfig(BaseModel):
    """Settings every world shares; each world extends it beside its class."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    max_actions: int = Field(10, ge=1)
    """Actions after which the episode is truncated."""
    view: str = "text"
    """The view used for observations; `World.views` lists what a world offers."""


class World(ABC):
    """One episode of true dynamics. Subclasses are registered in `oneiro.worlds.registry`."""

    name: ClassVar[str]
    Config: ClassVar[type[WorldConfig]] = WorldConfig
    views: ClassVar[tuple[str, ...]] = ("text",)
    actions: tuple[str, ...] | None = None
    """The words the world understands, or None where an action is free text."""

    def __init__(self, config: WorldConfig | None = None) -> None:
        self.config = config if config is not None else self.Config()

    @abstractmethod
    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """Draw a level and return its first observation.

        `seed` decides the level. `options["split"]` is "train", "eval" or absent: the two splits share no level, whatever
        the seeds (see `in_split`). `options["member"]` numbers the rollouts of one level: it seeds stochastic
        dynamics, so members of a group see the same level and different luck. `info["key"]` names the level.
        """

    @abstractmethod
    def step(self, action: str) -> Step:
        """Apply one action: observation, reward, terminated, truncated, info.

        `info` always has `valid` (the world understood the action), `effective` (the state changed) and `success` (the
        episode has reached its goal). An action that is not understood changes nothing, costs one action and raises nothing.
        """

    @abstractmethod
    def render(self, view: str | None = None) -> str:
        """The current state in one of `views` (default: the configured one)."""

    @property
    @abstractmethod
    def instruction(self) -> str:
        """What a player is told before the first turn: goal, legend and actions, built from the effective settings."""

    def oracle(self) -> str | None:
        """The action an optimal player takes now, or None where no oracle exists or no action helps."""
        return None

    def ceiling(self) -> float | None:
        """Best possible success probability from the current state within the remaining actions, or None if unknown."""
        return None

    def random_action(self, rng: np.random.Generator) -> str:
        """One action of the random baseline."""
        if not self.actions:
            raise NotImplementedError(f"{self.name}: override random_action, its actions are free text")
        return self.actions[int(rng.integers(len(self.actions)))]

    def close(self) -> None:
        """Free what the world holds outside this process."""
        return None


def level_key(content: bytes | str) -> str:
    """A stable name for a level, from its content."""
    data = content.encode() if isinstance(content, str) else content
    return hashlib.blake2b(data, digest_size=8).hexdigest()


def in_split(key: str, split: str | None) -> bool:
    """Whether the level called `key` belongs to `split`. Splits are by content, so no seed can leak a level across."""
    if split is None:
        return True
    held_out = int(key, 16) % EVAL_SHARE == 0
    return held_out == (split == "eval")
