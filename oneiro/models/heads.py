"""Heads on a backbone's hidden states: the vocabulary, and a value."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn


@dataclass(frozen=True, slots=True)
class OutputHead:
    """From hidden states to logits."""

    weight: Tensor
    """[V, d]"""
    bias: Tensor | None = None
    """[V]"""
    softcap: float | None = None
    """Logits are squeezed into +-softcap by a tanh."""

    def logits(self, hidden: Tensor) -> Tensor:
        """[N, d] -> [N, V]"""
        logits = hidden @ self.weight.T
        self.finish_(logits)
        return logits

    def finish_(self, product: Tensor) -> Tensor | None:
        """Turn hidden states times weights [N, V] into logits, in place; returns the slope of a cap, or None."""
        if self.bias is not None:
            product += self.bias
        if self.softcap is None:
            return None
        product.div_(self.softcap).tanh_()
        slope = 1 - product.square()
        product.mul_(self.softcap)
        return slope


class ValueHead(nn.Module):
    """A scalar per hidden state: the expected return from there. Starts at 0, so early advantages are plain returns."""

    def __init__(self, width: int, device: torch.device | str = "cpu") -> None:
        super().__init__()
        self.linear = nn.utils.skip_init(nn.Linear, width, 1, device=device)
        nn.init.zeros_(self.linear.weight)
        nn.init.zeros_(self.linear.bias)

    def forward(self, hidden: Tensor) -> Tensor:
        """[N, d] -> [N]"""
        return self.linear(hidden.float())[:, 0]
