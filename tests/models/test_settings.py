"""Settings that make no sense are refused, in one line."""

from __future__ import annotations

import pytest

from oneiro.models.language import LoraSettings, ModelSettings
from oneiro.recipe import build
from oneiro.runtime.errors import OneiroError


@pytest.mark.parametrize(("width", "heads"), [(32, 5), (30, 4), (36, 8), (12, 12)])
def test_heads_of_an_odd_size_are_refused(width: int, heads: int) -> None:
    with pytest.raises(OneiroError, match=f"width {width} must be a multiple of 2 x heads = {2 * heads}"):
        build(ModelSettings, {"width": width, "heads": heads})


def test_heads_that_divide_the_width_are_taken() -> None:
    assert build(ModelSettings, {"width": 24, "heads": 12}).width == 24


def test_few_bits_need_an_adapter_and_a_model_that_has_weights() -> None:
    assert ModelSettings(name="org/model", quantise="4bit", lora=LoraSettings()).quantise == "4bit"
    with pytest.raises(ValueError, match="quantise=8bit leaves no weights that can learn"):
        ModelSettings(name="org/model", quantise="8bit")
    with pytest.raises(ValueError, match="nothing to quantise"):
        ModelSettings(quantise="4bit", lora=LoraSettings())
    # 10 x (300 + 2 x (40 + 60)) = 5,000.
    assert ModelSettings(layers=2, width=10, heads=5, mlp=20, vocabulary=300).parameters == 5000
    assert ModelSettings(name="org/model").parameters is None
