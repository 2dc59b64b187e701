"""Measures of frames equal scikit-image and torchmetrics, frame by frame.

Only tests that need them import those: they take two seconds, and every worker collects every file.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from oneiro.models.video.perceptual import Lpips
from oneiro.tasks.video import measures


@pytest.fixture
def pair() -> tuple[torch.Tensor, torch.Tensor]:
    """Two batches `[2, 3, 3, 40, 48]` of smooth images that are alike but not equal."""
    draw = torch.Generator().manual_seed(0)
    coarse = torch.rand(6, 3, 10, 12, generator=draw)
    truth = torch.nn.functional.interpolate(coarse, (40, 48), mode="bilinear").view(2, 3, 3, 40, 48)
    noise = 0.1 * torch.randn(truth.shape, generator=draw)
    return (truth + noise).clamp(0, 1), truth


def test_errors_and_psnr_equal_scikit_image(pair: tuple[torch.Tensor, torch.Tensor]) -> None:
    from skimage.metrics import mean_squared_error, peak_signal_noise_ratio

    found = measures.measure(*pair)
    for place in np.ndindex(2, 3):
        a, b = pair[0][place].numpy().astype(np.float64), pair[1][place].numpy().astype(np.float64)
        assert found["mse"][place].item() == pytest.approx(mean_squared_error(b, a), rel=1e-5)
        assert found["mae"][place].item() == pytest.approx(np.abs(a - b).mean(), rel=1e-5)
        # The published PSNR adds 1e-8 to the error, which at these errors changes the sixth digit.
        assert found["psnr"][place].item() == pytest.approx(peak_signal_noise_ratio(b, a, data_range=1.0), abs=1e-3)


def test_ssim_equals_scikit_image_and_torchmetrics(pair: tuple[torch.Tensor, torch.Tensor]) -> None:
    from skimage.metrics import structural_similarity
    from torchmetrics.functional.image import structural_similarity_index_measure

    found = measures.ssim(*pair)
    for place in np.ndindex(2, 3):
        a, b = pair[0][place].numpy().astype(np.float64), pair[1][place].numpy().astype(np.float64)
        options = {"gaussian_weights": True, "sigma": 1.5, "use_sample_covariance": False}
        expected = structural_similarity(b, a, channel_axis=0, data_range=1.0, **options)
        assert found[place].item() == pytest.approx(expected, abs=1e-5)
    flat = [image.flatten(0, 1) for image in pair]
    _, maps = structural_similarity_index_measure(*flat, sigma=1.5, data_range=1.0, return_full_image=True)
    # Its own mean includes windows over a mirrored border; the published measure has full windows only.
    theirs = maps[..., 5:-5, 5:-5].mean(dim=(1, 2, 3))
    torch.testing.assert_close(found.flatten(), theirs, atol=1e-5, rtol=1e-5)


def test_identical_frames_score_best() -> None:
    frame = torch.rand(1, 3, 16, 16)
    found = measures.measure(frame, frame)
    assert found["mse"] == found["mae"] == 0 and found["ssim"].item() == pytest.approx(1.0)
    assert found["psnr"].item() == pytest.approx(80.0)  # -10 log10(1e-8)


def test_lpips_keeps_the_leading_dimensions_whatever_the_chunk(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    network = Lpips("alex")
    for head in network.heads:
        head.fill_(1.0)
    a, b = torch.rand(2, 3, 3, 48, 48), torch.rand(2, 3, 3, 48, 48)
    whole = measures.measure(a, b, {"lpips_alex": network})["lpips_alex"]
    monkeypatch.setattr(measures, "CHUNK", 4)
    torch.testing.assert_close(measures.lpips(a, b, network), whole)
    torch.testing.assert_close(network(a[1, 2][None], b[1, 2][None])[0], whole[1, 2])


def test_moving_pixels_are_those_that_the_truth_changes_visibly() -> None:
    last = torch.zeros(1, 3, 2, 2)
    truth = last.clone()
    truth[0, 0, 0, 0], truth[0, 1, 1, 1], truth[0, 2, 0, 1] = 0.5, 0.25, 0.04  # the last is below what counts
    copied = measures.moving_mse(last, truth, last)
    assert copied.item() == pytest.approx((0.25 / 3 + 0.0625 / 3) / 2)  # of two pixels, one channel of three each
    wrong = truth.clone()
    wrong[0, :, 1, 0] = 1.0  # where nothing moves
    assert measures.moving_mse(wrong, truth, last).item() == 0 and measures.moving_mse(wrong, last, last).item() == 0


def test_ssim_of_frames_smaller_than_its_window_is_refused() -> None:
    with pytest.raises(ValueError, match="8x16"):
        measures.ssim(torch.rand(1, 3, 8, 16), torch.rand(1, 3, 8, 16))


@pytest.mark.parametrize("network", ["alex", "vgg"])
def test_the_smallest_frames_lpips_accepts_are_the_smallest_its_network_can_look_at(network: Any) -> None:
    lpips, least = Lpips(network), measures.SMALLEST[network]
    assert measures.too_small(network, least, 99) is None and measures.lpips(*frames_of(least), lpips).shape == (1,)
    assert measures.too_small(network, 99, least - 1) is not None
    with pytest.raises(RuntimeError):
        measures.lpips(*frames_of(least - 1), lpips)


def frames_of(side: int) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.zeros(1, 3, side, side), torch.ones(1, 3, side, side)
