"""The small operations around a layer's matrix products, forward and backward, each in as few passes as it can be.

Plain torch here; on a GPU with Triton the same names come from `triton_elementwise`. `on(device)` chooses. None of them
is known to autograd: the halves of a layer in `layer` know their own gradients.
"""

from __future__ import annotations

import sys
from types import ModuleType

import torch
import torch.nn.functional as F
from torch import Tensor

from oneiro.models.kernels import triton_module


def on(device_type: str) -> ModuleType:
    """The module whose functions, named as those below, suit a device."""
    return triton_module("oneiro.models.kernels.elementwise", device_type) or sys.modules[__name__]


def norm(x: Tensor, weight: Tensor, epsilon: float) -> Tensor:
    """RMS norm over the last dimension."""
    return F.rms_norm(x, x.shape[-1:], weight, epsilon)


def normed_linear(x: Tensor, weight: Tensor, epsilon: float, linear: Tensor, bias: Tensor | None) -> Tensor:
    """RMS norm and a product: [..., d] -> [..., n], `linear` is [n, d]."""
    return F.linear(norm(x, weight, epsilon), linear, bias)


def normed_gate(x: Tensor, weight: Tensor, epsilon: float, gate_up: Tensor) -> Tensor:
    """RMS norm, a product and `gate`: [N, d] -> [N, m], `gate_up` is [2m, d]."""
    return gate(norm(x, weight, epsilon) @ gate_up.T)


def norm_backward(grad: Tensor, x: Tensor, weight: Tensor, epsilon: float, add: Tensor | None) -> tuple[Tensor, Tensor]:
    """Of the RMS norm of x [N, d]: (gradient by x, plus `add`; gradient by weight [d])."""
    scale = torch.linalg.vecdot(x, x).div_(x.shape[1]).add_(epsilon).rsqrt_()[:, None]
    unit = x * scale
    by_weight = (grad * unit).sum(0)
    by_unit = grad * weight
    along = torch.linalg.vecdot(by_unit, unit).div_(x.shape[1])[:, None]
    by_x = by_unit.sub_(unit.mul_(along)).mul_(scale)
    return (by_x if add is None else by_x.add_(add)), by_weight


def turn_(x: Tensor, cos: Tensor, sin: Tensor, back: bool = False) -> None:
    """Rotate heads [B, T, H, D] in place by tables [(B,) T, 1, D/2]; `back` undoes it, which is also its gradient."""
    left, right = x.chunk(2, dim=-1)
    sign = -1 if back else 1
    turned = (left * cos).addcmul_(right, sin, value=-sign)
    right.mul_(cos).addcmul_(left, sin, value=sign)
    left.copy_(turned)


def gate(both: Tensor) -> Tensor:
    """[N, 2m] -> silu(left half) * right half [N, m]."""
    left, right = both.chunk(2, dim=-1)
    return F.silu(left).mul_(right)


def gate_backward(grad: Tensor, both: Tensor) -> tuple[Tensor, Tensor]:
    """Of `gate`: (gradient by both halves [N, 2m], the gate's own result [N, m] computed again)."""
    left, right = both.chunk(2, dim=-1)
    by_both = torch.empty_like(both)
    by_left, by_right = by_both.chunk(2, dim=-1)
    result = F.silu(left)
    torch.mul(grad, result, out=by_right)
    torch.ops.aten.silu_backward.grad_input(grad * right, left, grad_input=by_left)
    return by_both, result.mul_(right)
