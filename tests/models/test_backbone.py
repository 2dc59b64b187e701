from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from transformers import (
    AutoModelForCausalLM,
    Gemma2Config,
    Gemma3TextConfig,
    GemmaConfig,
    GraniteConfig,
    LlamaConfig,
    MistralConfig,
    Qwen2Config,
    Qwen3Config,
    SmolLM3Config,
)
from transformers.models.gemma.modeling_gemma import GemmaRMSNorm

from oneiro.models import language as languages
from oneiro.models.attention import AfterPrefix, Causal, Prefill
from oneiro.models.backbone import Backbone
from oneiro.models.language import LanguageModel, LoraSettings, with_lora
from oneiro.runtime.errors import OneiroError
from tests.conftest import make_tiny

SIZES = {
    "vocab_size": 97,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "pad_token_id": 0,
}
FAMILIES = {
    "llama": LlamaConfig(**SIZES),
    "llama with scaled rotary positions": LlamaConfig(
        **SIZES,
        rope_parameters={
            "rope_type": "llama3",
            "rope_theta": 10000.0,
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 16,
        },
    ),
    "llama with biases": LlamaConfig(**SIZES, attention_bias=True, mlp_bias=True),
    "mistral": MistralConfig(**SIZES, sliding_window=None),
    "mistral with a window": MistralConfig(**SIZES, sliding_window=4),
    "qwen2": Qwen2Config(**SIZES, tie_word_embeddings=True),
    "qwen2 with windows": Qwen2Config(**SIZES, use_sliding_window=True, sliding_window=4, max_window_layers=1),
    "qwen3": Qwen3Config(**SIZES, head_dim=16),
    "qwen3 with biases": Qwen3Config(**SIZES, head_dim=16, attention_bias=True),
    "smollm3": SmolLM3Config(**SIZES, no_rope_layers=[1, 0, 1]),
    "smollm3 with biases": SmolLM3Config(**SIZES, attention_bias=True, mlp_bias=True),
    "granite": GraniteConfig(
        **SIZES, attention_multiplier=0.3, residual_multiplier=0.4, embedding_multiplier=5.0, logits_scaling=3.0
    ),
    "gemma": GemmaConfig(**SIZES, head_dim=16),
    "gemma2": Gemma2Config(**SIZES, head_dim=16, sliding_window=4, attn_logit_softcapping=2.0),
    "gemma3": Gemma3TextConfig(
        **SIZES, head_dim=16, sliding_window=4, layer_types=["sliding_attention", "full_attention", "sliding_attention"]
    ),
    "rotary positions by length": LlamaConfig(
        **SIZES,
        max_position_embeddings=512,
        rope_parameters={
            "rope_type": "longrope",
            "rope_theta": 10000.0,
            "short_factor": [1.0, 1.5, 2.0, 2.5],
            "long_factor": [4.0, 8.0, 16.0, 32.0],
            "original_max_position_embeddings": 64,
        },
    ),
}


def random_model(config: object) -> torch.nn.Module:
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model.eval()


@pytest.mark.parametrize("family", FAMILIES)
def test_the_forward_is_that_of_transformers(family: str) -> None:
    model = random_model(FAMILIES[family])
    tokens = torch.randint(0, 97, (3, 23))
    with torch.no_grad():
        expected = model(tokens).logits
        backbone = Backbone(model)
        hidden = backbone(tokens, torch.arange(23), Causal())
        torch.testing.assert_close(backbone.output.logits(hidden), expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_row_after_a_shared_prefix_is_the_row_alone(family: str) -> None:
    backbone = Backbone(random_model(FAMILIES[family]))
    prefixes, lengths, owner = torch.randint(0, 97, (2, 9)), torch.tensor([9, 5]), torch.tensor([0, 1, 1])
    rows = torch.randint(0, 97, (3, 6))
    remember = Prefill()
    backbone(prefixes, torch.arange(9), remember)
    positions = lengths[owner][:, None] + torch.arange(6)
    together = backbone(rows, positions, AfterPrefix(remember.kv_cache, owner, lengths, 6))
    for b in range(3):
        whole = torch.cat([prefixes[owner[b], : lengths[owner[b]]], rows[b]])[None]
        alone = backbone(whole, torch.arange(whole.shape[1]), Causal())
        torch.testing.assert_close(together[b], alone[0, -6:], atol=1e-4, rtol=1e-4)


def test_fused_weights_are_the_models_own(tiny: LanguageModel) -> None:
    tokens = torch.randint(0, 300, (1, 8))
    before = tiny.model(tokens).logits
    with torch.no_grad():
        tiny.backbone.blocks[0].qkv_weight.mul_(1.5)
        tiny.backbone.blocks[1].gate_up_weight.mul_(0.5)
    after = tiny.model(tokens).logits
    assert not torch.allclose(before, after)
    hidden = tiny.backbone(tokens, torch.arange(8), Causal())
    torch.testing.assert_close(hidden @ tiny.backbone.head_weight.T, after, atol=1e-5, rtol=1e-4)


def test_a_saved_model_loads_anywhere_and_bit_for_bit(tiny: LanguageModel, tmp_path: Path) -> None:
    tiny.metadata = {"world": {"name": "frozen-lake"}}
    folder = tiny.save(tmp_path / "model")
    tokens = torch.randint(0, 300, (2, 8))
    foreign = AutoModelForCausalLM.from_pretrained(folder)
    assert torch.equal(foreign(tokens).logits, tiny.model(tokens).logits)
    again = languages.load(str(folder))
    assert again.metadata == tiny.metadata
    assert again.decode(again.encode("P _ O <think>Up")) == "P _ O <think>Up"
    for (name, a), (_, b) in zip(tiny.trainable(), again.trainable(), strict=True):
        assert torch.equal(a, b), name


def test_an_adapter_learns_saves_and_merges(tmp_path: Path) -> None:
    from oneiro.episode import Row, given
    from oneiro.learning.example import Example
    from oneiro.learning.learner import Learner, LearnerSettings

    base = make_tiny()
    base.save(tmp_path / "base")
    language = with_lora(languages.load(str(tmp_path / "base")), LoraSettings(rank=4))
    names = [name for name, _ in language.trainable()]
    assert names and all("lora" in name for name in names)
    learner = Learner(language.backbone, LearnerSettings(), 20)
    example = Example.of(Row([given([1, 2, 3]), given([7, 8, 9, 10], ce=1.0)]))
    losses = [learner.update([example])["ce"] for _ in range(20)]
    assert losses[-1] < 0.8 * losses[0]
    language.save(tmp_path / "adapter")
    (tmp_path / "file").touch()
    with pytest.MonkeyPatch.context() as patch:  # said before minutes of loading
        patch.setattr(languages, "load", lambda *given: pytest.fail("loaded first"))
        with pytest.raises(OneiroError, match=r"cannot write .*/file/merged: .*/file is no folder; choose another"):
            languages.merge(tmp_path / "adapter", tmp_path / "file" / "merged")
    merged = languages.merge(tmp_path / "adapter", tmp_path / "merged")
    tokens = torch.randint(0, 300, (2, 8))
    expected = language.model(tokens).logits
    alone = AutoModelForCausalLM.from_pretrained(merged)(tokens).logits
    torch.testing.assert_close(alone, expected, atol=1e-4, rtol=1e-3)
    assert not torch.allclose(base.model(tokens).logits, expected, atol=1e-3)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda p: None, "no model folder"),
        (lambda p: p.mkdir(), "holds no model"),
        (lambda p: (p.mkdir(), (p / "config.json").write_text("{")), "cannot load a language model"),
    ],
)
def test_a_folder_without_a_model_is_one_clear_line(tmp_path: Path, make: object, message: str) -> None:
    make(tmp_path / "x")  # type: ignore[operator]
    with pytest.raises(OneiroError, match=message) as caught:
        languages.load(str(tmp_path / "x"))
    assert "\n" not in str(caught.value)


class Adapted(nn.Linear):
    """A linear layer that does more than its weight says."""


def test_only_a_plain_layer_has_written_out_gradients() -> None:
    block = make_tiny().backbone.blocks[0]
    assert block.written_out and block._is_plain()
    width, other = block.out.out_features, GemmaRMSNorm(8)
    changes: dict[str, Any] = {
        "attention_norm": other,
        "mlp_norm": other,
        "query_norm": other,
        "mlp_out_norm": block.mlp_norm,
        "residual": 0.5,
        "activation": nn.GELU(),
        "out": nn.Linear(width, width, bias=True),
        "down": Adapted(width, width, bias=False),
        "projections": [block.projections[0], [nn.Linear(width, width, bias=True)]],
    }
    for name, value in changes.items():
        changed = copy.deepcopy(block)
        setattr(changed, name, value)
        assert not changed._is_plain(), name
    qwen = copy.deepcopy(block)
    qwen.query_norm = block.mlp_norm
    qwen.projections = [[nn.Linear(width, width, bias=True)], block.projections[1]]
    assert qwen._is_plain()
