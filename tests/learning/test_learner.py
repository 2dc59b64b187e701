from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from oneiro.episode import Row, SamplingParams, Segment, given
from oneiro.learning import head, losses
from oneiro.learning.batch import Batch, Example, batches
from oneiro.learning.learner import Learner, LearnerSettings, Statistics, hidden_matrices
from oneiro.learning.loop import copy_of
from oneiro.learning.losses import LossSettings
from oneiro.models.attention import Causal
from oneiro.models.heads import OutputHead, ValueHead
from oneiro.models.language import LanguageModel, LoraSettings, with_lora
from oneiro.runtime.errors import OneiroError
from tests.conftest import make_tiny

RNG = np.random.default_rng(0)


def example(prompt: list[int], length: int, advantage: float, ce: bool = False) -> Example:
    reply = RNG.integers(0, 300, length).astype(np.int32)
    sampled = Segment(
        reply, True, "assistant", logprobs=RNG.normal(-3, 1, length).astype(np.float32), params=SamplingParams()
    )
    row = Row([given(prompt), sampled, given([4, 5, 6], ce=1.0) if ce else given([4, 5])])
    made = Example.of(row)
    made.columns = {
        "advantages": np.full(len(made), advantage, np.float32),
        "reference": RNG.normal(-3, 1, len(made)).astype(np.float32),
    }
    return made


@pytest.fixture
def examples() -> list[Example]:
    shared = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]
    return [
        example(shared, 5, 1.0),
        example(shared, 9, -2.0, ce=True),
        example([20, 21], 7, 0.5),
        example(shared, 3, 0.3),
        example([30] * 20, 4, -1.0, ce=True),
    ]


def gradients(
    language: LanguageModel, layout: list[Batch], gradient_checkpointing: bool = False
) -> tuple[float, list[torch.Tensor]]:
    """Loss and gradients of micro-batches laid out as told."""
    settings = LossSettings(kl=0.1, entropy=0.01, ce=0.5)
    body = language.backbone
    body.gradient_checkpointing = gradient_checkpointing
    total = 0.0
    for batch in layout:

        def objective(logprobs, entropies, part, columns=batch.columns):  # type: ignore[no-untyped-def]
            return losses.token_losses(logprobs, entropies, {k: v[part] for k, v in columns.items()}, settings)

        loss, _, _ = head.loss(batch.hidden(body), body.output, batch.targets, batch.columns["temperature"], objective)
        loss.backward()
        total += float(loss.detach())
    found = [p.grad.clone() for _, p in language.trainable() if p.grad is not None]
    for _, p in language.trainable():
        p.grad = None
    return total, found


def scaled(examples: list[Example], aggregate: losses.Aggregate = "token-mean") -> list[Example]:
    weights = losses.normalise(examples, aggregate, 32)
    return [replace(e, weights=w) for e, w in zip(examples, weights, strict=True)]


def test_padded_shared_and_single_rows_give_the_same_loss_and_gradients(
    tiny: LanguageModel, examples: list[Example]
) -> None:
    ready = scaled(examples)
    layouts = {
        "padded together": list(batches(ready, 10_000, share=False)),
        "single rows": [b for e in ready for b in batches([e], 10_000, share=False)],
        "shared prefixes": list(batches(ready, 10_000, share=True)),
        "shared prefixes, small budget": list(batches(ready, 40, share=True)),
        "families": list(batches(ready, 10_000, share=True, packed=True)),
        "families, small budget": list(batches(ready, 40, share=True, packed=True)),
        "padded, small budget": list(batches(ready, 40, share=False)),
    }
    assert len(layouts["padded together"]) == 1 and len(layouts["shared prefixes, small budget"]) > 1
    expected_loss, expected = gradients(tiny, layouts["single rows"])
    for name, layout in layouts.items():
        loss, found = gradients(tiny, layout)
        assert loss == pytest.approx(expected_loss, rel=1e-5), name
        for a, b in zip(found, expected, strict=True):
            torch.testing.assert_close(
                a, b, atol=1e-5 * float(b.abs().max()), rtol=1e-4, msg=lambda m, name=name: f"{name}: {m}"
            )


@pytest.mark.parametrize("packed", [False, True])
def test_computing_layers_again_changes_no_gradient(tiny: LanguageModel, examples: list[Example], packed: bool) -> None:
    layout = list(batches(scaled(examples), 10_000, share=True, packed=packed))
    loss, expected = gradients(tiny, layout)
    again, found = gradients(tiny, layout, gradient_checkpointing=True)
    assert again == loss
    for a, b in zip(found, expected, strict=True):
        assert torch.equal(a, b)


def test_sharing_computes_a_prefix_once(examples: list[Example]) -> None:
    plain = sum(b.computed_tokens for b in batches(examples[:2] + examples[3:4], 10_000, share=False))
    shared = sum(b.computed_tokens for b in batches(examples[:2] + examples[3:4], 10_000, share=True))
    assert shared == 11 + 3 * 13 < plain  # eleven shared tokens once; three rows padded to the longest own part


def test_micro_batches_know_what_adapters_keep() -> None:
    """By counting: a token of a model with adapters keeps more for its way back, and fewer tokens go at once."""

    def kept(language: LanguageModel, tokens: int = 64) -> float:
        weights = {p.untyped_storage().data_ptr() for p in language.backbone.parameters()}
        found: dict[int, int] = {}

        def pack(tensor: torch.Tensor) -> torch.Tensor:
            storage = tensor.untyped_storage()
            found[storage.data_ptr()] = storage.nbytes() // 4
            held.append(tensor)
            return tensor

        held: list[torch.Tensor] = []
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            language.backbone(torch.arange(tokens)[None], torch.arange(tokens), Causal())
        return sum(size for place, size in found.items() if place not in weights) / tokens

    plain, adapted = make_tiny(), with_lora(make_tiny(), LoraSettings(rank=4, alpha=8))
    assert kept(adapted) > 1.3 * kept(plain)
    budgets = [Learner(made.backbone, LearnerSettings(), 1).token_budget for made in (plain, adapted)]
    assert budgets[1] * 2 < budgets[0]


@pytest.mark.parametrize("aggregate", ["token-mean", "sequence-mean", "constant"])
def test_the_loss_is_the_one_written_in_plain_torch(
    tiny: LanguageModel, examples: list[Example], aggregate: losses.Aggregate
) -> None:
    """An independent forward through transformers, full logits, autograd over everything."""
    settings = LossSettings(kl=0.1, entropy=0.01, ce=0.5, aggregate=aggregate)
    policy_tokens = sum(e.weights["policy"].sum() for e in examples)
    ce_tokens = sum(e.weights["ce"].sum() for e in examples)
    total = torch.zeros(())
    for e in examples:
        tokens = torch.from_numpy(e.tokens.astype(np.int64))
        scores = tiny.model(tokens[None]).logits[0, :-1].log_softmax(-1)
        logprobs = scores.gather(1, tokens[1:, None])[:, 0]
        entropies = -(scores.exp() * scores).sum(-1)
        old, advantage, reference = (
            torch.from_numpy(x[1:]) for x in (e.logprobs, e.columns["advantages"], e.columns["reference"])
        )
        mask = torch.from_numpy(e.weights["policy"][1:])
        ratio = (logprobs - old).exp()
        surrogate = torch.maximum(-advantage * ratio, -advantage * ratio.clamp(0.8, 1.2))
        surrogate = torch.where(advantage < 0, torch.minimum(surrogate, -3.0 * advantage), surrogate)
        gap = (reference - logprobs).clamp(-10, 10)
        per_token = surrogate - 0.01 * entropies + 0.1 * (gap.exp() - gap - 1)
        divisor = {
            "token-mean": policy_tokens,
            "sequence-mean": mask.sum() * len(examples),
            "constant": len(examples) * 32,
        }
        total = total + (mask * per_token).sum() / divisor[aggregate]
        total = total - 0.5 * (torch.from_numpy(e.weights["ce"][1:]) * logprobs).sum() / ce_tokens
    total.backward()
    expected = {name: p.grad.clone() for name, p in tiny.model.named_parameters() if p.grad is not None}
    tiny.model.zero_grad()

    layout = list(batches(scaled(examples, aggregate), 60))
    body = tiny.backbone
    found_loss = 0.0
    for batch in layout:

        def objective(logprobs, entropies, part, columns=batch.columns):  # type: ignore[no-untyped-def]
            return losses.token_losses(logprobs, entropies, {k: v[part] for k, v in columns.items()}, settings)

        loss, _, _ = head.loss(batch.hidden(body), body.output, batch.targets, batch.columns["temperature"], objective)
        loss.backward()
        found_loss += float(loss.detach())
    assert found_loss == pytest.approx(float(total.detach()), rel=1e-4)
    gradient, wanted = tiny.backbone.embedding.weight.grad, expected["model.embed_tokens.weight"]
    assert gradient is not None
    # By norm: once, beside all other tests, 2 of 10,016 elements were up to 6e-5 apart. The cause is not known.
    assert float((gradient - wanted).norm() / wanted.norm()) < 1e-3
    down = tiny.backbone.blocks[0].down.weight.grad
    torch.testing.assert_close(down, expected["model.layers.0.mlp.down_proj.weight"], atol=1e-5, rtol=1e-3)


def test_the_head_never_makes_a_tokens_by_vocabulary_matrix(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(head.CHUNK_NUMBERS, "cpu", 16 * 500)
    hidden = torch.randn(200, 8, requires_grad=True)
    weight = torch.randn(500, 8, requires_grad=True)
    targets = torch.randint(0, 500, (200,))
    temperature = torch.full((200,), 0.7)
    largest = 0

    class CollapseMonitor(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            nonlocal largest
            out = func(*args, **(kwargs or {}))
            largest = max(largest, out.numel() if isinstance(out, torch.Tensor) else 0)
            return out

    def objective(logprobs: torch.Tensor, entropies: torch.Tensor, part: slice) -> torch.Tensor:
        return (logprobs.square() + 0.3 * entropies).sum()

    with CollapseMonitor():
        loss, logprobs, entropies = head.loss(hidden, OutputHead(weight), targets, temperature, objective)
    assert largest <= 16 * 500
    loss.backward()
    expected_scores = (hidden @ weight.T / 0.7).log_softmax(-1)
    chosen = expected_scores.gather(1, targets[:, None])[:, 0]
    spread = -(expected_scores.exp() * expected_scores).sum(-1)
    torch.testing.assert_close(logprobs, chosen.detach())
    torch.testing.assert_close(entropies, spread.detach(), atol=1e-4, rtol=1e-3)
    grads = torch.autograd.grad((chosen.square() + 0.3 * spread).sum(), (hidden, weight))
    torch.testing.assert_close(hidden.grad, grads[0], atol=1e-4, rtol=1e-3)
    torch.testing.assert_close(weight.grad, grads[1], atol=1e-4, rtol=1e-3)


def test_updates_with_any_token_budget_end_in_the_same_weights(examples: list[Example]) -> None:
    ends = []
    for budget in (64, 10_000):
        language = make_tiny()
        learner = Learner(language.backbone, LearnerSettings(token_budget=budget), 3)
        for _ in range(3):
            learner.update(examples)
        ends.append([p.detach().clone() for _, p in language.trainable()])
    for a, b in zip(*ends, strict=True):
        torch.testing.assert_close(a, b, atol=2e-4, rtol=1e-3)


def test_a_micro_batch_is_bounded_by_what_its_tokens_keep() -> None:
    # 2 layers; 4 x 32 + 2 x (4 + 8) x 8 + 2 x 64 numbers of 4 bytes each.
    learner = Learner(make_tiny(1).backbone, LearnerSettings(), 1)
    if learner.backbone.device.type == "cpu":
        assert learner.token_budget == (64 << 20) // (2 * (128 + 192 + 128) * 4)
    assert Learner(learner.backbone, LearnerSettings(token_budget=70), 1).token_budget == 70


def test_bfloat16_weights_keep_float32_masters(examples: list[Example]) -> None:
    """Updates too small for bfloat16 still add up."""
    from oneiro.learning.optimiser import Optimiser, OptimiserSettings

    weight = torch.nn.Parameter(torch.ones(4, 4, dtype=torch.bfloat16))
    optimiser = Optimiser([("w", weight)], OptimiserSettings(lr=1e-4, weight_decay=0.0))
    for _ in range(100):
        weight.grad = torch.ones_like(weight)
        optimiser.step(1e-4)
    assert float(weight.detach()[0, 0]) == pytest.approx(0.99, abs=0.004)


def test_environment_tokens_are_learned_when_asked(tiny: LanguageModel, examples: list[Example]) -> None:
    learner = Learner(tiny.backbone, LearnerSettings(loss=LossSettings(ce=1.0)), 30)
    for e in examples:
        e.columns["advantages"][:] = 0
    first = learner.update(examples)["ce"]
    for _ in range(28):
        last = learner.update(examples)["ce"]
    assert last < 0.5 * first


def reply(*tokens: int, turn: int = 0, temperature: float = 1.0, **more: Any) -> Segment:
    logprobs = -np.arange(1, len(tokens) + 1) / 4
    return Segment(np.array(tokens), True, turn=turn, logprobs=logprobs, params=SamplingParams(temperature), **more)


def test_clip_fractions_count_ratios_strictly_outside_and_the_largest_difference_is_kept() -> None:
    statistics, settings = Statistics(), LossSettings(clip_low=0.5, clip_high=0.5)
    assert statistics.largest_difference is None
    for differences in ([0.1, -1.0, 0.3], [0.6, 0.2, 0.0]):
        columns = {
            "advantages": torch.zeros(3), "mean_policy": torch.tensor([0.5, 0.25, 0.0]), "ce": torch.zeros(3),
            "logprobs": torch.zeros(3),
        }  # fmt: skip
        statistics.add_policy(torch.tensor(differences), torch.ones(3), columns, settings)
    found = statistics.means(teaches=False)
    assert found["clip_fraction"] == 0.25 + 0.5 and found["largest_difference"] == 1.0 and found["entropy"] == 1.5
    assert "ce" not in found and "ce" in statistics.means(teaches=True)


def test_a_critic_learns_no_vocabulary_head_and_muon_no_embedding() -> None:
    backbone = make_tiny().backbone
    own = torch.nn.Linear(32, backbone.shape.vocabulary, bias=False)
    untied = copy_of(make_tiny())
    untied.backbone.head = own
    untied.backbone.requires_grad_(True)
    with_head, without = (
        Learner(untied.backbone, LearnerSettings(), 1, ValueHead(32), has_lm_head=kind) for kind in (True, False)
    )
    assert "head.weight" in with_head.optimiser.names and "head.weight" not in without.optimiser.names
    assert {"value.linear.weight", "value.linear.bias", "embedding.weight"} <= set(without.optimiser.names)
    named = [*untied.backbone.named_parameters(), ("value.linear.weight", ValueHead(32).linear.weight)]
    found = hidden_matrices(untied.backbone, named)
    assert len(found) == 2 * 4 and all(name.startswith("blocks.") for name in found)


def test_a_learner_refuses_rows_beyond_the_models_positions_and_counts_its_tokens(tiny: LanguageModel) -> None:
    learner = Learner(tiny.backbone, LearnerSettings(), 1)
    tiny.backbone.most_positions = 6
    learner.logprobs([Example.of(Row([given([1, 2, 3], ce=1.0), given([4, 5, 6], ce=1.0)]))])
    with pytest.raises(OneiroError, match="a row has 7 tokens, more than the 6 positions"):
        learner.logprobs([Example.of(Row([given([1] * 7, ce=1.0)]))])
    assert learner.logprobs([]) == ([], [])
    kept = tiny.backbone.shape.kept * 4
    assert learner.token_budget == max(1024, int((64 << 20) / kept))
    tiny.backbone.keeps = 1000.0
    assert learner.token_budget == 1024
    assert Learner(tiny.backbone, LearnerSettings(token_budget=77), 1).token_budget == 77


def test_truncated_sampling_is_measured_row_by_row(tiny: LanguageModel) -> None:
    def row(params: SamplingParams) -> Row:
        made = reply(7, 8)
        made.params = params
        return Row([given([1, 2]), made])

    kinds = [SamplingParams(), SamplingParams(top_k=4), SamplingParams(top_p=0.5), SamplingParams(top_k=4)]
    examples = [Example.of(row(params)) for params in kinds]
    learner = Learner(tiny.backbone, LearnerSettings(), 1)
    found = learner.log_kept_mass(examples)
    assert not found[0].any() and np.array_equal(found[1], found[3]) and not np.array_equal(found[1], found[2])
    scores = tiny.model(torch.tensor([[1, 2, 7, 8]])).logits[0].detach().softmax(-1)
    for at, target in ((2, 7), (3, 8)):
        best = set(scores[at - 1].topk(4).indices.tolist()) | {target}
        assert float(found[1][at]) == pytest.approx(float(scores[at - 1, list(best)].sum().log()), abs=1e-4)
    assert found[1][:2].tolist() == [0, 0]


def test_values_are_the_heads_own_at_every_token_that_counts() -> None:
    language = make_tiny()
    head_ = ValueHead(language.backbone.shape.width)
    torch.nn.init.constant_(head_.linear.bias, 0.75)
    learner = Learner(language.backbone, LearnerSettings(), 1, head_)
    (values,) = learner.values([Example.of(Row([given([3, 4]), given([5, 6, 7], policy=1.0)]))])
    assert values.tolist() == [0.0, 0.0, 0.75, 0.75, 0.75]
