"""AdamW or Muon with a schedule and a gradient clip; on a GPU, float32 master copies behind bfloat16 weights.

The weights the blocks compute with are the weights the engine samples with: one set, in the device's compute type.
Where that type is bfloat16 the optimiser keeps the float32 truth, so small updates are not rounded away.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from oneiro.learning.finite import NotFiniteError
from oneiro.learning.settings import OptimiserSettings
from oneiro.models.quantise import bitsandbytes
from oneiro.runtime.errors import OneiroError


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
    """Optimiser of named parameters; matrices decay, norms and biases do not.

    `hidden` names the matrices inside the layers, which Muon takes.
    """

    def __init__(
        self, parameters: list[tuple[str, nn.Parameter]], settings: OptimiserSettings, hidden: Collection[str] = ()
    ) -> None:
        self.settings = settings
        self.names = [name for name, _ in parameters]
        self.parameters = [parameter for _, parameter in parameters]
        self.masters = [p if p.dtype == torch.float32 else nn.Parameter(p.detach().float()) for p in self.parameters]
        self.parts: list[Any] = []
        self.applied = 0
        """How often `step` has changed weights: not where a step of RL had nothing to learn from."""
        self.changed: Tensor | None = None
        """Part of the rounded weights that the last update really changed; None where no weight is rounded."""
        others = self.masters
        if settings.name == "muon":
            inside = [name in hidden for name in self.names]
            matrices = [m for m, chosen in zip(self.masters, inside, strict=True) if chosen]
            others = [m for m, chosen in zip(self.masters, inside, strict=True) if not chosen]
            if not hidden:
                raise OneiroError("optimiser 'muon' is for the layers of a language model; use adamw here")
            if matrices:
                self.parts.append(Muon(matrices, settings.lr, settings.weight_decay, settings.betas[1]))
        if others:
            self.parts.append(adamw(others, settings))

    @property
    def shapes(self) -> dict[str, torch.Size]:
        """Of all parameters, by name."""
        return {name: parameter.shape for name, parameter in zip(self.names, self.parameters, strict=True)}

    def step(self, lr: float) -> float:
        """Apply the gathered gradients and clear them; returns their norm. One that is not finite changes nothing and
        raises.
        """
        for parameter, master in zip(self.parameters, self.masters, strict=True):
            if master is not parameter and parameter.grad is not None:
                master.grad = parameter.grad.float()
                parameter.grad = None
        self.apply(lr, norm := self.norm())
        return float(norm)

    def norm(self) -> Tensor:
        """Of the gradients of the masters."""
        return torch.nn.utils.get_total_norm([master.grad for master in self.masters if master.grad is not None])

    def apply(self, lr: float, norm: Tensor) -> None:
        """Change the weights by the gradients of the masters, clipped as their norm asks for."""
        torch.nn.utils.clip_grads_with_norm_(self.masters, self.settings.clip, norm)
        if not torch.isfinite(norm):
            self.zero_grad()
            raise NotFiniteError(f"the norm of the gradient is {float(norm)}")
        for part in self.parts:
            for group in part.param_groups:
                group["lr"] = lr
            part.step()
        self.applied += 1
        self.changed = self.round_masters()
        self.zero_grad()

    @torch.no_grad()
    def round_masters(self) -> Tensor | None:
        """The masters into the weights that compute, in their type; returns the part of those that changed."""
        changed, count = None, 0
        for parameter, master in zip(self.parameters, self.masters, strict=True):
            if master is not parameter:
                rounded = master.to(parameter.dtype)
                differs = (rounded != parameter).sum()
                changed, count = differs if changed is None else changed + differs, count + parameter.numel()
                parameter.copy_(rounded)
        return None if changed is None else changed / count

    def adopt(self, masters: Mapping[str, Tensor]) -> None:
        """Start from the float32 weights that an earlier stage kept behind these. One that does not round to the weight
        that is here belongs to other weights, such as the best ones of a stage that ended later.
        """
        with torch.no_grad():
            for name, parameter, master in zip(self.names, self.parameters, self.masters, strict=True):
                saved = masters.get(name)
                if saved is None or master is parameter or saved.shape != parameter.shape:
                    continue
                saved = saved.to(parameter.device)
                if torch.equal(saved.to(parameter.dtype), parameter):
                    master.copy_(saved)

    def zero_grad(self) -> None:
        for part in self.parts:
            part.zero_grad(set_to_none=True)

    def state(self) -> dict[str, Tensor]:
        """Everything a resumed run needs, by parameter name."""
        tensors: dict[str, Tensor] = {}
        for name, parameter, master in zip(self.names, self.parameters, self.masters, strict=True):
            for part in self.parts:
                for key, value in part.state.get(master, {}).items():
                    tensors[f"{name}/{key}"] = torch.as_tensor(value)  # bitsandbytes counts steps in a plain number
            if master is not parameter:
                tensors[f"{name}/master"] = master.detach()
        return tensors

    def restore(self, tensors: dict[str, Tensor]) -> None:
        owners = {id(p): part for part in self.parts for group in part.param_groups for p in group["params"]}
        for name, parameter, master in zip(self.names, self.parameters, self.masters, strict=True):
            prefix = f"{name}/"
            saved = {key[len(prefix) :]: value for key, value in tensors.items() if key.startswith(prefix)}
            with torch.no_grad():
                if "master" in saved:
                    master.copy_(saved.pop("master"))
                    parameter.copy_(master)
            if not saved:
                continue
            part = owners[id(master)]
            if isinstance(part, torch.optim.AdamW | Muon):
                # AdamW's own step counter stays on the CPU unless the kernel is fused; keep what it made itself.
                part.state[master] = {key: value.to(master.device) for key, value in saved.items()}
            else:
                restore_quantised(part, master, saved)


def adamw(parameters: list[nn.Parameter], settings: OptimiserSettings) -> Any:
    """AdamW, or one of its relatives in bitsandbytes."""
    groups = [
        {"params": [p for p in parameters if p.dim() > 1], "weight_decay": settings.weight_decay},
        {"params": [p for p in parameters if p.dim() <= 1], "weight_decay": 0.0},
    ]
    if settings.name in ("adamw", "muon"):
        return torch.optim.AdamW(groups, lr=settings.lr, betas=settings.betas, fused=True)
    if parameters[0].device.type != "cuda":
        raise OneiroError(f"optimiser '{settings.name}' needs a GPU; use adamw here")
    optimisers = bitsandbytes(f"optimiser '{settings.name}'").optim
    kind = optimisers.AdamW8bit if settings.name == "adamw-8bit" else optimisers.PagedAdamW
    return kind([group for group in groups if group["params"]], lr=settings.lr, betas=settings.betas)


def restore_quantised(part: Any, parameter: nn.Parameter, saved: dict[str, Tensor]) -> None:
    """bitsandbytes' state: made by itself, since it may lie in paged memory, and then filled."""
    for g, group in enumerate(part.param_groups):
        for p, known in enumerate(group["params"]):
            if known is parameter:
                part.init_state(group, parameter, g, p)
    state = part.state[parameter]
    for key, value in saved.items():
        if isinstance(state.get(key), Tensor):
            state[key].copy_(value)
        else:
            state[key] = int(value)


COEFFICIENTS = (3.4445, -4.7750, 2.0315)
"""Of the quintic Newton-Schulz iteration: steep at zero, so that five rounds are enough."""
ROUNDS = 5


class Muon(torch.optim.Optimizer):
    """Muon (Jordan et al. 2024, scaled as in arXiv 2502.16982): momentum whose directions are all made equally long.

    For matrices only; `lr` fits where AdamW's does, because an update is as large as one of AdamW's. The arithmetic is
    torch.optim.Muon's. Two things differ: on a CPU it stays in float32, because processors without bfloat16
    instructions compute torch's version by a slow detour, and matrices of one shape are done in one product.
    """

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
