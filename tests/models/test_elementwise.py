"""The small operations of a layer beside autograd."""

from __future__ import annotations

import torch

from oneiro.models import elementwise


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
    linear, bias = drawn(8, 6, seed=7).double(), drawn(8, seed=8).double()
    torch.testing.assert_close(elementwise.normed_linear(x, weight, 0.3, linear, bias), normed @ linear.T + bias)
    torch.testing.assert_close(elementwise.normed_linear(x, weight, 0.3, linear, None), normed @ linear.T)
    left, right = (normed @ linear.T).chunk(2, -1)
    torch.testing.assert_close(elementwise.normed_gate(x, weight, 0.3, linear), left * torch.sigmoid(left) * right)
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
