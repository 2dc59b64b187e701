"""Models that are computed otherwise than by transformers are refused."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn
from transformers import DeepseekV3Config, LlamaConfig, MixtralConfig, Qwen3Config

from oneiro.models import admission
from oneiro.models.admission import (
    excerpt,
    first_kinds,
    first_layers,
    first_of_each,
    probe,
    random_model,
    small_config,
    without_quantisation,
)
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


def test_a_small_configuration_keeps_its_kind_and_shrinks_its_sizes() -> None:
    small = small_config(LlamaConfig(attention_bias=True, rope_parameters={"rope_type": "default", "rope_theta": 5.0}))
    assert (small.hidden_size, small.num_hidden_layers, small.num_attention_heads, small.head_dim) == (64, 4, 4, 16)
    assert (small.num_key_value_heads, small.intermediate_size, small.vocab_size) == (2, 96, 160)
    assert (small.max_position_embeddings, small.attention_bias) == (256, True)
    assert small.rope_parameters["rope_theta"] == 5.0
    experts = small_config(MixtralConfig())
    assert (experts.num_local_experts, experts.num_experts_per_tok, experts.sliding_window) == (4, 2, None)
    compressed = small_config(DeepseekV3Config())
    assert (compressed.qk_rope_head_dim, compressed.head_dim, compressed.num_key_value_heads) == (8, 8, 4)
    kinds = ["full_attention"] * 5 + ["sliding_attention"] * 2
    windows = Qwen3Config(num_hidden_layers=7, layer_types=kinds, use_sliding_window=True, sliding_window=99)
    assert small_config(windows).layer_types == ["full_attention"] * 3 + ["sliding_attention"]
    assert small_config(windows).sliding_window == 8 and windows.num_hidden_layers == 7


def test_kinds_of_layers_keep_the_order_of_their_first_appearance() -> None:
    assert first_kinds(["a", "b", "a", "a", "c"], 4) == ["a", "a", "b", "c"]
    assert first_kinds(["a", "b", "c"], 2) == ["a", "b"] and first_kinds(["a"] * 6, 4) == ["a"] * 4
    assert first_kinds(["a", "b", "c", "d"], 4) == ["a", "b", "c", "d"]
    assert [first_of_each(k) for k in (["a"] * 5, ["a"], ["a", "b", "b"], ["a", "a", "a", "b"])] == [2, 1, 2, 4]


def test_a_random_model_has_no_weight_left_as_it_was_made() -> None:
    config = small_config(LlamaConfig(attention_bias=True))
    torch.manual_seed(3)
    before = torch.get_rng_state()
    one, two, three = random_model(config), random_model(config), random_model(config, seed=1)
    assert torch.equal(torch.get_rng_state(), before) and not one.training and one.dtype == torch.float32
    for (name, a), b, c in zip(one.named_parameters(), two.parameters(), three.parameters(), strict=True):
        assert torch.equal(a, b) and not torch.equal(a, c), name
    for name, parameter in one.named_parameters():
        if "norm" in name or "bias" in name:
            assert float((parameter - float("norm" in name)).detach().std()) == pytest.approx(0.1, rel=0.5), name
