"""Small models of any architecture."""

from __future__ import annotations

import pytest
import torch
from transformers import DeepseekV3Config, LlamaConfig, MixtralConfig, Qwen3Config

from oneiro.models.admission import first_of_each
from oneiro.models.small import first_kinds, random_model, small_config


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
