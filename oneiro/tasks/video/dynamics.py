"""A video predictor at work in a person's hands: footage in, the next frame out."""

from __future__ import annotations

import base64
import io
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

import numpy as np
import torch

from oneiro.runtime import seeds
from oneiro.tasks.base import Dynamics, Flaw, Imagined, Malformed
from oneiro.tasks.video.dataset import Images
from oneiro.tasks.video.measures import psnr
from oneiro.tasks.video.world import LearnedFrames
from oneiro.worlds.base import Step, World
from oneiro.worlds.robot.drawer import Robot, read_numbers


@dataclass(frozen=True, eq=False)
class Footage:
    """What was seen so far: true frames and the actions between them, or a model that has gone on from its own."""

    frames: tuple[Images, ...]
    actions: tuple[str, ...] = ()
    camera: LearnedFrames | None = field(default=None, repr=False)

    @property
    def last(self) -> Images:
        return self.frames[-1]


class FilmedRobot(Robot):
    """The simulated arm, with all frames of the episode."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        answer = super().reset(seed=seed, options=options)
        self.footage = Footage((self.frame(),))
        return answer

    def step(self, action: str) -> Step:
        answer = super().step(action)
        self.footage = Footage((*self.footage.frames, self.frame()), (*self.footage.actions, action))
        return answer


def footage_of(world: World) -> Footage:
    assert isinstance(world, FilmedRobot)
    return world.footage


@dataclass
class FrameDynamics(Dynamics[Footage]):
    """Actions are lines of numbers. The noise of sampling belongs to the step, so that a session can be repeated."""

    camera: LearnedFrames

    def key(self, state: Footage) -> Hashable:
        text = blake2b("\n".join(state.actions).encode(), digest_size=16)
        for frame in state.frames:
            text.update(frame.tobytes())
        return text.digest(), state.camera is None

    def show(self, state: Footage) -> str:
        """The last frame as the address of a picture."""
        from PIL import Image

        data = io.BytesIO()
        Image.fromarray(state.last).save(data, "PNG")
        return f"data:image/png;base64,{base64.b64encode(data.getvalue()).decode()}"

    def predict(
        self, pairs: Sequence[tuple[Footage, str]], outcomes: int = 1, seed: int = 0
    ) -> list[list[Imagined[Footage]]]:
        return [[self._predict(state, action)] * outcomes for state, action in pairs]

    def _predict(self, state: Footage, action: str) -> Imagined[Footage]:
        numbers = [read_numbers(one, len(self.camera.task.bins.low)) for one in (*state.actions, action)]
        if any(one is None for one in numbers):
            return Imagined(Malformed(Flaw.SHAPE, "an action is a line of numbers"))
        *taken, now = np.array(numbers, np.float32)
        camera = (state.camera or self.camera).branch()
        if state.camera is None:
            camera.begin(np.stack(state.frames)[None], np.array(taken, np.float32).reshape(1, len(taken), len(now)))
        frame = camera.step(now[None], seeds.derive("footage", len(taken)))[0]
        return Imagined(Footage((*state.frames, frame), (*state.actions, action), camera))


def likeness(one: Footage, other: Footage) -> float:
    """PSNR of the last frames, in decibels."""
    frames = torch.from_numpy(np.stack([one.last, other.last])).movedim(-1, 1) / 255
    return float(psnr(frames[0], frames[1]))
