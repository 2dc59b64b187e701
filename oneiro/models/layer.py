"""The two halves of a Llama layer, before and after attention, with gradients written out.

Autograd would keep every intermediate of a layer and walk it operation by operation. Here each half is one operation
that keeps only what is dear to compute again; norms and gates are recomputed. Attention stands between the halves, and
belongs to the attention plan.

The small operations between the matrix products take as few passes as they can: plain torch here; on a GPU with Triton
the same names come from `kernels.elementwise`, and `on(device)` chooses. Autograd does not know them.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from oneiro.models.kernels import triton_module


def on(device_type: str) -> ModuleType:
    """The module whose `norm`, `norm_backward`, `turn_`, `gate` and `gate_backward` suit a device."""
    return triton_module("oneiro.models.kernels.elementwise", device_type) or sys.modules[__name__]


def normalise(x: Tensor, weight: Tensor, epsilon: float) -> Tensor:
    """RMS norm over the last dimension, by the fused kernel."""
    return F.rms_norm(x, x.shape[-1:], weight, epsilon)


norm = normalise  # as the kernels call it


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


Norms = tuple[Tensor, Tensor] | None
Rotations = tuple[Tensor, Tensor] | None


def split_heads(
    qkv: Tensor, norms: Norms, rotations: Rotations, heads: tuple[int, int, int], epsilon: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Fused projections [B, T, (H + 2K) D] into normalised, rotated queries [B, H, T, D], keys and values."""
    own, shared, dim = heads
    query, key, value = qkv.unflatten(-1, (own + 2 * shared, dim)).split([own, shared, shared], dim=2)
    if norms is not None:
        query, key = normalise(query, norms[0], epsilon), normalise(key, norms[1], epsilon)
    if rotations is not None:
        query, key = rotate(query, *rotations), rotate(key, *rotations)
    return query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary positions on [B, T, H, D] with tables [(B,) T, 1, D/2]."""
    left, right = x.chunk(2, dim=-1)
    return torch.cat([left * cos - right * sin, right * cos + left * sin], dim=-1)


class _BeforeAttention(torch.autograd.Function):
    """hidden [B, T, d] -> queries, keys and values in one tensor [B, T, H + 2K, D], the first two rotated."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        norm: Tensor,
        epsilon: float,
        weight: Tensor,
        bias: Tensor | None,
        rotations: Rotations,
        heads: tuple[int, int, int],
    ) -> Tensor:
        own, shared, dim = heads
        operations = on(hidden.device.type)
        qkv = F.linear(operations.norm(hidden, norm, epsilon), weight, bias).unflatten(-1, (own + 2 * shared, dim))
        if rotations is not None:
            operations.turn_(qkv[:, :, : own + shared], *rotations)
        ctx.save_for_backward(hidden, norm, weight, *(rotations or ()))
        ctx.epsilon, ctx.turned, ctx.bias = epsilon, own + shared, bias is not None
        return qkv

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        hidden, norm, weight, *rotations = ctx.saved_tensors
        operations = on(hidden.device.type)
        qkv_grad = grads[0].contiguous()
        if rotations:
            # The gradient belongs to this backward alone once it has been gathered from the parts of attention.
            operations.turn_(qkv_grad[:, :, : ctx.turned], *rotations, back=True)
        flat, flat_grad = hidden.flatten(0, 1), qkv_grad.flatten(0, 1).flatten(1)
        weight_grad = flat_grad.T @ operations.norm(flat, norm, ctx.epsilon)
        hidden_grad, norm_grad = operations.norm_backward(flat_grad @ weight, flat, norm, ctx.epsilon, None)
        bias_grad = flat_grad.sum(0) if ctx.bias else None
        return hidden_grad.view_as(hidden), norm_grad, None, weight_grad, bias_grad, None, None


class _AfterAttention(torch.autograd.Function):
    """Residual [N, d] and attention's result [N, k] -> the layer's result [N, d]."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        mixed: Tensor,
        out: Tensor,
        norm: Tensor,
        epsilon: float,
        gate_up: Tensor,
        down: Tensor,
    ) -> Tensor:
        operations = on(hidden.device.type)
        middle = torch.addmm(hidden, mixed, out.T)
        both = operations.norm(middle, norm, epsilon) @ gate_up.T
        ctx.save_for_backward(mixed, middle, both, out, norm, gate_up, down)
        ctx.epsilon = epsilon
        return torch.addmm(middle, operations.gate(both), down.T)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        mixed, middle, both, out, norm, gate_up, down = ctx.saved_tensors
        operations = on(middle.device.type)
        grad = grads[0]
        both_grad, gated = operations.gate_backward(grad @ down, both)
        down_grad = grad.T @ gated
        gate_up_grad = both_grad.T @ operations.norm(middle, norm, ctx.epsilon)
        middle_grad, norm_grad = operations.norm_backward(both_grad @ gate_up, middle, norm, ctx.epsilon, grad)
        return middle_grad, middle_grad @ out, middle_grad.T @ mixed, norm_grad, None, gate_up_grad, down_grad


def before_attention(
    hidden: Tensor,
    norm: Tensor,
    epsilon: float,
    weight: Tensor,
    bias: Tensor | None,
    norms: Norms,
    rotations: Rotations,
    heads: tuple[int, int, int],
) -> tuple[Tensor, Tensor, Tensor]:
    """hidden [B, T, d] -> queries [B, H, T, D], keys and values [B, K, T, D]."""
    if norms is not None:  # Qwen3 norms its heads before they turn; autograd follows
        return split_heads(F.linear(normalise(hidden, norm, epsilon), weight, bias), norms, rotations, heads, epsilon)
    qkv = _BeforeAttention.apply(hidden, norm, epsilon, weight, bias, rotations, heads)
    query, key, value = qkv.split([heads[0], heads[1], heads[1]], dim=2)
    return query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2)


def after_attention(
    hidden: Tensor, mixed: Tensor, out: Tensor, norm: Tensor, epsilon: float, gate_up: Tensor, down: Tensor
) -> Tensor:
    """Residual hidden [..., d] and attention's result [..., H D] -> the layer's result [..., d]."""
    rows, flat = hidden.view(-1, hidden.shape[-1]), mixed.view(-1, mixed.shape[-1])
    if not torch.is_grad_enabled():
        # Nobody reads the residual stream again: it is updated where it stands.
        operations = on(hidden.device.type)
        both = operations.norm(rows.addmm_(flat, out.T), norm, epsilon) @ gate_up.T
        return rows.addmm_(operations.gate(both), down.T).view_as(hidden)
    return _AfterAttention.apply(rows, flat, out, norm, epsilon, gate_up, down).view_as(hidden)
