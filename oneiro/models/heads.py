"""Small heads on a backbone's hidden states."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class ValueHead(nn.Module):
    """A scalar per hidden state: the expected return from there. Starts at 0, so early advantages are plain returns."""

    def __init__(self, width: int, device: torch.device | str = "cpu") -> None:
        super().__init__()
        self.linear = nn.Linear(width, 1, device=device)
        nn.init.zeros_(self.linear.weight)
        nn.init.zeros_(self.linear.bias)

    def forward(self, hidden: Tensor) -> Tensor:
        """[N, d] -> [N]"""
        return self.linear(hidden.float())[:, 0]
