"""The published sizes run: one update of each model at 256x320. Minutes, and 6 GB."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from oneiro.learning.batch import Example
from oneiro.learning.learner import Learner, LearnerSettings
from oneiro.learning.reconstruction import ReconstructionSettings, train
from oneiro.models.video import tokenizer as tokenizers
from oneiro.models.video.layout import Layout
from oneiro.models.video.tokenizer import CompressiveTokenizerSettings, FrameTokenizerSettings, TokenizerSettings
from oneiro.tasks.video.model import TransformerSettings, create_transformer

SIZE = {"height": 256, "width": 320}


@pytest.mark.published
@pytest.mark.parametrize(
    ("settings", "length"),
    [(FrameTokenizerSettings(**SIZE), 1), (CompressiveTokenizerSettings(**SIZE), 2)],  # the second needs a context
    ids=["frame", "compressive"],
)
def test_a_published_tokenizer_takes_one_step(settings: TokenizerSettings, length: int, tmp_path: Path) -> None:
    frames = torch.rand(1, length, 3, 256, 320, generator=torch.Generator().manual_seed(0))
    made = tokenizers.create(settings, device="cpu")
    logged: list[float] = []
    how = ReconstructionSettings(steps=1, lpips=0)
    train(made, how, lambda number: frames, None, tmp_path, 0, lambda step, values: logged.append(values["grad_norm"]))
    context, tokens = made.encode(frames[:, :1])
    assert logged[0] > 0 and tokens.shape == (1, 1, made.frame_tokens)
    assert made.decode(context, tokens[:, :1]).shape == (1, 1, 3, 256, 320)


@pytest.mark.published
@pytest.mark.parametrize(
    ("layout", "loss_tokens"),
    [(Layout.single_step(4375, 320, 13), 320), (Layout.multi_step(4375, 80, 1280, 13), 560)],
    ids=["single", "multi"],
)
def test_a_published_transformer_takes_one_step(layout: Layout, loss_tokens: int) -> None:
    language = create_transformer(TransformerSettings(layers=12, width=768, heads=12, mlp=3072), layout, 0)
    random = np.random.default_rng(0)
    context = random.integers(4375, size=layout.context_tokens)
    frames, actions = (
        random.integers(4375, size=(layout.frames, layout.frame_tokens)),
        np.zeros((layout.frames, 13), int),
    )
    row = layout.row(context, frames, actions)
    assert row.weights("ce").sum() == loss_tokens
    values = Learner(language.backbone, LearnerSettings(), 1).update([Example.of(row)])
    assert values["ce"] == pytest.approx(np.log(4375), rel=0.2) and values["grad_norm"] > 0
