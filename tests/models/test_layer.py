"""A layer's halves know their own gradients."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from oneiro.models import layer
from oneiro.models import layer as elementwise

HEADS = 2, 1, 4  # query heads, key heads, dimension
WIDTH, MLP = 5, 6


def leaves(*shapes: tuple[int, ...]) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(s, generator=generator, dtype=torch.float64).requires_grad_() for s in shapes]


@pytest.mark.parametrize("positions", ["shared", "own"])
@pytest.mark.parametrize("bias", [False, True])
def test_the_half_before_attention_is_its_formula_and_differentiates_it(bias: bool, positions: str) -> None:
    own, shared, dim = HEADS
    size = (own + 2 * shared) * dim
    hidden, norm, weight, offset = leaves((2, 3, WIDTH), (WIDTH,), (size, WIDTH), (size,))
    angles = torch.rand((3, 1, dim // 2) if positions == "shared" else (2, 3, 1, dim // 2), dtype=torch.float64)
    rotations = angles.cos(), angles.sin()

    def half(*tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        hidden, norm, weight, offset = tensors
        return layer.before_attention(hidden, norm, 1e-5, weight, offset if bias else None, None, rotations, HEADS)

    found = half(hidden, norm, weight, offset)
    flat = F.linear(F.rms_norm(hidden, (WIDTH,), norm, 1e-5), weight, offset if bias else None)
    for a, b in zip(found, layer.split_heads(flat, None, rotations, HEADS, 1e-5), strict=True):
        torch.testing.assert_close(a, b)
    assert torch.autograd.gradcheck(half, (hidden, norm, weight, offset))


def test_the_half_after_attention_is_its_formula_and_differentiates_it() -> None:
    own, _, dim = HEADS
    hidden, mixed, out, norm, gate_up, down = leaves(
        (2, 3, WIDTH), (2, 3, own * dim), (WIDTH, own * dim), (WIDTH,), (2 * MLP, WIDTH), (WIDTH, MLP)
    )

    def half(*tensors: torch.Tensor) -> torch.Tensor:
        hidden, mixed, out, norm, gate_up, down = tensors
        return layer.after_attention(hidden, mixed, out, norm, 1e-5, gate_up, down)

    middle = hidden + F.linear(mixed, out)
    gate, up = F.linear(F.rms_norm(middle, (WIDTH,), norm, 1e-5), gate_up).chunk(2, -1)
    everything = (hidden, mixed, out, norm, gate_up, down)
    torch.testing.assert_close(half(*everything), middle + F.linear(F.silu(gate) * up, down))
    assert torch.autograd.gradcheck(half, everything)


def drawn(*size: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(size, generator=torch.Generator().manual_seed(seed))


def test_the_small_operations_are_what_autograd_finds() -> None:
    x, weight = drawn(5, 6).double().requires_grad_(), drawn(6, seed=1).double().requires_grad_()
    grad, add = drawn(5, 6, seed=2).double(), drawn(5, 6, seed=3).double()
    normed = x / (x.square().mean(-1, keepdim=True) + 0.3).sqrt() * weight
    torch.testing.assert_close(elementwise.norm(x, weight, 0.3), normed)
    by_x, by_weight = torch.autograd.grad(normed, (x, weight), grad)
    for extra in (None, add):
        found_x, found_weight = elementwise.norm_backward(grad.clone(), x.detach(), weight.detach(), 0.3, extra)
        torch.testing.assert_close(found_x, by_x if extra is None else by_x + add)
        torch.testing.assert_close(found_weight, by_weight)
    both = drawn(5, 8, seed=4).double().requires_grad_()
    gated = both[:, :4] * torch.sigmoid(both[:, :4]) * both[:, 4:]
    torch.testing.assert_close(elementwise.gate(both), gated)
    (by_both,) = torch.autograd.grad(gated, both, grad[:, :4])
    found_both, again = elementwise.gate_backward(grad[:, :4].contiguous(), both.detach())
    torch.testing.assert_close(found_both, by_both)
    torch.testing.assert_close(again, gated.detach())
    heads, angles = drawn(2, 3, 2, 4, seed=5), drawn(3, 1, 2, seed=6)
    turned = heads.clone()
    elementwise.turn_(turned, angles.cos(), angles.sin())
    numbers = torch.complex(heads[..., :2], heads[..., 2:]) * torch.polar(torch.ones_like(angles), angles)
    torch.testing.assert_close(turned, torch.cat([numbers.real, numbers.imag], -1))
    elementwise.turn_(turned, angles.cos(), angles.sin(), back=True)
    torch.testing.assert_close(turned, heads)
