"""Models of other families, through their own layers."""

from __future__ import annotations

import copy
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn
from transformers import (
    AutoModelForCausalLM,
    CohereConfig,
    FalconH1Config,
    GPT2Config,
    GPTNeoXConfig,
    GptOssConfig,
    MambaConfig,
    Olmo2Config,
    Phi3Config,
    PhiConfig,
    PreTrainedConfig,
    StableLmConfig,
)

from oneiro.episode import Row, given
from oneiro.learning.batch import Example
from oneiro.learning.learner import Learner, LearnerSettings
from oneiro.models.admission import admit, backbone_of
from oneiro.models.attention import AfterPrefix, Causal, Prefill, PrefixGroups
from oneiro.models.backbone import Shape
from oneiro.models.foreign import ForeignBackbone, Unfit, by_plan
from oneiro.runtime.errors import OneiroError
from oneiro.sampling.engine import Engine, SamplingSettings
from tests.conftest import make_tiny

SIZES = {
    "vocab_size": 330,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "pad_token_id": 0,
}
FAMILIES = {
    "gpt-neox": GPTNeoXConfig(**SIZES),
    "gpt-2": GPT2Config(vocab_size=330, n_embd=32, n_layer=2, n_head=4),
    "olmo2": Olmo2Config(**SIZES, num_key_value_heads=2),
    "stablelm": StableLmConfig(**SIZES, num_key_value_heads=2),
    "phi": PhiConfig(**SIZES),  # its head has a bias
    "phi3": Phi3Config(**SIZES, sliding_window=4),
    "cohere": CohereConfig(**SIZES, num_key_value_heads=2, logit_scale=0.25),
    "gpt-oss": GptOssConfig(
        **SIZES,
        head_dim=16,
        num_key_value_heads=2,
        num_local_experts=4,
        num_experts_per_tok=2,
        sliding_window=4,
        layer_types=["sliding_attention", "full_attention"],
    ),
}


def random_model(config: PreTrainedConfig) -> torch.nn.Module:
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(copy.deepcopy(config))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    return model.eval()


@pytest.mark.parametrize("family", FAMILIES)
def test_every_plan_gives_what_the_model_gives_by_itself(family: str) -> None:
    model = random_model(FAMILIES[family])
    prefix, rows = torch.randint(0, 330, (1, 9)), torch.randint(0, 330, (2, 6))
    with torch.no_grad():
        wholes = torch.cat([prefix.expand(2, -1), rows], 1)
        expected = model(wholes).logits
        backbone = backbone_of(model)
        assert isinstance(backbone, ForeignBackbone)
        plain = backbone(wholes, torch.arange(15), Causal())
        torch.testing.assert_close(backbone.output.logits(plain), expected, atol=1e-4, rtol=1e-4)
        remember = Prefill()
        backbone(prefix, torch.arange(9), remember)
        after = AfterPrefix(remember.kv_cache, torch.tensor([0, 0]), torch.tensor([9]), 6)
        shared = backbone(rows, 9 + torch.arange(6)[None].expand(2, -1), after)
        torch.testing.assert_close(shared, plain[:, 9:], atol=1e-4, rtol=1e-4)
        sequence = torch.cat([prefix, rows.reshape(1, -1)], 1)
        row_id = torch.tensor([[0] * 9 + [1] * 6 + [2] * 6])
        positions = torch.tensor([[*range(9), *range(9, 15), *range(9, 15)]])
        packed = backbone(sequence, positions, PrefixGroups(row_id, torch.float32))
        torch.testing.assert_close(packed[0, 9:].reshape(2, 6, -1), plain[:, 9:], atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(
    ("family", "expected"),
    [
        # Tables 330 x 32 (its head is the same) and 1,024 x 32, two layers of 12,704 parameters, the last norm 64.
        ("gpt-2", Shape(2, 32, heads=4, kv_heads=4, head_dim=8, mlp=4 * 32, vocabulary=330, parameters=68_800)),
        # Tables and head 2 x 330 x 32, two layers: projections 3 x 1,536, attention 3,072, norms 32 + 16 + 2 x 32.
        ("olmo2", Shape(2, 32, heads=4, kv_heads=2, head_dim=8, mlp=48, vocabulary=330, parameters=36_736)),
    ],
)
def test_the_shape_is_that_of_the_layers(family: str, expected: Shape) -> None:
    assert backbone_of(random_model(FAMILIES[family])).shape == expected


@pytest.mark.parametrize("family", FAMILIES)
def test_sampled_log_probabilities_are_the_learners_and_it_learns(family: str) -> None:
    language = make_tiny()
    language.model = random_model(FAMILIES[family])
    language.backbone = backbone_of(language.model)
    prompts = [[5, 6, 7], [8, 9], [5, 6, 7, 8, 9, 10]]
    sampled = Engine(language, max_batch_size=4).generate(prompts, 3, SamplingSettings(max_tokens=6), seed=0)
    rows = [Row([given(p), *s.segments()]) for p, group in zip(prompts, sampled, strict=True) for s in group]
    examples = [Example.of(row) for row in rows]
    learner = Learner(language.backbone, LearnerSettings(), 1)
    for found, example in zip(learner.logprobs(examples)[0], examples, strict=True):
        chosen = example.weights["policy"] != 0
        np.testing.assert_allclose(found[chosen], example.logprobs[chosen], atol=2e-4)
    before = [p.detach().clone() for p in language.backbone.parameters()]
    for example in examples:
        example.columns["advantages"] = np.ones(len(example), np.float32)
    assert learner.update(examples)["grad_norm"] > 0
    assert any(not torch.equal(a, b) for a, b in zip(before, language.backbone.parameters(), strict=True))


FALCON_H1 = FalconH1Config(
    **SIZES, num_key_value_heads=2, head_dim=8, mamba_n_heads=4, mamba_d_head=16, mamba_d_ssm=64, mamba_d_state=8
)
"""Every layer attends, and keeps a state besides that no attention plan knows."""


@pytest.mark.parametrize(
    "config",
    [MambaConfig(vocab_size=330, hidden_size=32, num_hidden_layers=2, state_size=4), FALCON_H1],
    ids=["mamba", "falcon-h1"],
)
def test_a_model_that_would_compute_something_else_is_refused_by_name(config: PreTrainedConfig) -> None:
    with pytest.raises(OneiroError, match=f"architecture '{config.model_type}' are not supported") as caught:
        admit(random_model(config))
    assert "\n" not in str(caught.value)


def test_a_foreign_layers_scale_comes_with_its_queries() -> None:
    query, key, value = (torch.randn(1, 2, 3, 4, generator=torch.Generator().manual_seed(i)) for i in range(3))
    layer = SimpleNamespace(layer_idx=0)
    for scaling in (None, 0.5, 0.2):
        found, nothing = by_plan(layer, query, key, value, None, scaling)  # type: ignore[arg-type]
        expected = torch.nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True, scale=scaling)
        torch.testing.assert_close(found, expected.transpose(1, 2))
        assert nothing is None


def test_a_model_without_a_head_of_its_own_is_unfit() -> None:
    config = SimpleNamespace(get_text_config=lambda: None)
    whole = SimpleNamespace(config=config, get_output_embeddings=lambda: nn.Linear(1, 1))
    whole.base_model = whole
    headless = SimpleNamespace(config=config, get_output_embeddings=lambda: None, base_model=nn.Linear(1, 1))
    for model in (whole, headless):
        with pytest.raises(Unfit, match="its vocabulary head cannot be told from its layers"):
            ForeignBackbone(model)
