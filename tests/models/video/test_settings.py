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


ONE_LAYER_COMPRESSIVE = CompressiveTokenizerSettings(
    height=32, width=48, patch=2, channels=(16, 32), layers=1, latent=8, levels=(8, 5, 5), squares=2, attend_up_to=8
)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [({"heads": 3}, "no multiple of heads = 3"), ({"height": 8, "width": 8}, "greater than or equal to 16")],
)
def test_sizes_that_no_tokenizer_can_have_are_refused(wrong: dict[str, int], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        CompressiveTokenizerSettings(**{**ONE_LAYER_COMPRESSIVE.model_dump(), **wrong})


def test_heads_must_divide_only_the_channels_that_look_at_the_context() -> None:
    # 32 high, folded by 2 and halved twice: features are 8, 4 and 4 high, and the first stage does not look.
    sizes = {**ONE_LAYER_COMPRESSIVE.model_dump(), "channels": (16, 24, 12), "attend_up_to": 4, "heads": 12}
    assert CompressiveTokenizerSettings(**sizes).attending == {1: (4, 6), 2: (4, 6)}
    with pytest.raises(ValidationError, match="16 channels that look"):
        CompressiveTokenizerSettings(**{**sizes, "attend_up_to": 8})


@pytest.mark.parametrize("wrong", [{"height": 30}, {"channels": ()}, {"levels": (1, 5)}])
def test_sizes_that_do_not_fit_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError):
        FrameTokenizerSettings(**{"height": 32, "width": 32, "channels": (8, 8, 8)} | wrong)  # type: ignore[arg-type]


def test_two_levels_are_enough_for_a_digit() -> None:
    assert FrameTokenizerSettings(channels=(8, 8), levels=(2, 2)).levels == (2, 2)
