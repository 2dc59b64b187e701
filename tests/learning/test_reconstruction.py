"""Tokenizer training: it learns, counts honestly, and a killed run ends where an undisturbed one would have."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from oneiro.learning.reconstruction import DiscriminatorLossSettings, ReconstructionSettings, losses, train
from oneiro.models.video import tokenizer as tokenizers
from oneiro.models.video.tokenizer import (
    CompressiveTokenizerSettings,
    FrameTokenizerSettings,
    Reconstruction,
    TokenizerSettings,
)

SIZE: dict[str, Any] = {"height": 16, "width": 16, "patch": 4, "channels": (16, 16), "layers": 1, "latent": 8}
FRAME = FrameTokenizerSettings(**SIZE, levels=(8, 5, 5))
COMPRESSIVE = CompressiveTokenizerSettings(**SIZE, levels=(8, 5, 5), squares=1, dropout=0.05)
ADVERSARY = DiscriminatorLossSettings(start=0.4, alternate=True, network={"channels": (8, 8)})  # type: ignore[arg-type]


class Stopped(Exception):
    pass


def bars(number: int) -> torch.Tensor:
    """A bright bar that walks over a dark frame: [2, 3, 3, 16, 16]."""
    generator = torch.Generator().manual_seed(number)
    starts = torch.randint(0, 13, (2, 1), generator=generator) + torch.arange(3)
    column = torch.arange(16)
    lit = ((column >= starts[..., None]) & (column < starts[..., None] + 3)).float()
    return (0.2 + 0.6 * lit)[:, :, None, None, :].expand(2, 3, 3, 16, 16).contiguous()


def go(
    settings: TokenizerSettings, how: ReconstructionSettings, folder: Path, stop: int = 0
) -> list[tuple[int, dict[str, float]]]:
    logged: list[tuple[int, dict[str, float]]] = []

    def log(step: int, values: dict[str, float]) -> None:
        logged.append((step, values))
        if step == stop:
            raise Stopped

    train(tokenizers.create(settings, 3, "cpu"), how, bars, None, folder, 5, log)
    return logged


def schedule(steps: int, **more: Any) -> ReconstructionSettings:
    return ReconstructionSettings(steps=steps, lpips=0, checkpoint_every=2, **more)


@pytest.mark.parametrize(
    "settings", [FRAME, pytest.param(COMPRESSIVE, marks=pytest.mark.thorough)], ids=["frame", "compressive"]
)
def test_a_walking_bar_is_learned(settings: TokenizerSettings, tmp_path: Path) -> None:
    fast = {"lr": 5e-3, "schedule": "cosine", "warmup": 0.1, "weight_decay": 0.0}
    how = schedule(50, mse=5.0, optimiser=fast).model_copy(update={"checkpoint_every": 100})
    logged = go(settings, how, tmp_path)
    tokenizer = tokenizers.load(tmp_path, "cpu")
    frames = bars(1000)
    context, tokens = tokenizer.encode(frames)
    error = float((tokenizer.decode(context, tokens) - frames).abs().mean())
    # Grey would be 0.3 away, and the mean frame 0.18.
    assert logged[0][1]["l1"] > 0.2 and error < 0.16
    assert logged[-1][1]["codes_used"] > 1


@pytest.mark.parametrize("settings", [FRAME, COMPRESSIVE], ids=["frame", "compressive"])
def test_a_stopped_training_ends_with_the_same_weights(settings: TokenizerSettings, tmp_path: Path) -> None:
    how = schedule(7, discriminator=ADVERSARY)
    alone = go(settings, how, tmp_path / "alone")
    with pytest.raises(Stopped):
        go(settings, how, tmp_path / "stopped", stop=5)
    rest = go(settings, how, tmp_path / "stopped")
    assert [step for step, _ in rest] == [5, 6, 7] and rest == alone[4:]
    one, two = (tokenizers.load(tmp_path / name, "cpu") for name in ("alone", "stopped"))
    for (name, before), after in zip(one.state_dict().items(), two.state_dict().values(), strict=True):
        assert torch.equal(before, after), name


def test_steps_count_updates_of_the_tokenizer_and_the_cosine_ends_at_zero(tmp_path: Path) -> None:
    how = schedule(10, discriminator=ADVERSARY, optimiser={"lr": 1e-3, "schedule": "cosine", "warmup": 0})
    logged = go(FRAME, how, tmp_path)
    assert [step for step, _ in logged] == list(range(1, 11))
    rates = [values["lr"] for _, values in logged]
    assert rates[0] == 1e-3 and rates[5] == pytest.approx(5e-4) and rates[-1] == pytest.approx(2.447e-5, rel=1e-3)
    # The opponent takes part from four tenths of the way on.
    assert ["discriminator" in values for _, values in logged] == [False] * 4 + [True] * 6


def test_the_loss_adds_frames_and_contexts_by_hand() -> None:
    made, true = torch.full((2, 3, 4, 4), 0.5), torch.full((2, 3, 4, 4), 0.25)
    context, true_context = torch.zeros(1, 3, 4, 4), torch.full((1, 3, 4, 4), 0.5)
    found = Reconstruction(made, true, context, true_context)
    how = ReconstructionSettings(l1=1.0, mse=2.0, lpips=3.0)
    total, terms = losses(found, how, lambda a, b: (a - b).amax(dim=(1, 2, 3)).abs(), None)
    # Frames: 0.25 + 2 * 0.0625 + 3 * 0.25; context: 0.5 + 2 * 0.25 + 3 * 0.5.
    assert float(total) == pytest.approx(1.125 + 2.5)
    assert (terms["l1"], terms["context_l1"], terms["lpips"], terms["context_lpips"]) == (0.25, 0.5, 0.25, 0.5)
