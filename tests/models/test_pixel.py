"""Readers of frames learn what a frame shows, are caught at stages of one training, and load as they were saved."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from oneiro.models.video.pixel import PixelReader, PixelSettings, disturb, train_reader
from oneiro.runtime.errors import OneiroError

SMALL = PixelSettings(channels=(8, 16), hidden=32, steps=150, batch=32, lr=3e-3)


def bars(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Frames `[N, 16, 16, 3]` with a bright column, and where it stands, from 0 to 0.15."""
    places = np.random.default_rng(seed).integers(0, 16, count)
    frames = np.full((count, 16, 16, 3), 40, np.uint8)
    frames[np.arange(count), :, places] = (200, 180, 60)
    return frames, places[:, None] / 100


def error(reader: PixelReader) -> float:
    frames, places = bars(64, seed=9)
    return float(np.abs(reader.read(frames) - places).mean())


def test_a_reader_learns_and_earlier_stages_know_less() -> None:
    begin, end = train_reader(*bars(256, seed=0), SMALL, seed=0, stages=(0.05, 1.0))
    assert error(end) < 0.01 < error(begin)


def test_the_same_seed_gives_the_same_reader_and_stages_do_not_change_the_training() -> None:
    short = SMALL.model_copy(update={"steps": 12})
    frames, places = bars(64, seed=0)
    (alone,) = train_reader(frames, places, short, seed=3)
    _, again = train_reader(frames, places, short, seed=3, stages=(0.5, 1.0))
    (other,) = train_reader(frames, places, short, seed=4)
    assert np.array_equal(alone.read(frames), again.read(frames))
    assert not np.array_equal(alone.read(frames), other.read(frames))


def test_the_global_generator_is_left_alone() -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    train_reader(*bars(32, seed=0), SMALL.model_copy(update={"steps": 2}), seed=0)
    assert torch.equal(torch.rand(3), expected)


def test_a_saved_reader_reads_the_same_and_a_damaged_one_says_so(tmp_path: Path) -> None:
    (reader,) = train_reader(*bars(32, seed=0), SMALL.model_copy(update={"steps": 3}), seed=0)
    reader.save(tmp_path)
    frames, _ = bars(8, seed=1)
    assert np.array_equal(PixelReader.load(tmp_path).read(frames), reader.read(frames))
    with pytest.raises(OneiroError, match="frames of"):
        reader.read(np.zeros((1, 8, 8, 3), np.uint8))
    (tmp_path / "model.safetensors").write_bytes(b"short")
    with pytest.raises(OneiroError, match="train it anew"):
        PixelReader.load(tmp_path)


def test_disturbed_frames_stay_in_range_and_none_are_disturbed_at_zero() -> None:
    frames = torch.rand(16, 3, 16, 16)
    changed = disturb(frames, 1.0, np.random.default_rng(0))
    assert changed.min() >= 0 and changed.max() <= 1 and not torch.equal(changed, frames)
    assert torch.equal(disturb(frames, 0.0, np.random.default_rng(0)), frames)
    assert (changed - frames).abs().mean() < 0.3
