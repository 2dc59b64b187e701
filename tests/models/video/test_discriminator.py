"""The discriminator and its gradient penalty."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from oneiro.models.video.blocks import Discriminator, DiscriminatorSettings, gradient_penalty, hinge


def test_a_discriminator_is_convolutions_over_their_norm_with_instance_norms_between() -> None:
    torch.manual_seed(0)
    network = Discriminator(DiscriminatorSettings(channels=(4, 5, 6)), 6).eval()
    assert len(network.layers) == 9
    x = frames = torch.rand(2, 3, 6, 9)
    x = 2 * x - 1
    with torch.no_grad():
        # 6 pixels become 3, then 2, and 2 are left alone.
        for place, (stride, width) in zip((0, 2, 5), ((2, 4), (2, 5), (1, 6)), strict=True):
            convolution = network.layers[place]
            weight = convolution.weight  # type: ignore[union-attr]
            assert weight.shape[0] == width and weight.shape[2:] == (3, 3)  # type: ignore[union-attr, index]
            assert float(torch.linalg.matrix_norm(weight.flatten(1), 2)) == pytest.approx(1, abs=0.15)  # type: ignore[operator]
            x = F.conv2d(x, weight, convolution.bias, stride=stride, padding=1)  # type: ignore[arg-type, union-attr]
            if place:
                x = F.instance_norm(x)
            x = torch.where(x > 0, x, 0.2 * x)
        last = network.layers[8]
        x = F.conv2d(x, last.weight, last.bias)  # type: ignore[arg-type, union-attr]
        torch.testing.assert_close(network(frames), x)
    assert x.shape == (2, 1, 2, 3)


def test_the_gradient_penalty_can_be_learned_from() -> None:
    torch.manual_seed(0)
    network = Discriminator(DiscriminatorSettings(channels=(4,)), 8)
    frames = torch.rand(2, 3, 8, 8)
    penalty = gradient_penalty(network, frames)
    (slope,) = torch.autograd.grad(penalty, network.layers[-1].weight)  # type: ignore[arg-type, union-attr]
    assert slope.abs().sum() > 0 and not frames.requires_grad


def test_the_published_discriminator_has_6_27_million_parameters_and_judges_4_by_5_patches() -> None:
    found = Discriminator(DiscriminatorSettings(), 256)
    assert sum(parameter.numel() for parameter in found.parameters()) == 6_271_105
    assert found(torch.rand(1, 3, 256, 320)).shape == (1, 1, 4, 5)


@pytest.mark.parametrize(("height", "width", "judged"), [(64, 64, (2, 2)), (16, 64, (2, 8)), (128, 128, (2, 2))])
def test_a_discriminator_of_small_frames_stops_halving_in_time(
    height: int, width: int, judged: tuple[int, int]
) -> None:
    found = Discriminator(DiscriminatorSettings(channels=(4, 4, 4, 4, 4, 4)), min(height, width))
    assert found(torch.rand(1, 3, height, width)).shape == (1, 1, *judged)


def test_the_hinge_loss_by_hand() -> None:
    # True logits 2 and 0.5 cost 0 and 0.5; made logits -3 and 1 cost 0 and 2.
    assert float(hinge(torch.tensor([2.0, 0.5]), torch.tensor([-3.0, 1.0]))) == pytest.approx(1.25)


def test_the_gradient_penalty_is_measured_at_each_true_frame() -> None:
    class Linear(Discriminator):
        def forward(self, frames: torch.Tensor) -> torch.Tensor:
            return 0.5 * frames.flatten(1).sum(1)[:, None, None, None]

    # The gradient of half the sum of 12 numbers has the norm sqrt(12) / 2.
    frames = torch.rand(3, 3, 2, 2)
    expected = (12**0.5 / 2 - 1) ** 2
    assert float(gradient_penalty(Linear(DiscriminatorSettings(), 4), frames)) == pytest.approx(expected)
