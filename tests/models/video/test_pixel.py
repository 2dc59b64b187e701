"""The pixel reader beside a plain second implementation."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from oneiro.models.video import pixel
from oneiro.models.video.pixel import PixelReader, PixelSettings, disturb, train_reader
from oneiro.runtime import seeds
from oneiro.runtime.errors import OneiroError

SETTINGS = PixelSettings(channels=(4, 16), hidden=6, steps=40, batch=5, lr=0.05, weight_decay=0.3, augment=0.6)


SIZE = (17, 14)


def shown(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (count, *SIZE, 3), dtype=np.uint8)


def plain(state: dict[str, torch.Tensor], frames: torch.Tensor) -> torch.Tensor:
    """A reader with two convolutions, in unit size."""
    hidden = 2 * frames - 1
    for place, groups in ((0, 4), (3, 8)):
        assert state[f"eye.{place}.weight"].shape[2:] == (3, 3)
        hidden = F.conv2d(hidden, state[f"eye.{place}.weight"], state[f"eye.{place}.bias"], stride=2, padding=1)
        norm = state[f"eye.{place + 1}.weight"], state[f"eye.{place + 1}.bias"]
        hidden = F.silu(F.group_norm(hidden, groups, *norm))
    hidden = F.silu(F.linear(hidden.flatten(1), state["mind.0.weight"], state["mind.0.bias"]))
    return F.linear(hidden, state["mind.2.weight"], state["mind.2.bias"])


def disturbed(frames: np.ndarray, share: float, rng: np.random.Generator) -> np.ndarray:
    """`disturb`, one number at a time; frames [N, 3, H, W]."""
    frames, count = frames.copy(), len(frames)
    rows = np.flatnonzero(rng.random(count) < share)
    mixes = rng.uniform(0, 1, len(rows))
    for row, mix in zip(rows, mixes, strict=True):
        sharp = frames[row].copy()
        for y in range(SIZE[0]):
            for x in range(SIZE[1]):
                around = sharp[:, max(0, y - 1) : y + 2, max(0, x - 1) : x + 2]
                frames[row, :, y, x] = (1 - mix) * sharp[:, y, x] + mix * around.mean(axis=(1, 2))
    rows = np.flatnonzero(rng.random(count) < share)
    gains, lifts = rng.uniform(0.92, 1.08, len(rows)), rng.uniform(-0.04, 0.04, len(rows))
    for row, gain, lift in zip(rows, gains, lifts, strict=True):
        frames[row] = frames[row] * gain + lift
    rows = np.flatnonzero(rng.random(count) < share)
    noise = rng.standard_normal((len(rows), *frames.shape[1:]), np.float32)
    strengths = rng.uniform(0, 0.04, len(rows))
    for row, strength, grain in zip(rows, strengths, noise, strict=True):
        frames[row] += strength * grain
    return np.clip(frames, 0, 1)


def test_a_reader_is_convolutions_norms_and_two_linear_layers() -> None:
    torch.manual_seed(0)
    reader = PixelReader(SIZE, 3, SETTINGS)
    with torch.no_grad():
        for parameter in reader.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    frames = torch.rand(2, 3, *SIZE)
    torch.testing.assert_close(reader(frames), plain(reader.state_dict(), frames))
    assert (reader.scale.tolist(), reader.shift.tolist()) == ([1.0] * 3, [0.0] * 3)


def test_disturbances_are_those_written_out_number_by_number() -> None:
    frames = np.random.default_rng(1).random((12, 3, *SIZE), dtype=np.float32)
    before = torch.from_numpy(frames.copy())
    found = disturb(before, 0.6, np.random.default_rng(2)).numpy()
    np.testing.assert_allclose(found, disturbed(frames, 0.6, np.random.default_rng(2)), atol=1e-5)
    assert torch.equal(before, torch.from_numpy(frames)) and found.dtype == np.float32


def test_the_rate_rises_over_a_twentieth_and_falls_along_a_cosine() -> None:
    shares = [0.01, 0.025, 0.05, 0.5, 1.0]
    expected = [0.2 * 0.999753, 0.5 * 0.998459, 0.993844, 0.5, 0.0]
    assert [pixel._schedule(share) for share in shares] == pytest.approx(expected, abs=1e-6)


def test_training_is_adamw_on_disturbed_frames_in_units_of_the_targets_spread() -> None:
    frames, targets = shown(9), np.random.default_rng(3).normal(size=(9, 2)) * [5.0, 0.1] + [1.0, -3.0]
    heard: list[tuple[int, float]] = []
    found = train_reader(
        frames, targets, SETTINGS, 7, stages=(0.06, 0.001), advance=lambda step, loss: heard.append((step, loss))
    )
    torch.manual_seed(seeds.derive("reader", 7))
    reader = PixelReader(SIZE, 2, SETTINGS)
    wanted = (targets - targets.mean(axis=0)) / targets.std(axis=0)
    weights = list(reader.parameters())
    first, second = [torch.zeros_like(w) for w in weights], [torch.zeros_like(w) for w in weights]
    states, losses = {}, []
    for step in (1, 2):
        rng = seeds.generator("reader", 7, step)
        chosen = rng.integers(9, size=5)
        floats = np.moveaxis(frames[chosen], -1, 1).astype(np.float32) / 255
        seen = torch.from_numpy(disturbed(floats, 0.6, rng))
        error = plain(dict(reader.named_parameters()), seen) - torch.from_numpy(wanted[chosen].astype(np.float32))
        loss = torch.where(error.abs() < 0.5, error.square(), error.abs() - 0.25).mean()
        gradients = torch.autograd.grad(loss, weights)
        shrink = min(1.0, 1.0 / float(torch.cat([g.flatten() for g in gradients]).norm()))
        share = step / 40
        rate = 0.05 * min(1, share * 20) * (1 + np.cos(np.pi * share)) / 2
        with torch.no_grad():
            for weight, gradient, one, two in zip(weights, gradients, first, second, strict=True):
                one.mul_(0.9).add_(0.1 * shrink * gradient)
                two.mul_(0.999).add_(0.001 * (shrink * gradient).square())
                weight.mul_(1 - rate * 0.3)
                weight.sub_(rate * (one / (1 - 0.9**step)) / ((two / (1 - 0.999**step)).sqrt() + 1e-8))
        losses.append(float(loss.detach()))
        states[step] = [w.detach().clone() for w in weights]
    # The stages: 0.06 of 40 steps is the second, and however small a share, the first is the earliest.
    for made, step in zip(found, (1, 2), strict=True):
        for (name, parameter), expected in zip(made.named_parameters(), states[step], strict=True):
            if name != "eye.0.bias":  # the norm behind it takes it out again: its gradient is rounding
                torch.testing.assert_close(parameter, expected, rtol=2e-3, atol=2e-4, msg=f"{name} after {step}")
        assert not made.training
    assert [step for step, _ in heard] == list(range(1, 41))
    assert [loss for _, loss in heard[:2]] == pytest.approx(losses, rel=1e-3)


def test_frames_and_targets_must_be_as_many_and_at_least_one() -> None:
    for frames, targets in ((3, 2), (0, 0), (0, 1)):
        with pytest.raises(ValueError, match=f"{frames} frames and {targets} targets"):
            train_reader(shown(frames), np.zeros((targets, 1)), SETTINGS, 0)


def test_many_frames_are_read_in_parts_and_none_give_none(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    reader = PixelReader(SIZE, 2, SETTINGS)
    frames = shown(7)
    whole = reader.read(frames)
    monkeypatch.setattr(pixel, "CHUNK", 3)
    np.testing.assert_allclose(reader.read(frames), whole, rtol=1e-5, atol=1e-6)
    assert whole.shape == (7, 2) and whole.dtype == np.float32
    empty = reader.read(frames[:0])
    assert empty.shape == (0, 2) and empty.dtype == np.float32
    with pytest.raises(OneiroError, match=r"a reader of \(17, 14\) frames was shown frames of \(17, 13\)"):
        reader.read(frames[:, :, :13])


def test_a_folder_says_which_reader_it_holds(tmp_path: Path) -> None:
    torch.manual_seed(0)
    reader = PixelReader(SIZE, 3, SETTINGS)
    reader.scale.copy_(torch.tensor([2.0, 3.0, 4.0]))
    reader.save(tmp_path)
    again = PixelReader.load(tmp_path)
    assert (again.size, again.outputs, again.settings, again.training) == (SIZE, 3, SETTINGS, False)
    assert all(
        torch.equal(a, b) for a, b in zip(reader.state_dict().values(), again.state_dict().values(), strict=True)
    )


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
