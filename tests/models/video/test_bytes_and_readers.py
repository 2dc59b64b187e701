"""Frames as bytes, and the size of what a reader reads."""

from __future__ import annotations

import numpy as np
import torch

from oneiro.models.video.pixel import PixelReader, PixelSettings, train_reader
from oneiro.models.video.tokenizer import FrameTokenizerSettings, images, pixels


def test_every_byte_becomes_a_pixel_and_comes_back() -> None:
    every = np.arange(256, dtype=np.uint8).reshape(1, 16, 16, 1).repeat(3, axis=-1)
    frames = pixels(every)
    assert frames.shape == (1, 3, 16, 16) and float(frames.min()) == 0 and float(frames.max()) == 1
    assert float(frames[0, 0, 8, 0]) == np.float32(128 / 255)
    np.testing.assert_array_equal(images(frames), every)
    beyond = torch.tensor([-1.0, 0.0, 0.2, 1.0, 7.0]).view(1, 1, 5).expand(3, 1, 5)
    assert images(beyond)[0, :, 0].tolist() == [0, 0, 51, 255, 255]
    # Of half precision only the numbers are coarse: 131/256 of 255 is 130.49, and 130.5 in half precision.
    assert images(torch.full((3, 1, 1), 131 / 256).bfloat16()).flatten().tolist() == [130] * 3


def test_a_reader_answers_in_the_size_of_its_targets() -> None:
    torch.manual_seed(0)
    reader = PixelReader((16, 16), 2, PixelSettings(channels=(4, 8), hidden=8))
    frames = torch.rand(3, 3, 16, 16)
    unit = reader.mind(reader.eye(2 * frames - 1))
    reader.scale.copy_(torch.tensor([2.0, 10.0]))
    reader.shift.copy_(torch.tensor([5.0, -1.0]))
    torch.testing.assert_close(reader(frames), unit * torch.tensor([2.0, 10.0]) + torch.tensor([5.0, -1.0]))


def test_training_takes_the_size_from_the_targets_each_by_itself() -> None:
    targets = np.array([[1.0, 100.0, 7.0], [3.0, 300.0, 7.0]])
    settings = PixelSettings(channels=(4,), hidden=4, steps=1, batch=2)
    (reader,) = train_reader(np.zeros((2, 16, 16, 3), np.uint8), targets, settings, seed=0)
    assert reader.shift.tolist() == [2.0, 200.0, 7.0]
    np.testing.assert_allclose(reader.scale, [1.0, 100.0, 1e-6])


def test_two_levels_are_enough_for_a_digit() -> None:
    assert FrameTokenizerSettings(channels=(8, 8), levels=(2, 2)).levels == (2, 2)
