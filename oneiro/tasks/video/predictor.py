"""Video prediction as a task: segments into prompts, sampled tokens into frames, frames into verified rewards.

The truth is the next frames of the recording. A predicted frame is decoded by the frozen tokenizer and compared with
it, pixel by pixel and by how it looks. The predictor holds no transformer and learns nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from oneiro.episode import Row, Sample, Tokens
from oneiro.models.video.layout import Layout
from oneiro.models.video.perceptual import Lpips
from oneiro.models.video.tokenizer import Tokenizer, pixels
from oneiro.sampling.engine import Engine, SamplingSettings
from oneiro.tasks.video import measures
from oneiro.tasks.video.dataset import Clips
from oneiro.tasks.video.recipe import VideoRewardSettings
from oneiro.worlds.robot.episodes import ActionBins

SCORED_AT_ONCE = 4
"""Decoded and compared at once: so many times the frames that go through the tokenizer together."""


@dataclass(frozen=True)
class Encoded:
    """N segments as code indices and bins: context [N, C], frames [N, T, Z], actions [N, T, A]."""

    context: NDArray[np.int32]
    frames: NDArray[np.int32]
    actions: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.frames)

    def __getitem__(self, part: Any) -> Encoded:
        return Encoded(self.context[part], self.frames[part], self.actions[part])


class VideoPredictor:
    """The task: a frozen tokenizer, the layout of a row, the bins of actions, and the reward.

    An answer is the row of ids that follows the prompt: frames, with the recorded actions between them. Many segments
    are handled at once.
    """

    def __init__(
        self, tokenizer: Tokenizer, layout: Layout, bins: ActionBins, reward: VideoRewardSettings | None = None
    ) -> None:
        self.tokenizer, self.layout, self.bins = tokenizer, layout, bins
        self.reward_settings = reward or VideoRewardSettings()

    @cached_property
    def lpips(self) -> Lpips:
        """The network the reward looks with; loaded when it first counts."""
        return Lpips.load(self.reward_settings.network, self.tokenizer.device)

    # Into tokens

    @torch.inference_mode()
    def encode(self, clips: Clips) -> Encoded:
        """Segments through the frozen tokenizer."""
        device = self.tokenizer.device
        context, frames = self.tokenizer.encode(pixels(clips.images, device), pixels(clips.context, device))
        bins = self.bins.encode(clips.actions).astype(np.int32)
        return Encoded(whole_numbers(context), whole_numbers(frames), bins)

    def row(self, case: Encoded, history: float = 0.0) -> Row:
        """What pre-training learns from: `case` is one segment (`encoded[i]`), `history` the weight of given frames."""
        return self.layout.row(case.context, case.frames, case.actions, history)

    def opening(self, case: Encoded) -> Tokens:
        """What the model is given of one segment (`encoded[i]`); never depends on later frames."""
        return self.layout.prompt(case.context, case.frames, case.actions)

    def sample(
        self, engine: Engine, cases: Encoded, group_size: int, sampling: SamplingSettings, seed: int
    ) -> list[list[Sample]]:
        """`group_size` futures for each segment; their actions are forced between the frames."""
        prompts = [self.opening(cases[i]) for i in range(len(cases))]
        forced = [self.layout.force_actions(cases[i].actions) for i in range(len(cases))]
        # A future has a fixed number of tokens, and an id that would end a text is an ordinary code here.
        full = sampling.model_copy(update={"max_tokens": self.layout.reply_length, "ignore_eos": True})
        return engine.generate(prompts, group_size, full, forced, seed)

    def frames_of(self, samples: Sequence[Sequence[Sample]]) -> NDArray[np.int32]:
        """Frame tokens [N, M, F, Z] of sampled futures."""
        return np.stack([[self.layout.reply_frames(one.tokens) for one in group] for group in samples])

    # Into frames

    @torch.inference_mode()
    def decode(self, context: NDArray[np.int32], frames: NDArray[np.int32]) -> Tensor:
        """Context [N, C] and frame tokens [N, ..., Z] -> frames [N, ..., 3, H, W]; a context is decoded once."""
        device = self.tokenizer.device
        flat = torch.from_numpy(frames.reshape(len(frames), -1, frames.shape[-1])).long().to(device)
        made = self.tokenizer.decode(torch.from_numpy(context).long().to(device), flat)
        return made.view(*frames.shape[:-1], *made.shape[-3:])

    def truth(self, clips: Clips, cases: Encoded) -> Tensor:
        """What predicted frames are compared with, [N, F, 3, H, W]."""
        past = self.layout.past
        if self.reward_settings.truth == "reconstruction":
            return self.decode(cases.context, cases.frames[:, past:])
        return pixels(clips.images[:, past:], self.tokenizer.device)

    def copy_frames(self, clips: Clips) -> Tensor:
        """The trivial prediction: the last frame that was given, for ever, [N, F, 3, H, W]."""
        last = pixels(clips.images[:, self.layout.past - 1], self.tokenizer.device)
        return last[:, None].expand(-1, self.layout.future, -1, -1, -1)

    def ceiling(self, cases: Encoded) -> Tensor:
        """The best that frame tokens can do: the true frames through the tokenizer, [N, F, 3, H, W]."""
        return self.decode(cases.context, cases.frames[:, self.layout.past :])

    # Into rewards

    @torch.inference_mode()
    def compare(self, made: Tensor, true: Tensor) -> dict[str, NDArray[np.float32]]:
        """The terms of each frame's reward: frames [N, M, F, 3, H, W] against [N, F, 3, H, W] -> [N, M, F] each."""
        terms: dict[str, NDArray[np.float32]] = {}
        for name, weight in self.reward_settings.weights.items():
            if name == "lpips":
                values = self._lpips(made, true)
            else:
                values = getattr(measures, name)(made, true[:, None].expand_as(made))
            terms[name] = (weight * values).float().cpu().numpy()
        return terms

    def _lpips(self, made: Tensor, true: Tensor) -> Tensor:
        """The true frames' features are computed once for all group_size."""
        group_size = made.shape[1]
        seen = [part.repeat_interleave(group_size, dim=0) for part in self.lpips.features(true.flatten(0, 1))]
        # [N, M, F] -> group_size innermost, to stand beside the repeated truth
        inner = made.transpose(1, 2).flatten(0, 2)
        distances = self.lpips.between(self.lpips.features(inner), seen)
        return distances.view(len(made), made.shape[2], group_size).transpose(1, 2)

    def rewards(self, clips: Clips, cases: Encoded, frames: NDArray[np.int32]) -> dict[str, NDArray[np.float32]]:
        """Each term of the reward of sampled frames, [N, M, F]; `frames` [N, M, F, Z] are their tokens."""
        count, group_size, future = frames.shape[:3]
        size = max(1, SCORED_AT_ONCE * self.tokenizer.at_once // (group_size * future))
        parts = []
        for start in range(0, count, size):
            part = slice(start, start + size)
            made, true = self.decode(cases.context[part], frames[part]), self.truth(clips[part], cases[part])
            parts.append(self.reward_terms(made, true, self.repeats(cases[part], frames[part])))
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}

    def reward_terms(self, made: Tensor, true: Tensor, repeats: NDArray[np.float32]) -> dict[str, NDArray[np.float32]]:
        """Each term of each predicted frame's reward, [N, M, F]: together they sum to a segment's reward.

        Frames are weighted as the settings say, so the sum over F is the mean, the last or the discounted one.
        `repeats` [N, M, F] says which of them are the one before: learned or not, a prediction pays for that.
        """
        terms = self.compare(made, true)
        if self.reward_settings.repetition:
            terms["repetition"] = -self.reward_settings.repetition * repeats
        shares = self.reward_settings.shares(made.shape[2])
        return {name: (values * shares).astype(np.float32) for name, values in terms.items()}

    def repeats(self, cases: Encoded, frames: NDArray[np.int32]) -> NDArray[np.float32]:
        """1 where a predicted frame is the one before it, token for token, [N, M, F]; the first follows the past."""
        last = cases.frames[:, None, self.layout.past - 1 : self.layout.past]
        before = np.concatenate([np.broadcast_to(last, (*frames.shape[:2], 1, frames.shape[3])), frames], axis=2)
        return (before[:, :, 1:] == before[:, :, :-1]).all(axis=-1).astype(np.float32)

    def reward_of_copying(self, clips: Clips, cases: Encoded) -> NDArray[np.float32]:
        """What the trivial prediction earns, [N]: each of its frames is the one before, and pays for it."""
        still = np.ones((len(clips), 1, self.layout.future), np.float32)
        terms = self.reward_terms(self.copy_frames(clips)[:, None], self.truth(clips, cases), still)
        return np.asarray(np.sum(list(terms.values()), axis=(0, 2, 3)))


def whole_numbers(tokens: Tensor) -> NDArray[np.int32]:
    return tokens.cpu().numpy().astype(np.int32)
