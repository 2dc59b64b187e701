from __future__ import annotations

import warnings

import torch

from oneiro.learning.muon import Muon, orthogonal


def test_steps_are_those_of_torch_up_to_its_rounding() -> None:
    """torch's Muon rounds to bfloat16, and its rounds are steep where a singular value is small."""
    generator = torch.Generator().manual_seed(0)
    shapes = [(6, 6), (12, 5), (6, 6), (5, 12)]
    start = [torch.randn(shape, generator=generator) for shape in shapes]
    ours, theirs = ([torch.nn.Parameter(p.clone()) for p in start] for _ in range(2))
    own = Muon(ours, lr=0.05, weight_decay=0.1, momentum=0.9)
    other = torch.optim.Muon(theirs, lr=0.05, weight_decay=0.1, momentum=0.9, adjust_lr_fn="match_rms_adamw")
    for _ in range(4):
        for mine, peer in zip(ours, theirs, strict=True):
            mine.grad = torch.randn(mine.shape, generator=generator)
            peer.grad = mine.grad.clone()
        own.step()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a processor without bfloat16 says so
            other.step()
        for mine, peer, begin in zip(ours, theirs, start, strict=True):
            moved = (peer - begin).norm()
            assert (mine - peer).norm() < 0.12 * moved and moved > 0.05


def test_directions_come_out_alike_whatever_their_size_and_shape() -> None:
    generator = torch.Generator().manual_seed(1)
    for shape in ((3, 20), (20, 3), (8, 8)):
        matrices = torch.randn((2, *shape), generator=generator) * torch.tensor([1e-4, 1e4])[:, None, None]
        sizes = torch.linalg.svdvals(orthogonal(matrices))
        assert float(sizes.min()) > 0.3 and float(sizes.max()) < 1.3
    assert not torch.isnan(orthogonal(torch.zeros(1, 2, 3))).any()


def test_the_rounds_act_on_singular_values_alone() -> None:
    matrix = torch.randn((4, 7), generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    left, sizes, right = torch.linalg.svd(matrix, full_matrices=False)
    sizes = sizes / sizes.norm()
    for _ in range(5):
        sizes = 3.4445 * sizes - 4.7750 * sizes**3 + 2.0315 * sizes**5
    torch.testing.assert_close(orthogonal(matrix[None])[0], left * sizes @ right)


def test_a_matrix_without_a_gradient_stays() -> None:
    still, moved = (torch.nn.Parameter(torch.ones(2, 2)) for _ in range(2))
    moved.grad = torch.ones(2, 2)
    Muon([still, moved], lr=0.1, weight_decay=0.1, momentum=0.9).step()
    assert torch.equal(still, torch.ones(2, 2)) and not torch.equal(moved, torch.ones(2, 2))
