"""Robot: an arm opens or closes a drawer. The state in words for agents that read, in pixels for models that see.

An action is four numbers, `x y z gripper`, each from -1 to 1, held for a few simulator steps.
"""

from __future__ import annotations

import math
import re
from typing import Any, ClassVar

import numpy as np
from pydantic import Field, model_validator

from oneiro.worlds.base import Step, World, WorldConfig, draw_level, level_key
from oneiro.worlds.robot.simulator import ACTION, ACTION_REPEAT, SIDE, DrawerSimulator, TaskName, require

MAX_ACTION_CHARS = 200
"""A longer action is none: it is a few numbers, and parsing stays bounded."""
BAND, EDGE = 0.01, 0.001
"""Metres of the drawer's way that one split has to itself, and of their ends that nobody has."""
NUMBER = r"-?\d{1,3}\.\d{3}"
SHOWN = re.compile(
    rf"hand ({NUMBER}) ({NUMBER}) ({NUMBER}), gripper ({NUMBER}), handle ({NUMBER}) ({NUMBER}) ({NUMBER}), "
    rf"drawer open ({NUMBER})"
)


class RobotConfig(WorldConfig):
    """Settings of the arm and its camera."""

    max_actions: int = Field(default=40, ge=1)
    task: TaskName = "drawer-open"
    """What is to be done."""
    action_repeat: int = Field(default=ACTION_REPEAT, ge=1, le=50)
    """Simulator steps (0.0125 s each) that an action lasts; 4 make 20 actions a second."""
    size: int = Field(default=64, ge=16, le=1024)
    """Side of a frame, in pixels."""

    @model_validator(mode="after")
    def _installed(self) -> RobotConfig:
        require()
        return self


class Robot(World):
    """One attempt at the drawer."""

    name = "robot"
    Config = RobotConfig
    variants: ClassVar = {"drawer-open": {"task": "drawer-open"}, "drawer-close": {"task": "drawer-close"}}
    config: RobotConfig

    def __init__(self, config: WorldConfig | None = None) -> None:
        super().__init__(config)
        self.simulator = DrawerSimulator(self.config.task, self.config.size, self.config.action_repeat)
        self._reached = False

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        self.begin(seed, options)
        side, key = draw_start(self.config.task, self.seed, self.split)
        self.simulator.reset(side)
        self._reached = False
        return self.render(), {"key": key, "side": side}

    def step(self, action: str) -> Step:
        if self.over:
            return self.ended(success=self._reached)
        numbers = read_action(action)
        if numbers is None:
            return self.outcome(0.0, valid=False, effective=False)
        self.simulator.act(numbers)
        self._reached = self.simulator.success
        return self.outcome(
            float(self._reached),
            done=self._reached,
            success=self._reached,
            effective=True,
            opening=self.simulator.opening,
        )

    def render(self, view: str | None = None) -> str:
        self.view_named(view)
        x, y, z, gripper, *rest = self.state
        handle = " ".join(f"{number:.3f}" for number in rest[:3])
        return f"hand {x:.3f} {y:.3f} {z:.3f}, gripper {gripper:.3f}, handle {handle}, drawer open {rest[3]:.3f}"

    def frame(self) -> np.ndarray:
        """The current state as the camera sees it, uint8 `[size, size, 3]`."""
        return self.simulator.frame()

    @property
    def state(self) -> tuple[float, ...]:
        """Hand (3), gripper, handle (3), opening: metres, to the millimetre."""
        numbers = (*self.simulator.observation[:7], self.simulator.opening)
        return tuple(round(float(number), 3) + 0.0 for number in numbers)

    def parse(self, text: str, view: str | None = None) -> tuple[float, ...] | None:
        match = SHOWN.fullmatch(text.strip()) if len(text) <= MAX_ACTION_CHARS else None
        return tuple(float(number) for number in match.groups()) if match else None

    @property
    def instruction(self) -> str:
        return (
            f"A robot arm stands before a drawer: {self.simulator.task.instruction}. Positions are in metres.\n"
            "Actions: four numbers from -1 to 1, x y z gripper, for instance 0.5 0 -1 -1. The hand moves up to "
            f"{0.01 * self.config.action_repeat:g} metres in each direction; a gripper of 1 closes, -1 opens. "
            f"You have {self.config.max_actions} actions."
        )

    def random_action(self, rng: np.random.Generator) -> str:
        return write_action(rng.uniform(-1.0, 1.0, ACTION))

    def oracle(self) -> str | None:
        return None if self.over else write_action(self.simulator.expert())

    def ceiling(self) -> float | None:
        """1 where the scripted expert gets there from here in time; where it does not, someone else might."""
        if self.over:
            return float(self._reached)
        here = self.simulator.save()
        try:
            for _ in range(self.remaining):
                self.simulator.act(np.round(self.simulator.expert(), 3))  # as the oracle writes it
                if self.simulator.success:
                    return 1.0
            return None
        finally:
            self.simulator.restore(here)

    def close(self) -> None:
        self.simulator.close()


def draw_start(task: TaskName, seed: int, split: str | None) -> tuple[float, str]:
    """Where the drawer stands for a seed, in metres beside the middle, and the level's key.

    The way is divided into bands, and a band belongs to one split, for both tasks; the edges of bands belong to none.
    So a start of one split is at least `2 * EDGE` from every start of the other.
    """
    return draw_level("robot", seed, split, draw=_draw_side, key=lambda side: _start_key(task, side))


def _draw_side(rng: np.random.Generator) -> float | None:
    side = round(float(rng.uniform(-SIDE, SIDE)), 6)
    inside = (side + SIDE) % BAND
    return side if EDGE <= inside <= BAND - EDGE else None


def _start_key(task: TaskName, side: float) -> str:
    return level_key(f"robot {task} {side:.6f}", f"robot band {int((side + SIDE) / BAND)} of {round(2 * SIDE / BAND)}")


def write_action(action: np.ndarray) -> str:
    """An action in words: `0.125 -1.000 0.000 1.000`."""
    return " ".join(f"{number:.3f}" for number in action)


def read_action(text: str) -> np.ndarray | None:
    """The action that a text names, clipped to [-1, 1]; None for anything that is not four plain numbers."""
    numbers = read_numbers(text, ACTION)
    return None if numbers is None else np.clip(numbers, -1.0, 1.0)


def read_numbers(text: str, count: int) -> np.ndarray | None:
    """The finite numbers of a text; None where they are not exactly `count`."""
    words = text[: MAX_ACTION_CHARS + 1].replace(",", " ").split()
    if len(text) > MAX_ACTION_CHARS or len(words) != count:
        return None
    try:
        numbers = [float(word) for word in words]
    except ValueError:
        return None
    return np.array(numbers) if all(map(math.isfinite, numbers)) else None
