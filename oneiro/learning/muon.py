"""Muon (Jordan et al. 2024, scaled as in arXiv 2502.16982): momentum whose directions are all made equally long.

The arithmetic is torch.optim.Muon's. Two things differ: on a CPU it stays in float32, because processors without
bfloat16 instructions compute torch's version by a slow detour, and matrices of one shape are done in one product.
"""

from __future__ import annotations

import math
from collections import defaultdict
from typing import Any

import torch
from torch import Tensor, nn

COEFFICIENTS = (3.4445, -4.7750, 2.0315)
"""Of the quintic Newton-Schulz iteration: steep at zero, so that five rounds are enough."""
ROUNDS = 5


class Muon(torch.optim.Optimizer):
    """For matrices only; `lr` fits where AdamW's does, because an update is as large as one of AdamW's."""

    def __init__(self, matrices: list[nn.Parameter], lr: float, weight_decay: float, momentum: float) -> None:
        super().__init__(matrices, {"lr": lr, "weight_decay": weight_decay, "momentum": momentum})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            updates: dict[torch.Size, list[tuple[nn.Parameter, Tensor]]] = defaultdict(list)
            for matrix in group["params"]:
                if matrix.grad is None:
                    continue
                state = self.state[matrix]
                if not state:
                    state["momentum_buffer"] = torch.zeros_like(matrix)
                state["momentum_buffer"].lerp_(matrix.grad, 1 - group["momentum"])
                ahead = matrix.grad.lerp(state["momentum_buffer"], group["momentum"])  # Nesterov's
                updates[matrix.shape].append((matrix, ahead))
            for shape, alike in updates.items():
                directions = orthogonal(torch.stack([update for _, update in alike]))
                scale = 0.2 * math.sqrt(max(shape))  # an AdamW update has a root mean square of about 0.2
                for (matrix, _), direction in zip(alike, directions, strict=True):
                    matrix.mul_(1 - group["lr"] * group["weight_decay"])
                    matrix.add_(direction.to(matrix.dtype), alpha=-group["lr"] * scale)


def orthogonal(matrices: Tensor) -> Tensor:
    """[n, rows, columns] -> the same with every singular value near 1 (0.7 to 1.2)."""
    tall = matrices.shape[1] > matrices.shape[2]
    wide = matrices.mT if tall else matrices
    wide = wide.bfloat16() if wide.is_cuda else wide
    wide = wide / wide.norm(dim=(1, 2), keepdim=True).clamp(min=1e-7)  # no singular value above 1
    a, b, c = COEFFICIENTS
    for _ in range(ROUNDS):
        gram = wide @ wide.mT
        wide = torch.baddbmm(wide, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), wide, beta=a)
    return wide.mT if tall else wide
