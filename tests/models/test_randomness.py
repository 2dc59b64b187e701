"""What makes weights leaves the global generators as they were, and does not depend on what state they were in."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from transformers import LlamaConfig

from oneiro.models import language as languages
from oneiro.models.admission import random_model, small_config
from oneiro.models.heads import OutcomeHead, ValueHead
from oneiro.models.language import LanguageModel, ModelSettings, create_tiny, with_lora
from oneiro.models.randomness import seeded
from oneiro.models.settings import LoraSettings
from oneiro.models.video import pixel
from oneiro.models.video import tokenizer as tokenizers
from oneiro.models.video.layout import Layout
from oneiro.models.video.perceptual import Lpips
from oneiro.models.video.pixel import PixelSettings
from oneiro.models.video.settings import FrameTokenizerSettings, TransformerSettings
from oneiro.tasks.video.model import create_transformer
from tests.conftest import global_generators

SMALL = ModelSettings(layers=1, width=16, heads=2, mlp=16)
FRAMES = FrameTokenizerSettings(height=16, width=16, patch=4, channels=(8, 8), layers=1, latent=4, levels=(3, 3))
READER = PixelSettings(steps=1, batch=2, channels=(4, 4), hidden=4)


def tiny() -> LanguageModel:
    return create_tiny(SMALL, ["hello world"], 3)


def saved_adapter(folder: Path) -> nn.Module:
    tiny().save(folder / "base")
    loaded = languages.load(str(folder / "base"))
    with_lora(loaded, LoraSettings(rank=2)).save(folder / "adapter")
    found: nn.Module = languages.load(str(folder / "adapter")).model
    return found


def reader(folder: Path) -> nn.Module:
    frames = np.zeros((2, 16, 16, 3), np.uint8)
    made = pixel.train_reader(frames, np.zeros((2, 1), np.float32), READER, 5)[-1]
    made.save(folder / "reader")
    return pixel.PixelReader.load(folder / "reader")


MAKERS: dict[str, Callable[[Path], nn.Module]] = {
    "tiny": lambda folder: tiny().model,
    "adapter": lambda folder: with_lora(tiny(), LoraSettings(rank=2)).model,
    "saved adapter": saved_adapter,
    "small": lambda folder: random_model(small_config(LlamaConfig()), 1),
    "value head": lambda folder: ValueHead(4),
    "outcome head": lambda folder: OutcomeHead(4, 2),
    "frame predictor": lambda folder: (
        create_transformer(TransformerSettings(layers=1, width=8, heads=1, mlp=8), Layout.single_step(9, 4, 2), 1).model
    ),
    "frame tokenizer": lambda folder: tokenizers.create(FRAMES, 1),
    "pixel reader": reader,
    "lpips": lambda folder: Lpips("alex"),
}


@pytest.mark.parametrize("name", MAKERS)
def test_weights_neither_move_the_global_generators_nor_depend_on_them(name: str, tmp_path: Path) -> None:
    found: list[dict[str, Tensor]] = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        before = global_generators()
        found.append(MAKERS[name](tmp_path / str(seed)).state_dict())
        assert global_generators() == before
    assert found[0].keys() == found[1].keys()
    assert all(torch.equal(found[0][key], found[1][key]) for key in found[0])


def test_inside_the_seed_counts_and_afterwards_what_was_there_goes_on() -> None:
    torch.manual_seed(11)
    first, _, third = torch.rand(1), torch.manual_seed(5), torch.rand(3)
    torch.manual_seed(11)
    assert torch.equal(torch.rand(1), first)
    expected = torch.get_rng_state()
    with seeded(5):
        assert torch.equal(torch.rand(3), third)
    assert torch.equal(torch.get_rng_state(), expected)
    with seeded((1 << 63) + 5):  # torch takes no larger ones
        assert torch.equal(torch.rand(3), third)
    with pytest.raises(ZeroDivisionError), seeded(5):
        raise ZeroDivisionError
    assert torch.equal(torch.get_rng_state(), expected)
