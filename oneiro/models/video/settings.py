"""Settings of tokenizers and transformers of video; like those of language models, read without torch."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from oneiro.recipe import Settings
from oneiro.runtime.errors import nearest

SIZES = ("layers", "width", "heads", "mlp")
OVERLAYS = ("large", "published")
"""Names that shipped recipes give sizes to."""


class DiscriminatorSettings(Settings):
    """The defaults are the published size (6.27 M parameters): a map of 4x5 verdicts on 256x320 frames."""

    channels: tuple[int, ...] = Field((64, 128, 256, 512, 512, 512), min_length=1)
    """Of each convolution; each halves height and width as long as that leaves two positions to a side."""


class ConvolutionSettings(Settings):
    """Sizes both tokenizers have."""

    height: int = Field(64, ge=16)
    """SSIM, one of the fixed measures, looks at 11 pixels at once."""
    width: int = Field(64, ge=16)
    """Channels of the widest resolution."""
    patch: int = Field(1, ge=1)
    """Squares of so many pixels become channels at once; 1 as published, more is faster and coarser."""
    channels: tuple[int, ...] = (128, 256, 256, 512, 768)
    """Of each stage; between two stages height and width are halved."""
    layers: int = Field(2, ge=1)
    """Residual blocks in a stage of an encoder."""
    latent: int = Field(64, ge=1)
    """Channels of a code before it is quantised."""
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
    """Attention heads between context and later frames."""
    dropout: float = Field(0.0, ge=0, lt=1)
    """In attention to the context, while learning; 0.1 as published."""

    @property
    def attending(self) -> dict[int, tuple[int, int]]:
        """Stages of the encoder that look at the context, with the height and width of their features."""
        sizes = {}
        for stage in range(len(self.channels)):
            halvings = min(stage + 1, len(self.channels) - 1)
            height, width = self.height // self.patch >> halvings, self.width // self.patch >> halvings
            if height <= self.attend_up_to:
                sizes[stage] = height, width
        return sizes

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


class TransformerSettings(Settings):
    """Its size. With 12 layers of 768 it is the published one: 120 M or 127 M parameters, as the layout needs."""

    name: str = "small"
    """A label, by which a recipe's `models` section can give it other surroundings; any but `small` brings sizes."""
    layers: int = Field(4, ge=1)
    """Blocks."""
    width: int = Field(128, ge=8)
    """Hidden size."""
    heads: int = Field(4, ge=1)
    """Attention heads."""
    mlp: int = Field(384, ge=8)
    """Width of the feed-forward part."""
    tied: bool = False
    """One table for reading and predicting tokens; published: two."""

    @model_validator(mode="after")
    def _sizes_are_of_the_name(self) -> TransformerSettings:
        """A name that nothing gave sizes to would otherwise be the small model under another label."""
        if self.name != "small" and not self.model_fields_set.issuperset(SIZES):
            known = nearest(self.name, ("small", *OVERLAYS))
            raise ValueError(f"a model '{self.name}' needs sizes of its own, {', '.join(SIZES)}{known}")
        return self

    @model_validator(mode="after")
    def _heads_divide_the_width(self) -> TransformerSettings:
        if self.width % (2 * self.heads):
            raise ValueError(f"width {self.width} must be a multiple of 2 x heads = {2 * self.heads}")
        return self
