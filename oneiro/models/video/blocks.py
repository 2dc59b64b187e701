"""What the video tokenizers are built of: convolutional residual blocks, and attention over a frame's positions."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from math import gcd
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.parametrizations import spectral_norm

from oneiro.models.video.settings import DiscriminatorSettings

GROUPS = 32
EPSILON = 1e-6
ARM = platform.machine() in ("aarch64", "arm64")


def norm(channels: int) -> nn.GroupNorm:
    """Group norm with 32 groups, or as many as divide the channels of a small model."""
    return nn.GroupNorm(gcd(GROUPS, channels), channels, eps=EPSILON)


class Residual(nn.Module):
    """[N, a, H, W] -> [N, b, H, W]: twice normalise, SiLU, 3x3 convolution, added to the input."""

    def __init__(self, channels: int, out: int) -> None:
        super().__init__()
        self.norm1, self.conv1 = norm(channels), nn.Conv2d(channels, out, 3, padding=1)
        self.norm2, self.conv2 = norm(out), nn.Conv2d(out, out, 3, padding=1)
        self.shortcut = nn.Conv2d(channels, out, 1) if channels != out else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.conv1(F.silu(self.norm1(x)))
        hidden = self.conv2(F.silu(self.norm2(hidden)))
        return self.shortcut(x) + hidden


class Down(nn.Module):
    """Halve height and width by a strided convolution."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, stride=2)

    def forward(self, x: Tensor) -> Tensor:
        return self.conv(F.pad(x, (0, 1, 0, 1)))


class Up(nn.Module):
    """Double height and width: repeat pixels, then convolve."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return self.conv(F.interpolate(x, scale_factor=2.0, mode="nearest"))


class SelfAttention(nn.Module):
    """Every position of a frame looks at all of them; one head, added to the input."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm = norm(channels)
        self.query, self.key, self.value = (nn.Linear(channels, channels) for _ in range(3))
        self.out = nn.Linear(channels, channels)

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.norm(x).flatten(2).transpose(1, 2)
        mixed = F.scaled_dot_product_attention(
            self.query(tokens)[:, None], self.key(tokens)[:, None], self.value(tokens)[:, None]
        )
        return x + self.out(mixed[:, 0]).transpose(1, 2).view_as(x)


class CrossAttention(nn.Module):
    """Frames look at their context: SiLU(frame + attention), queries from the frame, keys and values from the context.

    Both have the same number of positions, and a learned place for each that starts at 0.
    """

    def __init__(self, channels: int, positions: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.norm, self.context_norm = norm(channels), norm(channels)
        self.place = nn.Parameter(torch.zeros(positions, channels))
        self.context_place = nn.Parameter(torch.zeros(positions, channels))
        self.query, self.key, self.value = (nn.Linear(channels, channels) for _ in range(3))
        self.out = nn.Linear(channels, channels)

    def forward(self, frames: Tensor, context: Tensor) -> Tensor:
        """Frames [N * T, C, H, W], the T of one context standing together, and contexts [N, C, H, W]."""
        contexts, channels = context.shape[:2]
        queries = self.norm(frames).flatten(2).transpose(1, 2) + self.place
        known = self.context_norm(context).flatten(2).transpose(1, 2) + self.context_place
        # The frames of one context are one long row of queries: its keys and values are never repeated.
        query = self._split(self.query(queries).reshape(contexts, -1, channels))
        key, value = self._split(self.key(known)), self._split(self.value(known))
        rate = self.dropout if self.training else 0.0
        mixed = F.scaled_dot_product_attention(query, key, value, dropout_p=rate)
        attended = F.dropout(self.out(mixed.transpose(1, 2).flatten(2)), rate)
        return F.silu(frames + attended.reshape(len(frames), -1, channels).transpose(1, 2).view_as(frames))

    def _split(self, x: Tensor) -> Tensor:
        """[N, L, C] -> [N, heads, L, C / heads]."""
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)


class Middle(nn.Module):
    """Residual, attention if wanted, residual."""

    def __init__(self, channels: int, attention: bool) -> None:
        super().__init__()
        self.first, self.last = Residual(channels, channels), Residual(channels, channels)
        self.attention = SelfAttention(channels) if attention else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.attention(self.first(x)))


class Encoder(nn.Module):
    """Frames [N, 3, H, W] around 0 -> [N, latent, H/f, W/f].

    A stage is `layers` residual blocks and, except for the last, a halving. `patch` folds squares of pixels into
    channels first: a cheap start for small models. With `cross`, a stage that ends no higher than `attend_up_to` looks
    at the features a context's encoder had there.
    """

    def __init__(
        self,
        channels: Sequence[int],
        layers: int,
        latent: int,
        attention: bool,
        patch: int = 1,
        cross: dict[int, CrossAttention] | None = None,
    ) -> None:
        super().__init__()
        self.patch = patch
        self.start = nn.Conv2d(3 * patch * patch, channels[0], 3, padding=1)
        self.stages = nn.ModuleList()
        before = channels[0]
        for place, width in enumerate(channels):
            blocks: list[nn.Module] = [Residual(before if k == 0 else width, width) for k in range(layers)]
            if place < len(channels) - 1:
                blocks.append(Down(width))
            self.stages.append(nn.Sequential(*blocks))
            before = width
        self.cross = nn.ModuleDict({str(stage): block for stage, block in (cross or {}).items()})
        self.middle = Middle(before, attention)
        self.norm, self.out = norm(before), nn.Conv2d(before, latent, 3, padding=1)

    def forward(self, frames: Tensor, context: Sequence[Tensor] | None = None) -> tuple[Tensor, list[Tensor]]:
        """The latent, and the features after every stage; `context` are those features of the context."""
        hidden = self.start(F.pixel_unshuffle(frames, self.patch))
        features = []
        for place, stage in enumerate(self.stages):
            hidden = stage(hidden)
            if context is not None and str(place) in self.cross:
                hidden = self.cross[str(place)](hidden, context[place])
            features.append(hidden)
        return self.out(F.silu(self.norm(self.middle(hidden)))), features


class Decoder(nn.Module):
    """[N, latent, h, w] -> frames [N, 3, H, W] around 0, not clamped.

    `stages` gives each stage's channels and whether it doubles height and width. With `cross`, the middle's result
    looks at what the context's decoder had there.
    """

    def __init__(
        self,
        start: int,
        stages: Sequence[tuple[int, bool]],
        layers: int,
        latent: int,
        attention: bool,
        patch: int = 1,
        cross: CrossAttention | None = None,
    ) -> None:
        super().__init__()
        self.patch = patch
        self.start = nn.Conv2d(latent, start, 3, padding=1)
        self.middle = Middle(start, attention)
        self.cross = cross
        self.stages = nn.ModuleList()
        before = start
        for width, doubles in stages:
            blocks: list[nn.Module] = [Residual(before if k == 0 else width, width) for k in range(layers)]
            self.stages.append(nn.Sequential(*blocks, *([Up(width)] if doubles else [])))
            before = width
        self.norm, self.out = norm(before), nn.Conv2d(before, 3 * patch * patch, 3, padding=1)
        # The first frames it makes are the bare mean_frame: noise would have to be unlearned first.
        nn.init.zeros_(self.out.weight)
        nn.init.zeros_(self.out.bias)  # type: ignore[arg-type]

    def forward(self, latent: Tensor, context: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Frames, and the features after the middle; `context` are those of the context."""
        middle = self.middle(self.start(latent))
        hidden = self.cross(middle, context) if self.cross is not None and context is not None else middle
        for stage in self.stages:
            hidden = stage(hidden)
        return F.pixel_shuffle(self.out(F.silu(self.norm(hidden))), self.patch), middle


def backward(loss: Tensor) -> None:
    """`loss.backward()` for convolutions. On ARM processors oneDNN is quick forwards, but backwards torch's own
    kernels take less than half its time.
    """
    if not ARM:
        loss.backward()
        return
    onednn: Any = torch.backends.mkldnn
    before, onednn.enabled = onednn.enabled, False
    try:
        loss.backward()
    finally:
        onednn.enabled = before


class Discriminator(nn.Module):
    """Tells made frames from true ones, patch by patch; only the tokenizers' training needs it.

    Strided convolutions with spectral norm; instance norm after all but the first.

    `size` is the shorter side of a frame: a map of one position would be its own mean, and instance norm would leave
    nothing of it.
    """

    def __init__(self, settings: DiscriminatorSettings, size: int) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        before = 3
        for place, width in enumerate(settings.channels):
            stride = 2 if size > 2 else 1
            layers.append(spectral_norm(nn.Conv2d(before, width, 3, stride=stride, padding=1)))
            if place:
                layers.append(nn.InstanceNorm2d(width))
            layers.append(nn.LeakyReLU(0.2))
            before, size = width, -(-size // stride)
        self.layers = nn.Sequential(*layers, nn.Conv2d(before, 1, 1))

    def forward(self, frames: Tensor) -> Tensor:
        """Frames [N, 3, H, W] in [0, 1] -> one logit for each patch [N, 1, h, w]; large means true."""
        return self.layers(2 * frames - 1)


def hinge(true: Tensor, made: Tensor) -> Tensor:
    """The discriminator's loss on its logits."""
    return (torch.relu(1 - true) + torch.relu(1 + made)).mean()


def gradient_penalty(discriminator: Discriminator, true: Tensor) -> Tensor:
    """Mean of (|gradient of the verdict at true frames| - 1)^2, a gradient for each frame."""
    true = true.detach().requires_grad_()
    (slope,) = torch.autograd.grad(discriminator(true).sum(), true, create_graph=True)
    return (slope.flatten(1).norm(dim=1) - 1).square().mean()
