"""`elementwise` as GPU kernels: every tensor read once and written once, sums in float32."""

from __future__ import annotations

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch import Tensor

STRIPS = 1056
"""Programs that share the rows of a norm's gradient, eight for each of 132 processors."""
FEW_ROWS = 256
"""Up to so many rows, in a narrow model, a norm is part of the product behind it: decoding then loses its time between
kernels, not in them.
"""
NARROW = 1024


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
def _normed_product(  # type: ignore[no-untyped-def]
    x, norm, weight, bias, out, rows, columns, epsilon, WIDTH: tl.constexpr, GATE: tl.constexpr, BIAS: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """The product of rows times the norm's weight; a row's scale is known at the end and multiplies its results."""
    column = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    row = tl.program_id(1) * BLOCK_M + tl.arange(0, BLOCK_M)
    within, real = row < rows, column < columns
    squares = tl.zeros([BLOCK_M], tl.float32)
    result = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    other = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    for start in range(0, WIDTH, BLOCK_K):
        at = start + tl.arange(0, BLOCK_K)
        inside = at < WIDTH
        value = tl.load(x + row[:, None] * WIDTH + at[None, :], mask=within[:, None] & inside[None, :], other=0.0)
        value = value.to(tl.float32)
        squares += tl.sum(value * value, 1)
        value *= tl.load(norm + at, mask=inside, other=0.0).to(tl.float32)[None, :]
        value = value.to(x.dtype.element_ty)
        cell = column[:, None] * WIDTH + at[None, :]
        seen = real[:, None] & inside[None, :]
        result = tl.dot(value, tl.trans(tl.load(weight + cell, mask=seen, other=0.0)), result)
        if GATE:
            below = weight + columns * WIDTH
            other = tl.dot(value, tl.trans(tl.load(below + cell, mask=seen, other=0.0)), other)
    scale = tl.rsqrt(squares / WIDTH + epsilon)[:, None]
    result *= scale
    if BIAS:
        result += tl.load(bias + column, mask=real, other=0.0).to(tl.float32)[None, :]
    if GATE:
        result *= tl.sigmoid(result) * other * scale
    place = out + row[:, None] * columns + column[None, :]
    tl.store(place, result.to(out.dtype.element_ty), mask=within[:, None] & real[None, :])


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


def normed_linear(x: Tensor, weight: Tensor, epsilon: float, linear: Tensor, bias: Tensor | None) -> Tensor:
    """RMS norm and a product: [..., d] -> [..., n], `linear` is [n, d]."""
    if not _fuses(x, linear):
        return F.linear(norm(x, weight, epsilon), linear, bias)
    return normed_product(x, weight, epsilon, linear, bias, gated=False)


def normed_gate(x: Tensor, weight: Tensor, epsilon: float, gate_up: Tensor) -> Tensor:
    """RMS norm, a product and `gate`: [N, d] -> [N, m], `gate_up` is [2m, d]."""
    if not _fuses(x, gate_up):
        return gate(norm(x, weight, epsilon) @ gate_up.T)
    return normed_product(x, weight, epsilon, gate_up, None, gated=True)


def _fuses(x: Tensor, linear: Tensor) -> bool:
    """float32 is left to the library, which does not round it for tensor cores."""
    few = x.shape[-1] <= NARROW and x.numel() <= FEW_ROWS * x.shape[-1]
    return few and x.dtype == linear.dtype == torch.bfloat16 and x.is_contiguous() and linear.is_contiguous()


def normed_product(
    x: Tensor, weight: Tensor, epsilon: float, linear: Tensor, bias: Tensor | None, gated: bool
) -> Tensor:
    """Both as one kernel."""
    width, columns = x.shape[-1], len(linear) // 2 if gated else len(linear)
    rows = x.numel() // width
    out = torch.empty((*x.shape[:-1], columns), dtype=x.dtype, device=x.device)
    block_m, block_n = (16 if rows <= 16 else 32 if rows <= 64 else 64), (32 if gated or rows <= 64 else 64)
    _normed_product[(triton.cdiv(columns, block_n), triton.cdiv(rows, block_m))](
        x, weight, linear, x if bias is None else bias, out, rows, columns, epsilon,
        WIDTH=width, GATE=gated, BIAS=bias is not None, BLOCK_M=block_m, BLOCK_N=block_n, BLOCK_K=64,
        num_warps=4, num_stages=4,
    )  # fmt: skip
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
