"""Models that are computed otherwise than by transformers are refused."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn
from transformers import LlamaConfig, Qwen3Config

from oneiro.models import admission
from oneiro.models.admission import excerpt, first_layers, probe, without_quantisation
from oneiro.models.small import random_model, small_config
from oneiro.runtime.errors import OneiroError


def test_an_excerpt_has_the_first_layers_and_short_windows_and_leaves_the_model_alone() -> None:
    kinds = ["full_attention"] * 3 + ["sliding_attention"] * 3
    config = small_config(Qwen3Config())
    data = {**config.to_dict(), "num_hidden_layers": 6, "layer_types": kinds, "sliding_window": 20}
    model = random_model(Qwen3Config(**{**data, "use_sliding_window": True, "max_window_layers": 3})).bfloat16()
    part = excerpt(model)
    assert len(part.model.layers) == 4 and part.config.num_hidden_layers == 4 and part.dtype == torch.float32
    assert part.config.sliding_window == 5 and part.model.layers[3].self_attn.sliding_window == 5
    assert part.model.layers[0].self_attn.sliding_window is None
    assert len(model.model.layers) == 6 and model.config.num_hidden_layers == 6 and model.config.sliding_window == 20
    with first_layers(SimpleNamespace(config=model.config, modules=lambda: [])):  # no list of layers: all of it
        assert model.config.num_hidden_layers == 6
    assert max(probe(model.float()).values()) < 1e-5
    assert set(probe(model)) == {"row by row", "behind a shared prefix", "in packed groups", "token by token"}


def test_a_model_that_answers_differently_is_refused_with_the_worst_way(monkeypatch: pytest.MonkeyPatch) -> None:
    model = random_model(small_config(LlamaConfig()))
    monkeypatch.setattr(admission, "probe", lambda model: {"row by row": 1e-5, "token by token": 2.1e-4})
    with pytest.raises(OneiroError, match=r"'llama' are not supported.*\(token by token, its logits differ by 2e-04"):
        admission.admit(model)
    for good in ({"row by row": 2e-4}, {}):
        monkeypatch.setattr(admission, "probe", lambda model, good=good: good)
        admission.admit(model)
    monkeypatch.setattr(admission, "probe", lambda model: {"row by row": float("nan")})
    with pytest.raises(OneiroError, match="not supported"):
        admission.admit(model)
    with pytest.raises(OneiroError, match="architecture 'odd' are not supported"):
        admission.backbone_of(SimpleNamespace(config=SimpleNamespace(model_type="odd")))


def test_weights_in_few_bits_are_answered_for_by_a_small_model() -> None:
    model = random_model(small_config(LlamaConfig()))
    model.config.quantization_config = {"kind": "4bit"}
    assert not hasattr(without_quantisation(model.config), "quantization_config") and hasattr(
        model.config, "quantization_config"
    )
    model.is_quantized = True
    with torch.no_grad():
        model.lm_head.weight.fill_(torch.nan)  # never looked at
    assert max(probe(model).values()) < 1e-5
    assert not admission.is_quantised(nn.Linear(1, 1))


def test_a_probe_that_fails_is_one_line_of_the_architecture(monkeypatch: pytest.MonkeyPatch) -> None:
    model = random_model(small_config(LlamaConfig()))
    for error, said in ((OneiroError("known"), "^known$"), (IndexError("odd"), "'llama' are not supported")):

        def ways(*arguments: Any, error: Exception = error) -> Any:
            raise error

        monkeypatch.setattr(admission, "ways", ways)
        with pytest.raises(OneiroError, match=said):
            probe(model)
