"""A trained video predictor as it comes from disk: transformer, tokenizer, and how they belong together; and at work in
the place of a camera: show it a start, give it an action, see a frame.

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
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from oneiro.models import language as languages
from oneiro.models.language import LanguageModel
from oneiro.models.metadata import ModelMetadata
from oneiro.models.video import tokenizer as tokenizers
from oneiro.models.video.layout import Layout
from oneiro.models.video.settings import TransformerSettings
from oneiro.models.video.tokenizer import images
from oneiro.runtime import seeds
from oneiro.runtime.errors import OneiroError
from oneiro.sampling.engine import Engine, SamplingSettings
from oneiro.tasks.base import Dynamics, Flaw, Imagined, Malformed
from oneiro.tasks.video.dataset import Clips, Images
from oneiro.tasks.video.measures import psnr
from oneiro.tasks.video.predictor import VideoPredictor, VideoRewardSettings
from oneiro.worlds.base import Step, World
from oneiro.worlds.robot.drawer import Robot, read_numbers
from oneiro.worlds.robot.episodes import ActionBins
from oneiro.worlds.robot.simulator import ACTION_REPEAT

TOKENIZER, PRETRAIN = "tokenizer", "pretrain"
"""The stages of a run that train the two models; their checkpoints lie in folders of that name."""


class VideoMetadata(ModelMetadata):
    """Everything a video predictor needs beside its tokenizer's weights."""

    what = "a predictor of video"
    kind: Literal["video"] = "video"
    layout: dict[str, Any]
    bins: dict[str, Any]
    reward: VideoRewardSettings = VideoRewardSettings()
    sampling: SamplingSettings = SamplingSettings()
    test_every: int = 100
    """One episode in so many was kept from training."""
    action_repeat: int = ACTION_REPEAT
    """Simulator steps that an action of the robot lasted."""


class VideoModel(NamedTuple):
    """The transformer, the task it was trained on, and its metadata."""

    language: LanguageModel
    task: VideoPredictor
    metadata: VideoMetadata


def open_model(place: str | Path, stage: str | None = None) -> VideoModel:
    """A video model of a run (after `stage`, or after its last one), or in a folder with its tokenizer beside it."""
    place = Path(place)
    if not place.is_dir():
        raise OneiroError(f"no folder is at {place}; name a run of rlvr/video-..., or a video model with its tokenizer")
    if stage is not None:
        if not any(place.glob(f"checkpoints/{stage}/step-*/model")):
            raise OneiroError(f"{place} has no transformer of a stage '{stage}'; they come after '{PRETRAIN}' and 'rl'")
        place = place / "checkpoints" / stage
    elif (place / "checkpoints" / PRETRAIN).is_dir():
        newest = [name for name in ("rl", PRETRAIN) if any(place.glob(f"checkpoints/{name}/step-*/model"))]
        if not newest:
            raise OneiroError(f"{place} has no transformer yet; let the run get past its stage '{PRETRAIN}'")
        place = place / "checkpoints" / newest[0]
    language = languages.load(str(place))
    metadata = VideoMetadata.read(language, place)
    if metadata is None:
        raise OneiroError(f"the model at {place} was not trained to predict video: it has no {languages.METADATA}")
    tokenizer = tokenizers.load(find_tokenizer(place))
    layout, bins = Layout.read(metadata.layout), ActionBins.read(metadata.bins)
    if (tokenizer.codes, tokenizer.frame_tokens) != (layout.codes, layout.frame_tokens):
        raise OneiroError(f"the tokenizer beside {place} is not the one this model was trained with")
    return VideoModel(language, VideoPredictor(tokenizer, layout, bins, metadata.reward), metadata)


def find_tokenizer(place: Path) -> Path:
    """Inside a model's folder, or among the checkpoints of its run (RUN/checkpoints/rl/step-000040/model)."""
    for folder in (place, *place.resolve().parents[:4]):
        for candidate in (folder / TOKENIZER, folder / "checkpoints" / TOKENIZER):
            if (candidate / tokenizers.CONFIG).is_file() or any(candidate.glob(f"step-*/{TOKENIZER}")):
                return candidate
    raise OneiroError(f"no tokenizer belongs to the model at {place}: put its folder there, as {place / TOKENIZER}")


PRECISE = 1e-6


def create_transformer(settings: TransformerSettings, layout: Layout, seed: int) -> LanguageModel:
    """The transformer that predicts frame tokens, with random weights for the tokens of a layout: a Llama whose tokens
    are no text; only frame codes are ever predicted."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=layout.vocabulary,
        hidden_size=settings.width,
        intermediate_size=settings.mlp,
        num_hidden_layers=settings.layers,
        num_attention_heads=settings.heads,
        num_key_value_heads=settings.heads,
        max_position_embeddings=8192,
        rms_norm_eps=PRECISE,
        tie_word_embeddings=settings.tied,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=None,
    )
    config.output_vocab = layout.codes  # kept in config.json; the backbone reads it
    model = languages.initialise(LlamaForCausalLM, config, seed)
    if languages.default_device().type == "cuda":
        model = model.to(torch.bfloat16)  # as `load` does; the optimiser keeps the float32 truth
    return languages.assemble(settings.name, model, None)


# At work --------------------------------------------------------------------------------------------------------------


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
