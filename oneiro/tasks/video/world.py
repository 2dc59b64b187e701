"""A trained video predictor in the place of a camera and of a world: show it a start, give it an action, see a frame.

It continues from its own frames for as long as it is asked. The window slides: before every prediction the model sees
as many of its last frames and actions as a row of its training held.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Hashable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field

from oneiro.models.video.tokenizer import images
from oneiro.runtime import seeds
from oneiro.runtime.seeds import derive
from oneiro.sampling.engine import Engine, SamplingSettings
from oneiro.tasks.base import Dynamics, Flaw, Imagined, LearnedWorld, Malformed
from oneiro.tasks.video.dataset import Clips, Images
from oneiro.tasks.video.measures import psnr
from oneiro.tasks.video.predictor import VideoPredictor
from oneiro.worlds.base import Step, World, WorldConfig, level_key
from oneiro.worlds.robot.drawer import Robot, read_numbers, write_action

Success = Callable[[Images], NDArray[np.bool_]]
"""Frames [N, H, W, 3] -> whether the task is done in each."""


class LearnedFrames:
    """B rollouts at once. `renew`: after so many steps the oldest frame in sight becomes the context; 0: never.

    A context that stays for ever suits a camera that does not move; one that is renewed adds the tokenizer's errors up.
    """

    def __init__(
        self, task: VideoPredictor, engine: Engine, sampling: SamplingSettings | None = None, renew: int = 0
    ) -> None:
        self.task, self.engine, self.renew = task, engine, renew
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
        self.shown = list(np.moveaxis(frames, 1, 0)[:-1])
        self.taken = list(np.moveaxis(taken, 1, 0)[:-1])
        self.steps = 0
        return self._show()

    def step(self, actions: NDArray[np.float32], seed: int) -> Images:
        """Actions [B, A] -> the frames they lead to, [B, H, W, 3]."""
        if self.renew and self.steps and self.steps % self.renew == 0:
            self._look_again()
        self.actions[:, -1] = self.task.bins.encode(actions)
        self.taken.append(np.asarray(actions, np.float32))
        samples = self.engine.generate(self._prompts(), 1, self.sampling, seed=seed)
        made = np.stack([sample.tokens for (sample,) in samples])
        self.frames = np.concatenate([self.frames, made[:, None]], axis=1)[:, -self.window :]
        # The new frame's action comes with the next step; until then a zero holds its place.
        self.actions = np.concatenate([self.actions, np.zeros_like(self.actions[:, :1])], axis=1)[:, -self.window :]
        self.steps += 1
        return self._show()

    def branch(self) -> LearnedFrames:
        """The same rollout, to be continued in another way."""
        other = copy(self)
        if hasattr(self, "actions"):  # a rollout has begun; `step` writes into these two
            other.actions, other.taken = self.actions.copy(), list(self.taken)
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
        frame = images(self.task.decode(self.context, self.frames[:, -1:]))[:, 0]
        self.shown = [*self.shown, frame][-self.window :]
        self.taken = self.taken[-self.window :]
        return frame

    def _look_again(self) -> None:
        """Encode the frames in sight anew, behind the oldest of them."""
        steps, frames = self.steps, np.stack(self.shown, axis=1)
        self.begin(
            frames, np.stack(self.taken[-(frames.shape[1] - 1) :], axis=1) if len(self.shown) > 1 else frames[:0]
        )
        self.steps = steps


class LearnedVideoConfig(WorldConfig):
    """One rollout inside a video model."""

    max_actions: int = Field(default=32, ge=1)


class LearnedVideo(LearnedWorld):
    """One rollout of `LearnedFrames` as a world. An action is a line of numbers; a state is a frame (`frame()`).

    `starts` are true first frames [S, H, W, 3] of each split; `success` decides by the frame whether the task is done,
    and without it the episode goes on until the actions are used up. Sampling noise follows from seed and member.
    """

    name = "learned-video"
    Config = LearnedVideoConfig
    deterministic = False

    def __init__(
        self,
        camera: LearnedFrames,
        starts: Mapping[str, Images],
        success: Success | None = None,
        config: WorldConfig | None = None,
    ) -> None:
        super().__init__(config)
        self.camera, self.starts, self.success = camera, starts, success
        self._frame: Images | None = None
        self._reached = False

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        self.begin(seed, options)
        starts = self.starts[self.split or "eval"]
        start = starts[self.seed % len(starts)]  # there are as many levels as recorded starts
        nothing = np.zeros((1, 0, self._entries), np.float32)
        self._frame, self._reached = self.camera.begin(start[None, None], nothing)[0], False
        return self.render(), {"key": level_key(start.tobytes())}

    def step(self, action: str) -> Step:
        if self.over:
            return self.ended(success=self._reached)
        numbers = read_numbers(action, self._entries)
        if numbers is None:
            return self.outcome(0.0, valid=False, effective=False, malformed=False)
        # By member, so that attempts at one start differ; by step, so that no step repeats another's noise.
        noise = derive(self.seed, self.member, self.taken)
        self._frame = self.camera.step(numbers[None].astype(np.float32), noise)[0]
        self._reached = self.success is not None and bool(self.success(self._frame[None])[0])
        return self.outcome(
            float(self._reached), done=self._reached, success=self._reached, effective=True, malformed=False
        )

    def frame(self) -> Images:
        """The current state, uint8 [H, W, 3]."""
        assert self._frame is not None, "reset the world first"
        return self._frame

    def render(self, view: str | None = None) -> str:
        self.view_named(view)
        height, width, _ = self.frame().shape
        return f"frame {self.taken}, {height}x{width} pixels"

    @property
    def instruction(self) -> str:
        return (
            f"A video model shows a robot. An action is {self._entries} numbers, for instance "
            f"{write_action(np.zeros(self._entries))}. You have {self.config.max_actions} actions."
        )

    def random_action(self, rng: np.random.Generator) -> str:
        bins = self.camera.task.bins
        return write_action(rng.uniform(bins.low, bins.high))

    @property
    def _entries(self) -> int:
        """Numbers of an action."""
        return len(self.camera.task.bins.low)


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
