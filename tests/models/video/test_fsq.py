"""FSQ by hand, and against the formulas written down a second time."""

from __future__ import annotations

import math

import pytest
import torch

from oneiro.models.video.fsq import Fsq


def test_the_published_levels_make_4375_codes_with_the_published_basis() -> None:
    fsq = Fsq((7, 5, 5, 5, 5))
    assert fsq.codes == 4375
    assert fsq.basis.tolist() == [1, 7, 35, 175, 875]


@pytest.mark.parametrize(("levels", "codes"), [((8, 6, 5), 240), ((8, 5, 5, 5), 1000), ((8, 8, 8, 6, 5), 15360)])
def test_every_index_has_its_own_code_and_comes_back_from_it(levels: tuple[int, ...], codes: int) -> None:
    fsq = Fsq(levels)
    every = torch.arange(codes)
    assert fsq.codes == codes
    assert torch.equal(fsq.indices(fsq.code(every)), every)
    assert len(fsq.code(every).unique(dim=0)) == codes
    assert fsq.code(every).abs().max() <= 1


def test_the_first_entry_is_the_lowest_digit() -> None:
    fsq = Fsq((7, 5))
    # (-1, -1) is index 0; one level up in the first entry adds 1, in the second 7.
    assert fsq.indices(torch.tensor([[-1.0, -1.0], [-2 / 3, -1.0], [-1.0, -0.5], [1.0, 1.0]])).tolist() == [0, 1, 7, 34]


def test_bounding_follows_the_formula_for_even_and_odd_levels() -> None:
    z = torch.tensor([0.3, -1.2])
    expected = []
    for number, level in zip(z.tolist(), (8, 5), strict=True):
        reach = (level - 1) * 1.001 / 2
        offset = 0.5 if level % 2 == 0 else 0.0
        expected.append(math.tanh(number + math.atanh(offset / reach)) * reach - offset)
    assert Fsq((8, 5)).bound(z).tolist() == pytest.approx(expected, abs=1e-6)


def test_huge_inputs_reach_the_outermost_levels_and_no_further() -> None:
    fsq = Fsq((8, 5))
    codes = fsq(torch.tensor([[1e4, 1e4], [-1e4, -1e4]]))
    # Eight levels lie at -4 .. 3 quarters, five at -2 .. 2 halves.
    assert codes.tolist() == [[0.75, 1.0], [-1.0, -1.0]]
    assert fsq.indices(codes).tolist() == [39, 0]


def test_rounding_lets_the_gradient_of_the_bounded_value_pass() -> None:
    fsq = Fsq((7, 5))
    z = torch.tensor([[0.3, -0.7]], requires_grad=True)
    fsq(z).sum().backward()
    again = torch.tensor([[0.3, -0.7]], requires_grad=True)
    (fsq.bound(again) / torch.tensor([3, 2])).sum().backward()
    assert torch.allclose(z.grad, again.grad)  # type: ignore[arg-type]


def test_half_precision_does_not_move_a_code() -> None:
    fsq = Fsq((7, 5, 5, 5, 5))
    z = torch.randn(64, 5, generator=torch.Generator().manual_seed(0)).bfloat16()
    with torch.autocast("cpu", torch.bfloat16):
        inside = fsq(z)
    assert inside.dtype == torch.float32
    assert torch.equal(inside, fsq(z.float()))


def test_constants_are_no_weights() -> None:
    assert (
        Fsq((8, 5)).state_dict() == {}
        and Fsq((8, 5)).levels.tolist() == [8, 5]
        and Fsq((8, 5)).middle.tolist() == [4, 2]
    )
