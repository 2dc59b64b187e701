"""How predicted video is paid, and what LPIPS can look at; read without torch."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from oneiro.recipe import Settings

BETTER = {"mae": -1.0, "mse": -1.0, "lpips": -1.0, "psnr": 1.0, "ssim": 1.0}
"""Which way each measure counts in a reward."""
SMALLEST = {"alex": 31, "vgg": 16}
"""Pixels to a side below which a network of LPIPS has nothing left after its last pooling."""


class VideoRewardSettings(Settings):
    """A weighted sum over a segment's predicted frames. Weights are positive; errors count against, likeness for."""

    mae: float = Field(1.0, ge=0)
    """Weights of the measures, negative for errors and positive for similarity; at least one must be non-zero."""
    mse: float = Field(0.0, ge=0)
    """Weight of minus the mean squared error."""
    psnr: float = Field(0.0, ge=0)
    """Weight of PSNR."""
    ssim: float = Field(0.0, ge=0)
    """Weight of SSIM."""
    lpips: float = Field(1.0, ge=0)
    """Weight of minus LPIPS."""
    network: Literal["alex", "vgg"] = "vgg"
    """Whose features LPIPS compares; published: vgg."""
    repetition: float = Field(0.0, ge=0)
    """What a frame pays for being the one before it, token for token."""
    aggregate: Literal["mean", "last", "discount"] = "mean"
    """Frames count alike, only the last counts, or each counts `discount` times the one before."""
    discount: float = Field(0.9, gt=0, le=1)
    """Weight of a frame relative to the previous one."""
    truth: Literal["pixels", "reconstruction"] = "pixels"
    """Compare with the recorded frames, or with what the tokenizer could have made of them."""

    @model_validator(mode="after")
    def _something_counts(self) -> VideoRewardSettings:
        if not self.weights and not self.repetition:
            raise ValueError(f"nothing counts in the reward; give one of {', '.join(BETTER)} or repetition a weight")
        return self

    @property
    def weights(self) -> dict[str, float]:
        """The measures that count, with their signs."""
        return {name: sign * getattr(self, name) for name, sign in BETTER.items() if getattr(self, name)}

    def shares(self, frames: int) -> NDArray[np.float32]:
        """How much each frame counts, [F]; they sum to 1."""
        if self.aggregate == "last":
            return np.eye(frames, dtype=np.float32)[-1]
        raw = np.ones(frames) if self.aggregate == "mean" else self.discount ** np.arange(frames)
        return (raw / raw.sum()).astype(np.float32)


def too_small(network: str, height: int, width: int) -> str | None:
    """Why a network of LPIPS cannot look at frames of this size; None where it can."""
    least = SMALLEST[network]
    if min(height, width) >= least:
        return None
    others = [name for name, side in SMALLEST.items() if min(height, width) >= side]
    instead = f"take {' or '.join(others)}, or leave LPIPS out" if others else "leave LPIPS out"
    return (
        f"LPIPS with {network} needs frames of at least {least}x{least} pixels, these are {height}x{width}; {instead}"
    )
