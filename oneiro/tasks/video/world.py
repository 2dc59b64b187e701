"""A trained video predictor in the place of a camera: show it a start, give it an action, see a frame.

It continues from its own frames for as long as it is asked. The window slides: before every prediction the model sees
as many of its last frames and actions as a row of its training held.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Hashable, Sequence
from copy import copy
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from oneiro.models.video.tokenizer import images
from oneiro.runtime import seeds
from oneiro.sampling.engine import Engine, SamplingSettings
from oneiro.tasks.base import Dynamics, Flaw, Imagined, Malformed
from oneiro.tasks.video.dataset import Clips, Images
from oneiro.tasks.video.measures import psnr
from oneiro.tasks.video.predictor import VideoPredictor
from oneiro.worlds.base import Step, World
from oneiro.worlds.robot.drawer import Robot, read_numbers


class LearnedFrames:
    """B rollouts at once. The context of the start stays: renewed ones would add the tokenizer's errors up."""

    def __init__(self, task: VideoPredictor, engine: Engine, sampling: SamplingSettings | None = None) -> None:
        self.task, self.engine = task, engine
        self.sampling = (sampling or SamplingSettings(top_k=100)).model_copy(
            update={"max_tokens": task.layout.frame_tokens, "ignore_eos": True}
        )

    @property
    def window(self) -> int:
        """Frames in sight when the next one is predicted, at most."""
        return self.task.layout.frames - 1

    def begin(self, frames: Images, actions: NDArray[np.float32]) -> Images:
        """Frames [B, T, H, W, 3] and the actions between them [B, T - 1, A]; returns the last frame as the model sees
        it, [B, H, W, 3]. Of more frames than the `window` holds, the last count.
        """
        # The last frame's action is not known yet: a placeholder stands in its place until `step` brings it.
        missing = np.zeros((len(frames), 1, len(self.task.bins.low)), np.float32)
        taken = np.concatenate([actions.reshape(len(frames), -1, missing.shape[2]), missing], axis=1)
        if taken.shape[1] != frames.shape[1]:
            raise ValueError(
                f"{frames.shape[1]} frames have {frames.shape[1] - 1} actions between them, not {taken.shape[1] - 1}"
            )
        frames, taken = frames[:, -self.window :], taken[:, -self.window :]
        encoded = self.task.encode(Clips(frames, taken, frames[:, 0]))
        self.context, self.frames, self.actions = encoded.context, encoded.frames, encoded.actions
        return self._show()

    def step(self, actions: NDArray[np.float32], seed: int) -> Images:
        """Actions [B, A] -> the frames they lead to, [B, H, W, 3]."""
        self.actions[:, -1] = self.task.bins.encode(actions)
        samples = self.engine.generate(self._prompts(), 1, self.sampling, seed=seed)
        made = np.stack([sample.tokens for (sample,) in samples])
        self.frames = np.concatenate([self.frames, made[:, None]], axis=1)[:, -self.window :]
        # The new frame's action comes with the next step; until then a zero holds its place.
        self.actions = np.concatenate([self.actions, np.zeros_like(self.actions[:, :1])], axis=1)[:, -self.window :]
        return self._show()

    def branch(self) -> LearnedFrames:
        """The same rollout, to be continued in another way."""
        other = copy(self)
        if hasattr(self, "actions"):  # a rollout has begun; `step` writes into these
            other.actions = self.actions.copy()
        return other

    def _prompts(self) -> list[NDArray[np.int32]]:
        """Rows as in training; a model that needs several past frames is shown the first one several times."""
        layout = self.task.layout
        lacking = max(0, layout.past - self.frames.shape[1])
        frames = np.concatenate([np.repeat(self.frames[:, :1], lacking, axis=1), self.frames], axis=1)
        # A frame that is shown twice is a robot that stands still: its action is zero.
        still = self.task.bins.encode(np.zeros((len(frames), lacking, self.actions.shape[2]), np.float32))
        actions = np.concatenate([still, self.actions], axis=1)
        return [layout.opening(*row) for row in zip(self.context, frames, actions, strict=True)]

    def _show(self) -> Images:
        return images(self.task.decode(self.context, self.frames[:, -1:]))[:, 0]


# As dynamics, for play beside the true world --------------------------------------------------------------------------


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
