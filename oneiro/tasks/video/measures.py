"""How close predicted frames are to the true ones: the fixed measures of every video table.

Images are float tensors `[..., 3, H, W]` in [0, 1]; every measure keeps the leading dimensions, one number a frame.
Lower is better for `mse`, `mae` and `lpips`, higher for `psnr` and `ssim`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn.functional import conv2d

from oneiro.models.video.perceptual import Lpips
from oneiro.tasks.video.recipe import SMALLEST as SMALLEST
from oneiro.tasks.video.recipe import too_small as too_small

MOVED = 0.05
"""Change of a channel, of 1, from which a pixel counts as moved: above the noise of recorded video."""
EPSILON = 1e-8
"""Added to the squared error before the logarithm: identical frames have a PSNR of 80 dB, not infinity."""
WINDOW, SIGMA = 11, 1.5
"""SSIM's Gaussian window (Wang et al. 2004)."""
STABLE = (0.01**2, 0.03**2)
"""SSIM's two constants for images of range 1."""
CHUNK = 64
"""Pairs of frames that LPIPS sees at once: bounds memory, costs no speed."""


def mse(predicted: Tensor, truth: Tensor) -> Tensor:
    """Mean squared error of each frame."""
    return (predicted - truth).square().mean(dim=(-3, -2, -1))


def moving_mse(predicted: Tensor, truth: Tensor, last: Tensor) -> Tensor:
    """Mean squared error of each frame where the truth differs visibly from the last given frame; 0 where it nowhere
    does. Most of a robot's picture stands still, and there copying is right.
    """
    moves = ((truth - last).abs().amax(dim=-3) > MOVED).to(predicted.dtype)
    errors = (predicted - truth).square().mean(dim=-3)
    return (errors * moves).sum(dim=(-2, -1)) / moves.sum(dim=(-2, -1)).clamp(min=1)


def mae(predicted: Tensor, truth: Tensor) -> Tensor:
    """Mean absolute error of each frame."""
    return (predicted - truth).abs().mean(dim=(-3, -2, -1))


def psnr(predicted: Tensor, truth: Tensor) -> Tensor:
    """Peak signal-to-noise ratio of each frame in dB, for a peak of 1."""
    return -10 * torch.log10(mse(predicted, truth) + EPSILON)


def ssim(predicted: Tensor, truth: Tensor) -> Tensor:
    """Structural similarity of each frame: per channel over every full window, then averaged."""
    *leading, channels, height, width = predicted.shape
    if min(height, width) < WINDOW:
        raise ValueError(f"SSIM's window is {WINDOW} pixels wide, the frames are {height}x{width}")
    count = math.prod([*leading, channels])
    x, y = (image.reshape(count, 1, height, width).float() for image in (predicted, truth.expand_as(predicted)))
    moments = _blur(torch.cat([x, y, x * x, y * y, x * y])).view(5, count, -1)
    mean_x, mean_y = moments[0], moments[1]
    variance_x, variance_y = moments[2] - mean_x.square(), moments[3] - mean_y.square()
    covariance = moments[4] - mean_x * mean_y
    luminance = (2 * mean_x * mean_y + STABLE[0]) / (mean_x.square() + mean_y.square() + STABLE[0])
    structure = (2 * covariance + STABLE[1]) / (variance_x + variance_y + STABLE[1])
    return (luminance * structure).view(*leading, -1).mean(dim=-1)


def lpips(predicted: Tensor, truth: Tensor, network: Lpips) -> Tensor:
    """Perceptual distance of each frame."""
    leading, image = predicted.shape[:-3], predicted.shape[-3:]
    a, b = predicted.reshape(-1, *image), truth.expand_as(predicted).reshape(-1, *image)
    pairs = zip(a.split(CHUNK), b.split(CHUNK), strict=True)
    return torch.cat([network(x, y) for x, y in pairs]).view(leading)


def measure(predicted: Tensor, truth: Tensor, networks: Mapping[str, Lpips] | None = None) -> dict[str, Tensor]:
    """Every measure of each frame; `networks` maps the name of an LPIPS column to its network."""
    measured = {
        "mse": mse(predicted, truth),
        "mae": mae(predicted, truth),
        "psnr": psnr(predicted, truth),
        "ssim": ssim(predicted, truth),
    }
    return measured | {name: lpips(predicted, truth, network) for name, network in (networks or {}).items()}


def _blur(images: Tensor) -> Tensor:
    """Gaussian means over every full window of `[N, 1, H, W]`; the window is a product, so two thin passes do."""
    offsets = torch.arange(WINDOW, device=images.device, dtype=images.dtype) - WINDOW // 2
    weights = torch.exp(-offsets.square() / (2 * SIGMA**2))
    weights = weights / weights.sum()
    return conv2d(conv2d(images, weights.view(1, 1, 1, -1)), weights.view(1, 1, -1, 1))
