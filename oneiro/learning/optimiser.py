"""AdamW with a schedule and a gradient clip; on a GPU, float32 master copies behind bfloat16 weights.

The weights the blocks compute with are the weights the engine samples with: one set, in the device's compute type.
Where that type is bfloat16 the optimiser keeps the float32 truth, so small updates are not rounded away.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from oneiro.recipe import Settings


class OptimiserSettings(Settings):
    lr: float = Field(1e-3, gt=0, le=1)
    betas: tuple[float, float] = (0.9, 0.95)
    weight_decay: float = Field(0.01, ge=0)
    clip: float = Field(1.0, gt=0)
    """Largest gradient norm."""
    schedule: Literal["constant", "cosine", "linear"] = "constant"
    warmup: float = Field(0.0, ge=0)
    """Steps of linear warm-up; below 1, a part of all steps. Parts of a step are rounded up."""
    final: float = Field(0.0, ge=0, le=1)
    """What a falling schedule ends at, as a part of `lr`."""


def learning_rate(settings: OptimiserSettings, step: int, steps: int) -> float:
    """The rate of update number `step` (from 0) out of `steps`; a pure function, so resuming needs no scheduler
    state.
    """
    # A hair above a whole step is that step: 0.07 * 100 is 7.000000000000001.
    warmup = math.ceil((settings.warmup if settings.warmup >= 1 else settings.warmup * steps) - 1e-9)
    if step < warmup:
        return settings.lr * (step + 1) / warmup
    if settings.schedule == "constant":
        return settings.lr
    done = min(1.0, (step - warmup) / max(1.0, steps - warmup))
    shape = 0.5 * (1 + math.cos(math.pi * done)) if settings.schedule == "cosine" else 1 - done
    return settings.lr * (settings.final + (1 - settings.final) * shape)


class Optimiser:
    """One AdamW over named parameters; matrices decay, norms and biases do not."""

    def __init__(self, parameters: list[tuple[str, nn.Parameter]], settings: OptimiserSettings) -> None:
        self.settings = settings
        self.names = [name for name, _ in parameters]
        self.parameters = [parameter for _, parameter in parameters]
        self.masters = [p if p.dtype == torch.float32 else nn.Parameter(p.detach().float()) for p in self.parameters]
        decayed = [m for m in self.masters if m.dim() > 1]
        plain = [m for m in self.masters if m.dim() <= 1]
        self.adam = torch.optim.AdamW(
            [{"params": decayed, "weight_decay": settings.weight_decay}, {"params": plain, "weight_decay": 0.0}],
            lr=settings.lr,
            betas=settings.betas,
            fused=True,
        )

    def step(self, lr: float) -> float:
        """Apply the gathered gradients and clear them; returns their norm. A gradient that is not finite is dropped."""
        for parameter, master in zip(self.parameters, self.masters, strict=True):
            if master is not parameter and parameter.grad is not None:
                master.grad = parameter.grad.float()
                parameter.grad = None
        norm = torch.nn.utils.clip_grad_norm_(self.masters, self.settings.clip)
        if torch.isfinite(norm):
            for group in self.adam.param_groups:
                group["lr"] = lr
            self.adam.step()
            with torch.no_grad():
                for parameter, master in zip(self.parameters, self.masters, strict=True):
                    if master is not parameter:
                        parameter.copy_(master)
        self.adam.zero_grad(set_to_none=True)
        return float(norm)

    def state(self) -> dict[str, Tensor]:
        """Everything a resumed run needs, by parameter name."""
        tensors: dict[str, Tensor] = {}
        for name, parameter, master in zip(self.names, self.parameters, self.masters, strict=True):
            for key, value in self.adam.state.get(master, {}).items():
                tensors[f"{name}/{key}"] = value
            if master is not parameter:
                tensors[f"{name}/master"] = master.detach()
        return tensors

    def restore(self, tensors: dict[str, Tensor]) -> None:
        for name, parameter, master in zip(self.names, self.parameters, self.masters, strict=True):
            prefix = f"{name}/"
            found = {key[len(prefix) :]: value for key, value in tensors.items() if key.startswith(prefix)}
            with torch.no_grad():
                if "master" in found:
                    master.copy_(found.pop("master"))
                    parameter.copy_(master)
            if found:
                # AdamW's own step counter stays on the CPU unless the kernel is fused; keep what it made itself.
                self.adam.state[master] = {key: value.to(master.device) for key, value in found.items()}
