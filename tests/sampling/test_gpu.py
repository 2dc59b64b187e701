"""The same promises on a GPU, in bfloat16."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from oneiro.episode import Row, given
from oneiro.learning.example import Example
from oneiro.learning.learner import Learner, LearnerSettings
from oneiro.models.backbone import Backbone
from oneiro.sampling import slots
from oneiro.sampling.engine import Engine, Limits
from tests.conftest import make_tiny

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")


def language(dtype: torch.dtype):  # type: ignore[no-untyped-def]
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=330,
        hidden_size=192,
        intermediate_size=384,
        num_hidden_layers=3,
        num_attention_heads=6,
        num_key_value_heads=2,
        head_dim=64,
    )
    made = make_tiny()
    made.model = LlamaForCausalLM(config).to("cuda", dtype)
    made.backbone = Backbone(made.model)
    return made


def rows(engine: Engine) -> list[Row]:
    rng = np.random.default_rng(0)
    prompts = [rng.integers(5, 300, length) for length in (3, 40, 17, 3, 90, 64)]
    sampled = engine.generate(prompts, 8, Limits(max_tokens=70), seed=1)
    return [Row([given(p), *s.segments()]) for p, group in zip(prompts, sampled, strict=True) for s in group]


@pytest.mark.parametrize(
    ("dtype", "compile_layers", "mean", "largest"),
    [(torch.float32, False, 1e-3, 2e-2), (torch.bfloat16, False, 0.03, 0.5), (torch.bfloat16, True, 0.03, 0.5)],
)
def test_graph_decoding_agrees_with_the_learner(
    dtype: torch.dtype, compile_layers: bool, mean: float, largest: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """float32 differs by the tensor cores' rounding of inputs, bfloat16 by its own eight bits."""
    if compile_layers:
        monkeypatch.setattr(slots, "COMPILE_FROM", 0)
    made = language(dtype)
    examples = [Example.of(row) for row in rows(Engine(made, slots=16))]
    recomputed, _ = Learner(made.backbone, LearnerSettings(), 1).logprobs(examples)
    gaps = np.concatenate(
        [np.abs(a - e.logprobs)[e.weights["policy"] != 0] for a, e in zip(recomputed, examples, strict=True)]
    )
    assert len(gaps) > 500
    assert gaps.mean() < mean and gaps.max() < largest


def test_the_number_of_slots_changes_nothing_in_float32() -> None:
    made = language(torch.float32)
    few, many = rows(Engine(made, slots=8)), rows(Engine(made, slots=128))
    same = [len(a) == len(b) and bool((a.tokens == b.tokens).all()) for a, b in zip(few, many, strict=True)]
    assert np.mean(same) > 0.9  # a tie broken by rounding may turn one row
