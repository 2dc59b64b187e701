"""Settings that make no sense are refused, in one line."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from oneiro.models.video.settings import TransformerSettings
from oneiro.models.video.tokenizer import CompressiveTokenizerSettings, FrameTokenizerSettings

SIZE = {"height": 32, "width": 48, "patch": 2, "layers": 2, "latent": 6, "levels": (8, 5, 4)}


FRAME = FrameTokenizerSettings(**SIZE, channels=(16, 24, 48))


COMPRESSIVE = CompressiveTokenizerSettings(**SIZE, channels=(16, 24, 48), squares=2, attend_up_to=4, heads=3)


def test_sizes_at_their_limits() -> None:
    assert (FRAME.factor, FRAME.grid) == (8, (4, 6))
    # 16 rows of 2x2 squares are halved twice: after the stages features are 8, 4 and 4 high.
    assert COMPRESSIVE.attending == {1: (4, 6), 2: (4, 6)}
    sizes = COMPRESSIVE.model_dump()
    assert CompressiveTokenizerSettings(**{**sizes, "attend_up_to": 8, "heads": 2}).attending[0] == (8, 12)
    assert CompressiveTokenizerSettings(**{**sizes, "attend_up_to": 3}).attending == {}
    for wrong, said in (
        ({"squares": 3}, "a grid of 4x6 has no squares of 3"),
        ({"squares": 4}, "no squares of 4"),
        ({"heads": 5}, "24 channels that look"),
        ({"heads": 5, "attend_up_to": 1}, "48 channels that look"),
        ({"width": 44}, "32x44 frames cannot be made 8 times smaller"),
        ({"height": 36}, "36x48 frames cannot"),
        ({"levels": ()}, "an entry each"),
        ({"levels": (5, 1)}, "at least 2"),
    ):
        with pytest.raises(ValidationError, match=said):
            CompressiveTokenizerSettings(**{**sizes, **wrong})
    with pytest.raises(ValidationError, match="an entry each"):
        FrameTokenizerSettings(channels=())


def test_a_transformer_of_another_name_brings_all_of_its_sizes() -> None:
    sizes = {"layers": 1, "width": 16, "heads": 2, "mlp": 8}
    assert TransformerSettings(name="large", **sizes).width == 16  # type: ignore[arg-type]
    for missing in sizes:
        with pytest.raises(ValidationError, match="needs sizes of its own, layers, width, heads, mlp"):
            TransformerSettings(name="large", **{k: v for k, v in sizes.items() if k != missing})  # type: ignore[arg-type]
    assert TransformerSettings(layers=1).name == "small"
    with pytest.raises(ValidationError, match="width 24 must be a multiple of 2 x heads = 16"):
        TransformerSettings(width=24, heads=8)
