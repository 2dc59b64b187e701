"""Tells made frames from true ones, patch by patch; only the tokenizers' training needs it."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrizations import spectral_norm

from oneiro.models.video.settings import DiscriminatorSettings


class Discriminator(nn.Module):
    """Strided convolutions with spectral norm; instance norm after all but the first.

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
