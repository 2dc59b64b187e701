"""Video tokenizers: frames into tokens, tokens into frames, and a folder that holds one.

`FrameTokenizer` is a convolutional autoencoder whose latent is rounded (FSQ); every frame stands alone.
`CompressiveTokenizer` (iVideoGPT, arXiv 2405.15223, with FSQ) has a context frame in full, and few tokens a frame: what
stands still is in the context's tokens. A frame's own encoder and decoder look at the context's features, so its few
tokens need only say what has moved.

Frames are float tensors [N, T, 3, H, W] in [0, 1]. A segment has T frames and may have a context frame, whose own
tokens come once and stand behind all of its frames. Tokenizers without a context give it 0 tokens.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from oneiro.models.language import default_device, read_state, refuse_damaged, write_folder, write_state
from oneiro.models.randomness import seeded
from oneiro.models.video.blocks import CrossAttention, Decoder, Encoder
from oneiro.models.video.settings import CompressiveTokenizerSettings as CompressiveTokenizerSettings
from oneiro.models.video.settings import (
    ConvolutionSettings,
    FrameTokenizerSettings,
    TokenizerSettings,
)
from oneiro.runtime import files
from oneiro.runtime.errors import OneiroError

EPSILON = 1e-3
"""Keeps the outermost levels reachable: tanh never arrives at 1."""


class Fsq(nn.Module):
    """Finite scalar quantisation (arXiv 2309.15505): rounds the last dimension of a tensor, each entry to its `levels`.

    There is no codebook to learn and no commitment loss. A code's index counts its entries like digits, the first entry
    being the lowest digit, so indices and codes turn into each other by arithmetic.
    """

    middle: Tensor
    levels: Tensor
    basis: Tensor

    def __init__(self, levels: Sequence[int]) -> None:
        super().__init__()
        self.codes = prod(levels)
        basis = [prod(levels[:k]) for k in range(len(levels))]
        # Constants follow the module to its device and are no part of its weights.
        self.register_buffer("levels", torch.tensor(levels), persistent=False)
        self.register_buffer("middle", torch.tensor([level // 2 for level in levels]), persistent=False)
        self.register_buffer("basis", torch.tensor(basis), persistent=False)

    def bound(self, z: Tensor) -> Tensor:
        """Squash each entry [..., K] into the range of its levels; an even number of levels is shifted by a half."""
        reach = (self.levels - 1) * (1 + EPSILON) / 2
        offset = torch.where(self.levels % 2 == 0, 0.5, 0.0)
        shift = torch.atanh(offset / reach)
        return torch.tanh(z + shift) * reach - offset

    def forward(self, z: Tensor) -> Tensor:
        """Any numbers [..., K] -> codes [..., K] in [-1, 1]; rounding lets the gradient pass. Always in float32."""
        with torch.autocast(z.device.type, enabled=False):
            bounded = self.bound(z.float())
            rounded = bounded + (bounded.round() - bounded).detach()
            return rounded / self.middle

    def indices(self, codes: Tensor) -> Tensor:
        """Codes [..., K] -> indices [...] in 0 .. codes - 1."""
        digits = (codes.float() * self.middle).round().long() + self.middle
        return (digits * self.basis).sum(-1)

    def code(self, indices: Tensor) -> Tensor:
        """Indices [...] -> codes [..., K]; the inverse of `indices`."""
        digits = (indices[..., None] // self.basis) % self.levels
        return (digits - self.middle).float() / self.middle


CONFIG, WEIGHTS = "tokenizer.json", "tokenizer.safetensors"
PIXELS_AT_ONCE = {"cpu": 1 << 18, "cuda": 1 << 22}
"""What goes through a tokenizer at once when nothing is learned: 64 or 1,024 frames of 64x64."""


@dataclass
class Reconstruction:
    """What a tokenizer makes of a segment while it learns, and what it should have made of it: [M, 3, H, W] each."""

    made: Tensor
    true: Tensor
    context: Tensor | None = None
    true_context: Tensor | None = None
    indices: Tensor | None = None
    """Codes that were used for frames: how many different ones says how much of the codebook lives."""


class Tokenizer(nn.Module, ABC):
    """Frames to tokens and back."""

    mean_frame: Tensor
    """[3, H, W]: what the convolutions see and make are differences from it."""
    fsq: Fsq
    frame_tokens: int
    """Tokens of one frame."""
    context_tokens: int
    """Tokens of a context; 0: this tokenizer has none."""

    def __init__(self, settings: ConvolutionSettings) -> None:
        super().__init__()
        self.settings, self.fsq = settings, Fsq(settings.levels)
        self.register_buffer("mean_frame", torch.full((3, settings.height, settings.width), 0.5))

    @property
    def codes(self) -> int:
        """Frame and context tokens are ids below this."""
        return self.fsq.codes

    @property
    def device(self) -> torch.device:
        return next(self.parameters()).device

    @property
    def parameter_count(self) -> int:
        return sum(parameter.numel() for parameter in self.parameters())

    @abstractmethod
    def encode(self, frames: Tensor, context: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Frames [N, T, 3, H, W] and contexts [N, 3, H, W] -> context tokens [N, C] and frame tokens [N, T, Z].

        Without `context`, the first frame of each segment is its own.
        """

    @abstractmethod
    def decode(self, context: Tensor, frames: Tensor) -> Tensor:
        """Context tokens [N, C] and frame tokens [N, T, Z] -> frames [N, T, 3, H, W], clamped to [0, 1]."""

    @abstractmethod
    def reconstruct(self, frames: Tensor) -> Reconstruction:
        """Through the tokens and back, with gradient; the first frame of a segment is its context."""

    @property
    def at_once(self) -> int:
        """Frames that go through together when nothing is learned."""
        return max(1, PIXELS_AT_ONCE[self.device.type] // (self.settings.height * self.settings.width))

    def save(self, folder: str | Path) -> Path:
        """Weights and settings in a folder, written whole or not at all."""

        def write(part: Path) -> None:
            write_state(part / WEIGHTS, dict(self.state_dict()))
            files.write_json(part / CONFIG, self.settings.model_dump(mode="json"))

        return write_folder(folder, write)


def create(settings: TokenizerSettings, seed: int = 0, device: torch.device | str | None = None) -> Tokenizer:
    """A tokenizer with random weights, the same for the same seed."""

    with seeded(seed):
        made: Tokenizer = (
            FrameTokenizer(settings) if isinstance(settings, FrameTokenizerSettings) else CompressiveTokenizer(settings)
        )
    return made.to(torch.device(device) if device is not None else default_device())


def load(folder: str | Path, device: torch.device | str | None = None) -> Tokenizer:
    """The tokenizer in a folder, or the newest of a training stage; ready for use."""
    folder = max(Path(folder).glob("step-*/tokenizer"), default=Path(folder))
    if not (folder / CONFIG).is_file():
        raise OneiroError(f"no video tokenizer at {folder}: it has no {CONFIG}")
    refuse_damaged(folder)
    made = create(_settings(files.read_json(folder / CONFIG), folder), 0, device)
    saved = read_state(folder / WEIGHTS, "tokenizer")
    try:
        made.load_state_dict(saved)
    except RuntimeError as error:
        raise OneiroError(f"the weights at {folder} do not fit their {CONFIG}; the folder is damaged") from error
    return made.eval().requires_grad_(False)


def _settings(data: Any, folder: Path) -> TokenizerSettings:
    from pydantic import TypeAdapter, ValidationError

    try:
        settings: TokenizerSettings = TypeAdapter(TokenizerSettings).validate_python(data)
    except ValidationError as error:
        raise OneiroError(f"{folder / CONFIG} does not describe a video tokenizer; the folder is damaged") from error
    return settings


def pixels(images: NDArray[np.uint8], device: torch.device | str = "cpu") -> Tensor:
    """Images [..., H, W, 3] of bytes -> frames [..., 3, H, W] in [0, 1]."""
    return torch.from_numpy(np.ascontiguousarray(images)).to(device).movedim(-1, -3).float().div_(255).contiguous()


def images(frames: Tensor) -> NDArray[np.uint8]:
    """Frames [..., 3, H, W] -> images [..., H, W, 3] of bytes."""
    whole = (frames.float().clamp(0, 1) * 255).round().to(torch.uint8).cpu().numpy()
    return np.ascontiguousarray(np.moveaxis(whole, -3, -1))


class FrameTokenizer(Tokenizer):
    """Frames of H x W pixels into (H/f) x (W/f) tokens, row by row."""

    def __init__(self, settings: FrameTokenizerSettings) -> None:
        super().__init__(settings)
        self.frame_tokens, self.context_tokens = settings.grid[0] * settings.grid[1], 0
        channels, latent, digits = settings.channels, settings.latent, len(settings.levels)
        self.encoder = Encoder(channels, settings.layers, latent, attention=True, patch=settings.patch)
        self.to_code, self.from_code = nn.Conv2d(latent, digits, 1), nn.Conv2d(digits, latent, 1)
        # The decoder's stages have the channels of the stage below them, and all but the first double.
        widths = [*reversed(channels[:-1]), channels[0]]
        stages = [(width, place > 0) for place, width in enumerate(widths)]
        self.decoder = Decoder(channels[-1], stages, settings.layers, latent, attention=True, patch=settings.patch)

    def encode(self, frames: Tensor, context: Tensor | None = None) -> tuple[Tensor, Tensor]:
        flat = frames.flatten(0, 1)
        tokens = [self.fsq.indices(self._codes(part)).flatten(1) for part in flat.split(self.at_once)]
        return frames.new_zeros(len(frames), 0, dtype=torch.long), torch.cat(tokens).unflatten(0, frames.shape[:2])

    def decode(self, context: Tensor, frames: Tensor) -> Tensor:
        flat = frames.flatten(0, 1).unflatten(-1, self.settings.grid)
        parts = flat.split(self.at_once)
        made = [self._frames(self.fsq.code(part)).clamp(0, 1) for part in parts]
        return torch.cat(made).unflatten(0, frames.shape[:2])

    def reconstruct(self, frames: Tensor) -> Reconstruction:
        flat = frames.flatten(0, 1)
        codes = self._codes(flat)
        return Reconstruction(self._frames(codes), flat, indices=self.fsq.indices(codes.detach()))

    def _codes(self, frames: Tensor) -> Tensor:
        """Frames [M, 3, H, W] -> codes [M, h, w, K]."""
        return self.fsq(self.to_code(self.encoder(2 * (frames - self.mean_frame))[0]).movedim(1, -1))

    def _frames(self, codes: Tensor) -> Tensor:
        return self.mean_frame + self.decoder(self.from_code(codes.movedim(-1, 1)))[0]


class CompressiveTokenizer(Tokenizer):
    """A context into h x w tokens, each frame into (h/s) x (w/s) for squares of side s."""

    def __init__(self, settings: CompressiveTokenizerSettings) -> None:
        super().__init__(settings)
        (high, wide), side = settings.grid, settings.squares
        self.side = side
        self.context_tokens, self.frame_tokens = high * wide, (high // side) * (wide // side)
        channels, layers, latent, digits = settings.channels, settings.layers, settings.latent, len(settings.levels)
        cross = {
            stage: CrossAttention(channels[stage], height * width, settings.heads, settings.dropout)
            for stage, (height, width) in settings.attending.items()
        }
        self.context_encoder = Encoder(channels, layers, latent, attention=False, patch=settings.patch)
        self.encoder = Encoder(channels, layers, latent, attention=True, patch=settings.patch, cross=cross)
        top = channels[-1]
        stages = [(width, place < len(channels) - 1) for place, width in enumerate(reversed(channels))]
        self.context_decoder = Decoder(top, stages, layers + 1, latent, attention=False, patch=settings.patch)
        meeting = CrossAttention(top, high * wide, settings.heads, settings.dropout)
        self.decoder = Decoder(top, stages, layers + 1, latent, attention=True, patch=settings.patch, cross=meeting)
        self.to_context, self.from_context = nn.Conv2d(latent, digits, 1), nn.Conv2d(digits, latent, 1)
        square = latent * side * side
        self.to_code, self.from_code = nn.Linear(square, digits), nn.Linear(digits, square)

    def encode(self, frames: Tensor, context: Tensor | None = None) -> tuple[Tensor, Tensor]:
        known = frames[:, 0] if context is None else context
        contexts, moved = [], []
        for start, end in self._parts(frames):
            codes, features = self._context_codes(known[start:end])
            contexts.append(self.fsq.indices(codes).flatten(1))
            own = self._codes(frames[start:end].flatten(0, 1), features)
            moved.append(self.fsq.indices(own).flatten(1).unflatten(0, (end - start, -1)))
        return torch.cat(contexts), torch.cat(moved)

    def decode(self, context: Tensor, frames: Tensor) -> Tensor:
        grid = self.settings.grid[0] // self.side, self.settings.grid[1] // self.side
        made = []
        for start, end in self._parts(frames):
            known = self.fsq.code(context[start:end].unflatten(-1, self.settings.grid))
            features = self.context_decoder.middle(self.context_decoder.start(self.from_context(known.movedim(-1, 1))))
            codes = self.fsq.code(frames[start:end].flatten(0, 1).unflatten(-1, grid))
            made.append(self._frames(codes, features).clamp(0, 1).unflatten(0, (end - start, -1)))
        return torch.cat(made)

    def reconstruct(self, frames: Tensor) -> Reconstruction:
        """See `Tokenizer.reconstruct`: the first frame is the context, the others are made from their few tokens."""
        context, later = frames[:, 0], frames[:, 1:].flatten(0, 1)
        known, features = self._context_codes(context)
        codes = self._codes(later, features)
        made_context, middle = self.context_decoder(self.from_context(known.movedim(-1, 1)))
        made = self._frames(codes, middle)
        return Reconstruction(made, later, self.mean_frame + made_context, context, self.fsq.indices(codes.detach()))

    def _parts(self, frames: Tensor) -> list[tuple[int, int]]:
        """Segments that go through together: whole ones, and not too many frames."""
        count, length = frames.shape[:2]
        step = max(1, self.at_once // max(1, length))
        return list(pairwise([*range(0, count, step), count]))

    def _context_codes(self, context: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Contexts [N, 3, H, W] -> codes [N, h, w, K] and the encoder's features."""
        latent, features = self.context_encoder(2 * (context - self.mean_frame))
        return self.fsq(self.to_context(latent).movedim(1, -1)), features

    def _codes(self, frames: Tensor, features: list[Tensor]) -> Tensor:
        """Frames [N * T, 3, H, W] of N contexts -> codes [N * T, h/s, w/s, K]."""
        latent, _ = self.encoder(2 * (frames - self.mean_frame), features)
        side = self.side
        squares = latent.unflatten(2, (-1, side)).unflatten(4, (-1, side))  # [M, c, h/s, s, w/s, s]
        return self.fsq(self.to_code(squares.permute(0, 2, 4, 1, 3, 5).flatten(3)))

    def _frames(self, codes: Tensor, middle: Tensor) -> Tensor:
        squares = self.from_code(codes).unflatten(-1, (-1, self.side, self.side))  # [M, h/s, w/s, c, s, s]
        latent = squares.permute(0, 3, 1, 4, 2, 5).flatten(4, 5).flatten(2, 3)
        return self.mean_frame + self.decoder(latent, middle)[0]
