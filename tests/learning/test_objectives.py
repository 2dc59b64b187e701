"""Losses of whole updates against a second implementation: plain transformers, autograd, one row at a time."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from oneiro.episode import Row, SamplingParams, Segment, given
from oneiro.learning import losses
from oneiro.learning.batch import Example
from oneiro.learning.learner import Learner, LearnerSettings
from oneiro.learning.losses import LossSettings
from oneiro.learning.optimiser import OptimiserSettings
from oneiro.models.language import LanguageModel

SIZES, ADVANTAGES = (3, 8, 5), (1.0, 0.5, -2.0)
STILL = OptimiserSettings(lr=1e-12, weight_decay=0.0)


def logprobs_of(language: LanguageModel, example: Example) -> torch.Tensor:
    """[T - 1]: the log-probability of each token but the first, at its own temperature."""
    tokens = torch.from_numpy(example.tokens.astype(np.int64)).to(language.backbone.device)
    logits = language.model(tokens[None]).logits[0, :-1].float()
    temperature = torch.from_numpy(example.temperature[1:]).to(logits.device)
    return (logits / temperature[:, None]).log_softmax(-1).gather(1, tokens[1:, None])[:, 0]


@pytest.fixture
def examples(tiny: LanguageModel) -> list[Example]:
    """Three replies at temperature 0.7; what the sampler recorded is near what the model says, row by row."""
    rng, made = np.random.default_rng(0), []
    for size, advantage in zip(SIZES, ADVANTAGES, strict=True):
        reply = Segment(
            rng.integers(20, 200, size),
            True,
            "assistant",
            logprobs=np.zeros(size),
            params=SamplingParams(temperature=0.7),
        )
        example = Example.of(Row([given([5, 6, 7, 8]), reply, given([9, 10], turn=2)]))
        with torch.no_grad():
            true = logprobs_of(tiny, example).cpu().numpy()
        example.logprobs = np.zeros(len(example), np.float32)
        example.logprobs[4 : 4 + size] = true[3 : 3 + size] + rng.normal(0.03, 0.3, size)
        example.columns["advantages"] = np.full(len(example), advantage, np.float32)
        made.append(example)
    return made


def updated(language: LanguageModel, examples: list[Example], loss: LossSettings) -> tuple[dict[str, float], list]:
    """The statistics of an update, and the gradients it made."""
    learner = Learner(language.backbone, LearnerSettings(loss=loss, optimiser=OptimiserSettings(clip=1e6)), 1)
    found: list[torch.Tensor] = []
    step = learner.optimiser.step

    def watched(lr: float) -> float:
        found.extend(p.grad.clone() for _, p in language.trainable() if p.grad is not None)
        return step(lr)

    learner.optimiser.step = watched  # type: ignore[method-assign]
    return learner.update(examples), found


def gradients(language: LanguageModel, loss: torch.Tensor) -> list[torch.Tensor]:
    """Of the second implementation; fused projections are views of the library's own, so they are read from those."""
    named = dict(language.model.named_parameters())
    grads = dict(zip(named, torch.autograd.grad(loss, list(named.values())), strict=True))
    found = []
    for name, _ in language.trainable():
        layer = f"model.layers.{name.split('.')[1]}" if name.startswith("blocks") else ""
        own = {
            "qkv_weight": [f"{layer}.self_attn.{p}_proj.weight" for p in "qkv"],
            "gate_up_weight": [f"{layer}.mlp.{p}_proj.weight" for p in ("gate", "up")],
            "attention_norm.weight": [f"{layer}.input_layernorm.weight"],
            "mlp_norm.weight": [f"{layer}.post_attention_layernorm.weight"],
            "out.weight": [f"{layer}.self_attn.o_proj.weight"],
            "down.weight": [f"{layer}.mlp.down_proj.weight"],
            "embedding.weight": ["model.embed_tokens.weight"],
            "norm.weight": ["model.norm.weight"],
        }
        leaf = name.split(".", 2)[2] if layer else name
        found.append(torch.cat([grads[source] for source in own[leaf]]))
    return found


def assert_same_gradients(found: list[torch.Tensor], expected: list[torch.Tensor]) -> None:
    assert len(found) == len(expected)
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, atol=2e-5 * float(b.abs().max()) + 1e-9, rtol=1e-3)


def test_gspo_clips_the_geometric_mean_of_a_row(tiny: LanguageModel, examples: list[Example]) -> None:
    """arXiv 2507.18071, eq. 5 to 7, differentiated by autograd as it stands there."""
    settings = LossSettings(
        importance_sampling="sequence", aggregate="sequence-mean", clip_low=0.1, clip_high=0.2, dual_clip=None
    )
    total, ratios = torch.zeros(()), []
    for example, size, advantage in zip(examples, SIZES, ADVANTAGES, strict=True):
        own = logprobs_of(tiny, example)[3 : 3 + size]
        old = torch.from_numpy(example.logprobs[4 : 4 + size]).to(own.device)
        ratio = (own - old).mean().exp()
        ratios.append(float(ratio.detach()))
        total = total.to(own.device) - torch.minimum(ratio * advantage, ratio.clamp(0.9, 1.2) * advantage) / 3
    outside = [r < 0.9 or r > 1.2 for r in ratios]
    assert any(outside) and not all(outside), ratios
    expected = gradients(tiny, total)
    statistics, found = updated(tiny, examples, settings)
    assert statistics["loss"] == pytest.approx(float(total.detach()), rel=1e-4)
    assert_same_gradients(found, expected)
    by_token = np.repeat(outside, SIZES)
    assert statistics["clip_fraction"] == pytest.approx(by_token.mean(), rel=1e-5)
    assert statistics["ratio"] == pytest.approx(np.repeat(ratios, SIZES).mean(), rel=1e-4)


def test_a_row_has_one_ratio_in_any_layout(tiny: LanguageModel, examples: list[Example]) -> None:
    settings = LossSettings(importance_sampling="sequence", aggregate="sequence-mean", clip_low=0.1, clip_high=0.2)
    found = []
    for budget in (64, 10_000):
        learner = LearnerSettings(loss=settings, token_budget=budget, optimiser=STILL)
        found.append(Learner(tiny.backbone, learner, 1).update(examples))
    assert found[0] == pytest.approx(found[1], rel=1e-4)


def test_the_constant_is_the_budget_and_not_the_batch(tiny: LanguageModel, examples: list[Example]) -> None:
    """A row's gradient is the same whatever other rows stand beside it; the longest row here has 8 tokens."""
    settings = LossSettings(aggregate="constant", max_tokens=40, clip_low=9.0, clip_high=9.0, dual_clip=None)
    total = torch.zeros((), device=tiny.backbone.device)
    for example, size, advantage in zip(examples, SIZES, ADVANTAGES, strict=True):
        own = logprobs_of(tiny, example)[3 : 3 + size]
        old = torch.from_numpy(example.logprobs[4 : 4 + size]).to(own.device)
        total = total - advantage * (own - old).exp().sum() / (3 * 40)
    expected = gradients(tiny, total)
    statistics, found = updated(tiny, examples, settings)
    assert statistics["loss"] == pytest.approx(float(total.detach()), rel=1e-4)
    assert_same_gradients(found, expected)


def test_statistics_are_means_over_tokens_whatever_the_aggregation(
    tiny: LanguageModel, examples: list[Example]
) -> None:
    found = {}
    for name in ("token-mean", "sequence-mean", "constant"):
        loss = LossSettings(aggregate=name, max_tokens=500)  # type: ignore[arg-type]
        for example in examples:
            example.columns["reference"] = example.logprobs - 0.5
        found[name] = Learner(tiny.backbone, LearnerSettings(loss=loss, optimiser=STILL), 1).update(examples)
        found[name] = {key: value for key, value in found[name].items() if key not in ("loss", "grad_norm")}
    assert found["sequence-mean"] == pytest.approx(found["token-mean"], rel=1e-5)
    assert found["constant"] == pytest.approx(found["token-mean"], rel=1e-5)
    with torch.no_grad():
        own = [logprobs_of(tiny, e)[3 : 3 + n].cpu().numpy() for e, n in zip(examples, SIZES, strict=True)]
    old = [e.logprobs[4 : 4 + n] for e, n in zip(examples, SIZES, strict=True)]
    ratios = np.exp(np.concatenate(own) - np.concatenate(old))
    assert found["constant"]["ratio"] == pytest.approx(ratios.mean(), rel=1e-4)


def test_what_the_environment_wrote_is_learned_at_temperature_1(tiny: LanguageModel, examples: list[Example]) -> None:
    for example, size in zip(examples, SIZES, strict=True):
        example.weights["ce"][4 + size :] = 1
        example.columns["advantages"][:] = 0
    with torch.no_grad():
        plain = [
            tiny.model(torch.from_numpy(e.tokens.astype(np.int64))[None].to(tiny.backbone.device)) for e in examples
        ]
    rows = [p.logits[0, :-1].log_softmax(-1).cpu().numpy() for p in plain]
    expected = [
        row[at - 1, e.tokens[at]] for row, e in zip(rows, examples, strict=True) for at in range(len(e) - 2, len(e))
    ]
    statistics, _ = updated(tiny, examples, LossSettings())
    assert statistics["ce"] == pytest.approx(-np.mean(expected), rel=1e-4)


def test_a_masked_token_may_have_any_ratio() -> None:
    columns = {
        "policy": torch.tensor([0.5, 0.0]),
        "ce": torch.zeros(2),
        "kl": torch.zeros(2),
        "advantages": torch.tensor([1.0, 1.0]),
        "logprobs": torch.tensor([-1.0, float("nan")]),
    }
    logprobs = torch.tensor([-1.0, -torch.inf], requires_grad=True)
    loss = losses.token_losses(logprobs, torch.zeros(2), columns, LossSettings(ce=0.0))
    loss.backward()
    assert float(loss.detach()) == -0.5 and logprobs.grad is not None and logprobs.grad.tolist() == [-0.5, 0.0]
