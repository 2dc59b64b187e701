"""What a video tokenizer is: frames into tokens, tokens into frames, and a folder that holds one.

Frames are float tensors [N, T, 3, H, W] in [0, 1]. A segment has T frames and may have a context frame, whose own
tokens come once and stand behind all of its frames. Tokenizers without a context give it 0 tokens.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from oneiro.models.language import default_device, read_state, refuse_damaged, write_folder, write_state
from oneiro.models.randomness import seeded
from oneiro.models.video.fsq import Fsq
from oneiro.models.video.settings import CompressiveTokenizerSettings as CompressiveTokenizerSettings
from oneiro.models.video.settings import (
    ConvolutionSettings,
    FrameTokenizerSettings,
    TokenizerSettings,
)
from oneiro.runtime import files
from oneiro.runtime.errors import OneiroError

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
    from oneiro.models.video.compressive_tokenizer import CompressiveTokenizer
    from oneiro.models.video.frame_tokenizer import FrameTokenizer

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
