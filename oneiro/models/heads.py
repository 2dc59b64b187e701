"""Heads on a backbone's hidden states: the vocabulary, a value, an outcome."""

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


class OutcomeHead(nn.Module):
    """WebRL's critic: the probability that the task will be done, the smaller of what two networks say.

    Each network has three layers from a hidden state to the logits of failure and success.
    """

    def __init__(self, width: int, seed: int, device: torch.device | str = "cpu") -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed % (1 << 63))
        self.networks = nn.ModuleList(_outcome_network(width, generator) for _ in range(2)).to(device)

    def logits(self, hidden: Tensor) -> Tensor:
        """[N, d] -> [2, N, 2]"""
        return torch.stack([network(hidden.float()) for network in self.networks])

    def smaller(self, logits: Tensor) -> Tensor:
        """[2, N, 2] -> [N]: a state is worth no more than the more doubtful network says."""
        return logits.softmax(-1)[..., 1].amin(0)

    def forward(self, hidden: Tensor) -> Tensor:
        """[N, d] -> [N]"""
        return self.smaller(self.logits(hidden))


def _outcome_network(width: int, generator: torch.Generator) -> nn.Sequential:
    layers = [nn.utils.skip_init(nn.Linear, width, size) for size in (width, width, 2)]
    with torch.no_grad():
        for layer in layers:
            layer.weight.normal_(0.0, width**-0.5, generator=generator)  # the release's 0.2 saturates large models
            layer.bias.zero_()
    first, second, last = layers
    return nn.Sequential(first, nn.ReLU(), second, nn.ReLU(), last)
