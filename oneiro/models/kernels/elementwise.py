"""`elementwise` as GPU kernels: every tensor read once and written once, sums in float32."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

STRIPS = 1056
"""Programs that share the rows of a norm's gradient, eight for each of 132 processors."""


@triton.jit
def _norm(x, weight, out, epsilon, WIDTH: tl.constexpr, PADDED: tl.constexpr):  # type: ignore[no-untyped-def]
    column = tl.arange(0, PADDED)
    within = column < WIDTH
    at = tl.program_id(0).to(tl.int64) * WIDTH + column
    value = tl.load(x + at, mask=within, other=0.0).to(tl.float32)
    w = tl.load(weight + column, mask=within, other=0.0).to(tl.float32)
    value *= tl.rsqrt(tl.sum(value * value, 0) / WIDTH + epsilon) * w
    tl.store(out + at, value.to(out.dtype.element_ty), mask=within)


@triton.jit
def _norm_backward(  # type: ignore[no-untyped-def]
    grad, x, weight, add, by_x, by_weight, rows, epsilon, ADD: tl.constexpr, WIDTH: tl.constexpr, PADDED: tl.constexpr
):
    strip = tl.program_id(0)
    column = tl.arange(0, PADDED)
    within = column < WIDTH
    w = tl.load(weight + column, mask=within, other=0.0).to(tl.float32)
    total = tl.zeros([PADDED], tl.float32)
    for row in range(strip, rows, tl.num_programs(0)):
        at = row * WIDTH + column
        value = tl.load(x + at, mask=within, other=0.0).to(tl.float32)
        g = tl.load(grad + at, mask=within, other=0.0).to(tl.float32)
        scale = tl.rsqrt(tl.sum(value * value, 0) / WIDTH + epsilon)
        unit = value * scale
        total += g * unit
        g *= w
        result = (g - unit * (tl.sum(g * unit, 0) / WIDTH)) * scale
        if ADD:
            result += tl.load(add + at, mask=within, other=0.0).to(tl.float32)
        tl.store(by_x + at, result.to(by_x.dtype.element_ty), mask=within)
    tl.store(by_weight + strip * WIDTH + column, total, mask=within)


@triton.jit
def _turn(x, cos, sin, period, x_row, sign, HEADS: tl.constexpr, PADDED: tl.constexpr, HALF: tl.constexpr):  # type: ignore[no-untyped-def]
    row = tl.program_id(0).to(tl.int64)
    half = tl.arange(0, HALF)
    head = tl.arange(0, PADDED)
    within = (head < HEADS)[:, None]
    table = (row % period) * HALF + half
    c = tl.load(cos + table).to(tl.float32)[None, :]
    s = tl.load(sin + table).to(tl.float32)[None, :] * sign
    place = x + row * x_row + head[:, None] * (2 * HALF) + half[None, :]
    left = tl.load(place, mask=within, other=0.0).to(tl.float32)
    right = tl.load(place + HALF, mask=within, other=0.0).to(tl.float32)
    tl.store(place, (left * c - right * s).to(x.dtype.element_ty), mask=within)
    tl.store(place + HALF, (right * c + left * s).to(x.dtype.element_ty), mask=within)


@triton.jit
def _gate(both, out, count, WIDTH: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    within = at < count
    place = both + at // WIDTH * (2 * WIDTH) + at % WIDTH
    left = tl.load(place, mask=within, other=0.0).to(tl.float32)
    right = tl.load(place + WIDTH, mask=within, other=0.0).to(tl.float32)
    tl.store(out + at, (left * tl.sigmoid(left) * right).to(out.dtype.element_ty), mask=within)


@triton.jit
def _gate_backward(grad, both, by_both, out, count, WIDTH: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    within = at < count
    half = at // WIDTH * (2 * WIDTH) + at % WIDTH
    left = tl.load(both + half, mask=within, other=0.0).to(tl.float32)
    right = tl.load(both + half + WIDTH, mask=within, other=0.0).to(tl.float32)
    g = tl.load(grad + at, mask=within, other=0.0).to(tl.float32)
    open_ = tl.sigmoid(left)
    silu = left * open_
    by_left = g * right * (open_ + silu * (1 - open_))
    tl.store(by_both + half, by_left.to(by_both.dtype.element_ty), mask=within)
    tl.store(by_both + half + WIDTH, (g * silu).to(by_both.dtype.element_ty), mask=within)
    tl.store(out + at, (silu * right).to(out.dtype.element_ty), mask=within)


def norm(x: Tensor, weight: Tensor, epsilon: float) -> Tensor:
    """RMS norm over the last dimension."""
    width = x.shape[-1]
    out = torch.empty_like(x, memory_format=torch.contiguous_format)
    _norm[(x.numel() // width,)](
        x.contiguous(), weight, out, epsilon, WIDTH=width, PADDED=triton.next_power_of_2(width), num_warps=2
    )
    return out


def norm_backward(grad: Tensor, x: Tensor, weight: Tensor, epsilon: float, add: Tensor | None) -> tuple[Tensor, Tensor]:
    """Of the RMS norm of x [N, d]: (gradient by x, plus `add`; gradient by weight [d])."""
    rows, width = x.shape
    by_x = torch.empty_like(x)
    by_weight = torch.empty((min(rows, STRIPS), width), device=x.device)
    _norm_backward[(len(by_weight),)](
        grad.contiguous(), x, weight, x if add is None else add.contiguous(), by_x, by_weight, rows, epsilon,
        ADD=add is not None, WIDTH=width, PADDED=triton.next_power_of_2(width), num_warps=4,
    )  # fmt: skip
    return by_x, by_weight.sum(0).to(weight.dtype)


def turn_(x: Tensor, cos: Tensor, sin: Tensor, back: bool = False) -> None:
    """Rotate heads [B, T, H, D] in place by tables [(B,) T, 1, D/2]; `back` undoes it, which is also its gradient."""
    batch, length, heads, dim = x.shape
    _turn[(batch * length,)](
        x, cos, sin, cos.numel() // (dim // 2), x.stride(1), -1.0 if back else 1.0,
        HEADS=heads, PADDED=triton.next_power_of_2(heads), HALF=dim // 2, num_warps=2,
    )  # fmt: skip


def gate(both: Tensor) -> Tensor:
    """[N, 2m] -> silu(left half) * right half [N, m]."""
    rows, columns = both.shape
    out = torch.empty((rows, columns // 2), dtype=both.dtype, device=both.device)
    _gate[(triton.cdiv(out.numel(), 1024),)](both, out, out.numel(), WIDTH=columns // 2, BLOCK=1024, num_warps=4)
    return out


def gate_backward(grad: Tensor, both: Tensor) -> tuple[Tensor, Tensor]:
    """Of `gate`: (gradient by both halves [N, 2m], the gate's own result [N, m] computed again)."""
    by_both, out = torch.empty_like(both), torch.empty_like(grad)
    _gate_backward[(triton.cdiv(out.numel(), 1024),)](
        grad, both, by_both, out, out.numel(), WIDTH=grad.shape[1], BLOCK=1024, num_warps=4
    )
    return by_both, out
