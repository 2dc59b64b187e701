from __future__ import annotations

import copy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import (
    AutoModelForCausalLM,
    Gemma2Config,
    Gemma3TextConfig,
    GemmaConfig,
    GraniteConfig,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    Qwen2Config,
    Qwen3Config,
    SmolLM3Config,
)
from transformers.models.gemma.modeling_gemma import GemmaRMSNorm

from oneiro.episode import Row, given
from oneiro.learning.batch import Example
from oneiro.learning.learner import Learner, LearnerSettings
from oneiro.models import language as languages
from oneiro.models.attention import AfterPrefix, Causal, Prefill
from oneiro.models.backbone import Backbone, fuse, logit_scale, most_positions
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


@pytest.mark.parametrize("checkpointing", [False, True])
@pytest.mark.parametrize("family", FAMILIES)
def test_wanted_places_have_the_states_and_gradients_of_the_whole(family: str, checkpointing: bool) -> None:
    backbone = Backbone(random_model(FAMILIES[family]))
    backbone.gradient_checkpointing = checkpointing
    tokens, wanted = torch.randint(0, 97, (3, 7)), torch.tensor([2, 9, 9, 20])
    whole = backbone(tokens, torch.arange(7), Causal()).flatten(0, 1)[wanted]
    some = backbone(tokens, torch.arange(7), Causal(), wanted)
    torch.testing.assert_close(some, whole)
    parameters = [p for p in backbone.parameters() if p.requires_grad]
    expected, found = (torch.autograd.grad(x.square().sum(), parameters, allow_unused=True) for x in (whole, some))
    for a, b in zip(found, expected, strict=True):
        if b is not None:
            torch.testing.assert_close(a, b, atol=1e-4, rtol=1e-4)


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
    from oneiro.learning.batch import Example
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


LLAMA_SIZES = {
    "vocab_size": 50, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 300,
}  # fmt: skip


def llama(**more: Any) -> LlamaForCausalLM:
    torch.manual_seed(0)
    return LlamaForCausalLM(LlamaConfig(**{**LLAMA_SIZES, **more})).eval()


def test_a_shape_has_the_sizes_of_its_model() -> None:
    found = Backbone(llama(head_dim=6)).shape
    assert (found.layers, found.width, found.heads, found.kv_heads, found.head_dim) == (2, 16, 4, 2, 6)
    assert (found.mlp, found.vocabulary) == (24, 50)
    assert found.parameters == sum(p.numel() for p in llama(head_dim=6).parameters())
    assert Backbone(llama()).shape.head_dim == 4


def test_a_shape_knows_what_the_cache_of_transformers_keeps_of_a_token() -> None:
    model = llama(head_dim=6)
    cache = model(torch.arange(5)[None], use_cache=True).past_key_values
    numbers = sum(layer.keys.numel() + layer.values.numel() for layer in cache.layers)
    assert 5 * Backbone(model).shape.remembered == numbers


def test_a_shape_estimates_what_an_update_saves_of_a_token() -> None:
    """Numbers that autograd saves for 40 tokens less those for 20: what 20 tokens need, without weights and heads."""

    def saved(tokens: int) -> int:
        backbone, kept = Backbone(llama(head_dim=6)), dict[int, Tensor]()
        weights = {parameter.untyped_storage().data_ptr() for parameter in backbone.parameters()}

        def keep(tensor: Tensor) -> Tensor:
            if tensor.untyped_storage().data_ptr() not in weights:
                kept[tensor.untyped_storage().data_ptr()] = tensor
            return tensor

        row = Row([given([1]), given([2] * tokens, ce=1.0)])
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            Learner(backbone, LearnerSettings(), 1).update([Example.of(row)])
        return sum(tensor.untyped_storage().nbytes() // tensor.itemsize for tensor in kept.values())

    measured = (saved(40) - saved(20)) / 20
    assert 0.7 * measured < Backbone(llama(head_dim=6)).shape.kept < 1.4 * measured


def test_limits_are_read_from_a_configuration() -> None:
    def scale(**known: Any) -> float:
        return logit_scale(SimpleNamespace(**known))

    assert scale() == 1 and scale(logit_scale=None, logits_scaling=None) == 1
    assert scale(logit_scale=0.5) == 0.5 and scale(lm_head_multiplier=3.0) == 3.0
    assert (
        scale(logits_scaling=4.0) == 0.25 and scale(logit_scale=2.0, lm_head_multiplier=9.0, logits_scaling=8.0) == 0.25
    )

    def most(rope: Any, **known: Any) -> int | None:
        return most_positions(SimpleNamespace(rope_parameters=rope, **known))

    by_length = {"rope_type": "dynamic", "original_max_position_embeddings": 64}
    assert most(None, max_position_embeddings=512) == 512 and most(None) is None
    assert most({"rope_type": "llama3", "original_max_position_embeddings": 64}, max_position_embeddings=512) == 512
    assert most(by_length, max_position_embeddings=512) == 64 and most(by_length, max_position_embeddings=32) == 32
    assert most({"rope_type": "longrope"}, max_position_embeddings=512) == 512 and most(by_length) == 64
    kinds = {"full": {"rope_type": "default"}, "sliding": by_length}
    assert most(kinds, max_position_embeddings=512) == 64 and most({}, max_position_embeddings=512) == 512


def test_tables_of_rotations_grow_by_powers_of_two_up_to_the_models_positions() -> None:
    backbone = Backbone(llama())
    like = torch.zeros(1, 1, 16)
    sizes = []
    for last in (3, 255, 256, 299):
        (cos, sin), *_ = [found for found in backbone.rotations(torch.tensor([0, last]), like).values() if found]
        sizes.append(len(next(iter(backbone._tables.values()))[0]))
        angles = torch.tensor([0.0, last])[:, None] / 10000 ** (torch.arange(2) / 2)
        torch.testing.assert_close(cos[:, 0], angles.cos(), atol=1e-4, rtol=1e-4)
        torch.testing.assert_close(sin[:, 0], angles.sin(), atol=1e-4, rtol=1e-4)
    assert sizes == [256, 256, 300, 300]
    free = Backbone(llama(max_position_embeddings=4096))
    free.rotations(torch.tensor([600]), like)
    assert len(next(iter(free._tables.values()))[0]) == 1024
    free.most_positions = None
    free.rotations(torch.tensor([1024]), like)
    assert len(next(iter(free._tables.values()))[0]) == 2048


def test_fused_projections_hold_the_originals_in_order() -> None:
    linears = [nn.Linear(4, size) for size in (3, 2, 5)]
    before = [(linear.weight.detach().clone(), linear.bias.detach().clone()) for linear in linears]
    weight, bias = fuse(linears)
    assert bias is not None and torch.equal(weight, torch.cat([w for w, _ in before]))
    assert torch.equal(bias, torch.cat([b for _, b in before]))
    with torch.no_grad():
        weight.mul_(2)
        bias.add_(1)
    for linear, (w, b) in zip(linears, before, strict=True):
        assert torch.equal(linear.weight, 2 * w) and torch.equal(linear.bias, b + 1)
    assert fuse([nn.Linear(4, 2, bias=False)])[1] is None


def test_layers_are_computed_again_only_where_gradients_are_wanted_and_nothing_is_remembered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    backbone, calls = Backbone(llama()), []
    from oneiro.models import backbone as module

    def counted(block: Any, *arguments: Any, use_reentrant: bool) -> torch.Tensor:
        calls.append(use_reentrant)
        return block(*arguments)

    monkeypatch.setattr(module, "checkpoint", counted)
    tokens, positions = torch.arange(6)[None], torch.arange(6)
    assert backbone.gradient_checkpointing is False and backbone.waits is False and backbone.keeps == 1.0
    backbone(tokens, positions, Causal())
    assert calls == []
    backbone.gradient_checkpointing = True
    backbone(tokens, positions, Prefill())
    with torch.no_grad():
        backbone(tokens, positions, Causal())
    assert calls == []
    backbone(tokens, positions, Causal())
    assert calls == [False, False]


def test_the_forward_of_a_model_scales_what_its_configuration_scales() -> None:
    plain, scaled = Backbone(llama()), Backbone(llama(logit_scale=0.25))
    tokens, positions = torch.arange(5)[None], torch.arange(5)
    torch.testing.assert_close(scaled(tokens, positions, Causal()), 0.25 * plain(tokens, positions, Causal()))
    expected = F.log_softmax(llama()(tokens).logits, -1)
    found = F.log_softmax(plain.output.logits(plain(tokens, positions, Causal())), -1)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)


SOME = {"vocab_size": 50, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4}


@pytest.mark.parametrize("biases", [{"attention_bias": True}, {"mlp_bias": True}, {}], ids=["attention", "mlp", "none"])
def test_a_layer_with_biases_in_one_half_keeps_them(biases: dict[str, Any]) -> None:
    torch.manual_seed(0)
    model = LlamaForCausalLM(LlamaConfig(**SOME, num_key_value_heads=2, **biases)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    tokens = torch.arange(7)[None]
    expected = model(tokens).logits.detach()
    backbone = Backbone(model)
    assert [block.written_out for block in backbone.blocks] == [not biases] * 2
    assert backbone.keeps == (2.6 if biases else 1.0)
    found = backbone.output.logits(backbone(tokens, torch.arange(7), Causal()))
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("target", ["q_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"])
def test_an_adapter_on_one_projection_takes_part(target: str) -> None:
    language = with_lora(make_tiny(), LoraSettings(rank=2, targets=(target,)))
    with torch.no_grad():
        for _, parameter in language.trainable():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1)))
    tokens = torch.arange(7)[None]
    expected = language.model(tokens).logits.detach()
    found = language.backbone.output.logits(language.backbone(tokens, torch.arange(7), Causal()))
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)
    assert language.backbone.keeps == 2.6 and not any(block.written_out for block in language.backbone.blocks)
    assert all(block.fused == (target in ("o_proj", "down_proj")) for block in language.backbone.blocks)
