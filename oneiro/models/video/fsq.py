"""Finite scalar quantisation (arXiv 2309.15505): a code is a short vector whose every entry is rounded to a few levels.

There is no codebook to learn and no commitment loss. A code's index counts its entries like digits, the first entry
being the lowest digit, so indices and codes turn into each other by arithmetic.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import torch
from torch import Tensor, nn

EPSILON = 1e-3
"""Keeps the outermost levels reachable: tanh never arrives at 1."""


class Fsq(nn.Module):
    """Rounds the last dimension of a tensor, one entry for each of `levels`."""

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
