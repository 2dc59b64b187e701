"""What a video tokenizer is: frames into tokens, tokens into frames, and a folder that holds one.

Frames are float tensors [N, T, 3, H, W] in [0, 1]. A segment has T frames and may have a context frame, whose own
tokens come once and stand behind all of its frames. Tokenizers without a context give it 0 tokens.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field, model_validator
from torch import Tensor, nn

from oneiro import files
from oneiro.errors import OneiroError
from oneiro.models.language import default_device, read_state, refuse_damaged, write_folder, write_state
from oneiro.models.video.fsq import Fsq
from oneiro.recipe import Settings

CONFIG, WEIGHTS = "tokenizer.json", "tokenizer.safetensors"
PIXELS_AT_ONCE = {"cpu": 1 << 18, "cuda": 1 << 22}
"""What goes through a tokenizer at once when nothing is learned: 64 or 1,024 frames of 64x64."""


class ConvolutionSettings(Settings):
    """Sizes both tokenizers have."""

    height: int = Field(64, ge=16)
    """SSIM, one of the fixed measures, looks at 11 pixels at once."""
    width: int = Field(64, ge=16)
    patch: int = Field(1, ge=1)
    """Squares of so many pixels become channels at once; 1 as published, more is faster and coarser."""
    channels: tuple[int, ...] = (128, 256, 256, 512, 768)
    """Of each stage; between two stages height and width are halved."""
    layers: int = Field(2, ge=1)
    """Residual blocks in a stage of an encoder."""
    latent: int = Field(64, ge=1)
    mean_frame: bool = False
    """Draw on the mean training frame and not on grey: where the camera stands still, the scene need not be learned."""
    levels: tuple[int, ...] = (7, 5, 5, 5, 5)
    """FSQ levels; their product is the number of codes."""

    @property
    def factor(self) -> int:
        """How many times smaller the grid is than the frame."""
        return self.patch * 2 ** (len(self.channels) - 1)

    @property
    def grid(self) -> tuple[int, int]:
        return self.height // self.factor, self.width // self.factor

    @model_validator(mode="after")
    def _fits(self) -> ConvolutionSettings:
        if not self.channels or not self.levels or min(self.levels) < 2:
            raise ValueError("channels and levels need an entry each, and every level at least 2")
        if self.height % self.factor or self.width % self.factor:
            raise ValueError(f"{self.height}x{self.width} frames cannot be made {self.factor} times smaller")
        return self


class FrameTokenizerSettings(ConvolutionSettings):
    """One frame at a time. The defaults are the published size for 256x320 (104.4 M parameters, 320 tokens)."""

    name: Literal["frame"] = "frame"


class CompressiveTokenizerSettings(ConvolutionSettings):
    """A context frame in full, and few tokens for what differs in each frame. The published size is 129.4 M."""

    name: Literal["compressive"] = "compressive"
    channels: tuple[int, ...] = (128, 256, 256, 512)
    squares: int = Field(4, ge=1)
    """Squares of so many latent positions become one token of a frame."""
    attend_up_to: int = Field(32, ge=1)
    """Stages whose features are at most so high look at the context."""
    heads: int = Field(4, ge=1)
    dropout: float = Field(0.0, ge=0, lt=1)
    """In attention to the context, while learning; 0.1 as published."""

    @property
    def attending(self) -> dict[int, tuple[int, int]]:
        """Stages of the encoder that look at the context, with the height and width of their features."""
        found = {}
        for stage in range(len(self.channels)):
            halvings = min(stage + 1, len(self.channels) - 1)
            height, width = self.height // self.patch >> halvings, self.width // self.patch >> halvings
            if height <= self.attend_up_to:
                found[stage] = height, width
        return found

    @model_validator(mode="after")
    def _squares_fit(self) -> CompressiveTokenizerSettings:
        if self.grid[0] % self.squares or self.grid[1] % self.squares:
            raise ValueError(f"a grid of {self.grid[0]}x{self.grid[1]} has no squares of {self.squares}")
        return self

    @model_validator(mode="after")
    def _heads_divide_the_channels(self) -> CompressiveTokenizerSettings:
        for width in (*(self.channels[stage] for stage in self.attending), self.channels[-1]):  # the last: the decoder
            if width % self.heads:
                raise ValueError(f"{width} channels that look at the context are no multiple of heads = {self.heads}")
        return self


TokenizerSettings = Annotated[FrameTokenizerSettings | CompressiveTokenizerSettings, Field(discriminator="name")]


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

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed % (1 << 63))
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
        found: TokenizerSettings = TypeAdapter(TokenizerSettings).validate_python(data)
    except ValidationError as error:
        raise OneiroError(f"{folder / CONFIG} does not describe a video tokenizer; the folder is damaged") from error
    return found


def pixels(images: NDArray[np.uint8], device: torch.device | str = "cpu") -> Tensor:
    """Images [..., H, W, 3] of bytes -> frames [..., 3, H, W] in [0, 1]."""
    return torch.from_numpy(np.ascontiguousarray(images)).to(device).movedim(-1, -3).float().div_(255).contiguous()


def images(frames: Tensor) -> NDArray[np.uint8]:
    """Frames [..., 3, H, W] -> images [..., H, W, 3] of bytes."""
    whole = (frames.float().clamp(0, 1) * 255).round().to(torch.uint8).cpu().numpy()
    return np.ascontiguousarray(np.moveaxis(whole, -3, -1))
