"""What a world is: a gymnasium environment with true dynamics, in words.

A world holds one episode at a time. `reset` draws a level, `step` applies one action (a string), `render` shows the
same state in another view. Everything random comes from the seeds given to `reset`: the same seed and the same actions
give the same episode in any process. No torch here.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from oneiro.runtime.errors import OneiroError, nearest
from oneiro.runtime.seeds import generator

if TYPE_CHECKING:
    from gymnasium import Env

    from oneiro.worlds.spaces import ActionText, AnyText
else:
    try:
        from gymnasium import Env
    except ImportError:  # training and evaluation need nothing of it
        ObsType, ActType = TypeVar("ObsType"), TypeVar("ActType")

        class Env(Generic[ObsType, ActType]):
            """The little that worlds use of gymnasium's class, where gymnasium is not installed."""

            def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
                return None


Step = tuple[str, float, bool, bool, dict[str, Any]]

EVAL_SHARE = 8
"""One level in this many belongs to the evaluation split, decided by the level's own content."""

NEITHER = "-"
"""The end of a key whose level is in no split, because it has something in common with levels of both."""

DRAWS = 10_000
"""Levels drawn before a seed is given up: only settings with almost no levels, or none in the split, get there."""

SPLITS = (None, "train", "eval")

Level = TypeVar("Level")


class WorldConfig(BaseModel):
    """Settings every world shares; each world extends it beside its class."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    max_actions: int = Field(default=10, ge=1)
    """Actions after which the episode is truncated."""
    view: str = "text"
    """The view used for observations; `World.views` lists what a world offers."""


class ResetNeeded(OneiroError):
    """A step was taken before the first `reset`."""


class WorldLost(OneiroError):
    """What the world runs in is gone or does not answer: the episode is lost, not the run."""


class World(Env[str, str], ABC):
    """One episode of true dynamics. Subclasses are registered in `oneiro.worlds.registry`."""

    metadata = {"render_modes": ["ansi"], "render_fps": 4}  # noqa: RUF012 - as gymnasium declares it
    """For gymnasium: `render` returns text."""
    render_mode: str | None = None
    """What gymnasium asked for; `render` returns text in any case."""
    name: ClassVar[str]
    about: ClassVar[str] = ""
    """What it is, in a line, for lists; empty: the first line of its module."""
    Config: ClassVar[type[WorldConfig]] = WorldConfig
    views: ClassVar[tuple[str, ...]] = ("text",)
    actions: tuple[str, ...] | None = None
    """The words the world understands, or None where an action is free text."""
    variants: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    """Named settings: `make("sokoban:harder")` takes `variants["harder"]` as overrides of the defaults."""
    deterministic: bool = True
    """Whether the level and the actions alone decide an episode, so that every member sees the same."""
    waits: bool = False
    """Whether steps are spent waiting for another process, so that something else can be done meanwhile. Such a class
    may have `reset_many` and `step_many` (see `oneiro.agents.game`).
    """
    shared: bool = False
    """Whether episodes change what is not theirs alone (a live site): one at a time, and nobody plays unasked."""
    oracle_is: ClassVar[str] = "an optimal player"
    """Who `oracle` is, in a few words: a world whose best player nobody knows says so here."""

    def __init__(self, config: WorldConfig | None = None) -> None:
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
            raise ResetNeeded(f"world '{self.name}' has no episode yet: call reset before step")
        return self._over

    @over.setter
    def over(self, ended: bool) -> None:
        self._over = ended

    @cached_property
    def observation_space(self) -> AnyText:  # type: ignore[override]
        """Any text, for gymnasium."""
        from oneiro.worlds.spaces import OBSERVATION, AnyText

        return AnyText(OBSERVATION)

    @property
    def action_space(self) -> ActionText:  # type: ignore[override]
        """Any text, for gymnasium; a sample is one of `actions`, where the world has such."""
        self._action_space.words = self.actions or ()  # which may differ between levels
        return self._action_space

    @cached_property
    def _action_space(self) -> ActionText:
        from oneiro.worlds.spaces import ActionText

        return ActionText()

    @abstractmethod
    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """Draw a level and return its first observation.

        `seed` decides the level. `options["split"]` is "train", "eval" or absent: the two splits share no level,
        whatever the seeds (see `in_split`). `options["member"]` numbers the rollouts of one level: it seeds stochastic
        dynamics, so members of a group see the same level and different noise. `info["key"]` names the level;
        `info["canonical"]`, in a world with symmetries, names the level up to these (see `canonical_key`).
        """

    @abstractmethod
    def step(self, action: str) -> Step:
        """Apply one action: observation, reward, terminated, truncated, info.

        `info` always has `valid` (the world understood the action), `effective` (the state changed) and `success` (the
        episode has reached its goal). An action that is not understood changes nothing, costs one action and raises
        nothing.
        """

    @abstractmethod
    def render(self, view: str | None = None) -> str:
        """The current state in one of `views` (default: the configured one)."""

    @property
    @abstractmethod
    def instruction(self) -> str:
        """What a player is told before the first turn: goal, legend and actions, built from the effective settings."""

    @property
    def level_rules(self) -> str:
        """The part of the instruction that differs between levels. A brief prompt shows it before the state."""
        return ""

    def oracle(self) -> str | None:
        """The action an optimal player (or the one `oracle_is` names) takes now, or None where no action helps.

        A world without an oracle leaves this as it is: see `has_oracle`.
        """
        return None

    @property
    def has_oracle(self) -> bool:
        """Whether the world knows a player to ask at all."""
        return type(self).oracle is not World.oracle

    def peek(self, seed: int, split: str | None) -> dict[str, Any]:
        """What `reset` says of a level in its `info`; worlds whose resets take long say it without one."""
        return self.reset(seed=seed, options={"split": split})[1]

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

    @property
    def state(self) -> Any:
        """The current state as plain comparable data, as `parse` reads it from a view; None where there is none."""
        return None

    def parse(self, text: str, view: str | None = None) -> Any | None:
        """The state that `text` shows in `view`, or None if it shows none. Total: any string, never an exception."""
        return None

    def view_named(self, view: str | None) -> str:
        """`view`, or the configured one; a view the world does not offer is a user's mistake."""
        view = self.config.view if view is None else view
        if view not in self.views:
            raise OneiroError(f"world '{self.name}' has no view '{view}'{nearest(view, self.views)}")
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
        if self.split not in SPLITS:
            raise OneiroError(f"unknown split '{self.split}'; use 'train', 'eval' or leave it out")
        self.taken, self._over = 0, False
        # Nothing here draws from gymnasium's own generator; its checker and wrappers expect it to follow the seed.
        Env.reset(self, seed=None if seed is None else abs(self.seed))

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
        """Count the action and return the five-tuple for the state the world is in now."""
        self.taken += 1
        last = self.taken >= self.config.max_actions
        # Where one action is all there is, it ends the episode: no time limit cuts off what could go on.
        done = done or (last and self.config.max_actions == 1)
        truncated = last and not done
        self._over = done or truncated
        return (
            self.render(),
            reward,
            done,
            truncated,
            {"valid": valid, "effective": effective, "success": success, **info},
        )

    def ended(self, *, success: bool) -> Step:
        """What `step` returns after the end: nothing happens."""
        return self.render(), 0.0, True, False, {"valid": False, "effective": False, "success": success}


def level_key(content: bytes | str, split_key: str | None = None) -> str:
    """A stable name for a level, from its content.

    Levels with one `split_key` (one room with different starts, turned or mirrored; one question in different words)
    always share a split: the last digit, which decides it, is then that of `split_key`.
    """
    data = content.encode() if isinstance(content, str) else content
    key = hashlib.blake2b(data, digest_size=8).hexdigest()
    return key if split_key is None else key[:-1] + level_key(split_key)[-1]


def in_split(key: str, split: str | None) -> bool:
    """Whether the level called `key` belongs to `split`. Splits are by content, so no seed can leak a level across."""
    if split is None:
        return True
    if key.endswith(NEITHER):
        return False
    held_out = int(key[-1], 16) % EVAL_SHARE == 0
    return held_out == (split == "eval")


def canonical_key(info: Mapping[str, Any]) -> str:
    """The name of a level, from what `reset` said of it, that is the same for levels which are equal up to symmetry."""
    return str(info.get("canonical", info["key"]))


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
        if level is not None and in_split(level_key := key(level), split):
            return level, level_key
    raise OneiroError(
        f"{name}: no level in split '{split}' after {DRAWS} draws; choose settings with more distinct levels"
    )
