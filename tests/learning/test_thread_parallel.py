"""Threads that share an update learn what one does, always with the same bits, and follow weights that are replaced."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from oneiro.episode import Row, given
from oneiro.learning.batch import Example
from oneiro.learning.learner import Learner, LearnerSettings
from oneiro.learning.losses import LossSettings
from oneiro.models.heads import ValueHead
from oneiro.models.language import LanguageModel, LoraSettings, with_lora
from tests.conftest import make_tiny


def rows(count: int, seed: int = 0) -> list[Example]:
    rng = np.random.default_rng(seed)
    made = []
    for _ in range(count):
        prompt, reply = (rng.integers(0, 300, int(rng.integers(3, 12))).astype(np.int32) for _ in range(2))
        example = Example.of(Row([given(prompt), given(reply, ce=1.0)]))
        example.weights["policy"] = example.weights["ce"].copy()
        ones = np.ones(len(example), np.float32)
        example.columns = {"advantages": ones, "values": 0 * ones, "returns": 0.5 * ones, "old": example.logprobs}
        made.append(example)
    return made


def train(threads: int, counts: tuple[int, ...] = (7, 2, 1)) -> tuple[list[dict[str, float]], list[Tensor]]:
    """What updates of so many rows report, and the weights they end in."""
    language = make_tiny()
    torch.manual_seed(0)
    head = ValueHead(language.backbone.shape.width)
    settings = LearnerSettings(update_threads=threads, token_budget=64, loss=LossSettings(ce=0.5))
    learner = Learner(language.backbone, settings, len(counts), value_head=head)
    reports = [learner.update(rows(count, seed)) for seed, count in enumerate(counts)]
    return reports, [p.detach().clone() for _, p in learner.trained_parameters(language.backbone)]


def test_two_or_three_threads_learn_what_one_does() -> None:
    """More rows than threads, then as many and fewer: a thread may have nothing to do."""
    alone, expected = train(1)
    for threads in (2, 3):
        together, weights = train(threads)
        for one, other in zip(alone, together, strict=True):
            assert one == pytest.approx(other, rel=1e-4, abs=1e-6)
        for a, b in zip(weights, expected, strict=True):
            torch.testing.assert_close(a, b, atol=2e-4, rtol=1e-3)


def test_the_same_rows_end_in_the_same_bits() -> None:
    (first, weights), (second, again) = train(2), train(2)
    assert first == second
    assert all(torch.equal(a, b) for a, b in zip(weights, again, strict=True))


def test_threads_follow_weights_that_are_replaced(tiny: LanguageModel) -> None:
    learner = Learner(tiny.backbone, LearnerSettings(update_threads=2), 4)
    learner.update(rows(4))
    for _, p in tiny.trainable():
        p.data = torch.zeros_like(p)  # logits are level then, whoever computes them
    vocabulary = tiny.backbone.head_weight.shape[0]
    assert learner.update(rows(4))["ce"] == pytest.approx(np.log(vocabulary), rel=1e-5)


def test_an_update_that_failed_leaves_nothing_to_the_next(tiny: LanguageModel) -> None:
    fresh = Learner(make_tiny().backbone, LearnerSettings(update_threads=2), 4).update(rows(7))
    learner = Learner(tiny.backbone, LearnerSettings(update_threads=2), 4)
    broken = rows(6)
    broken[0].tokens[0] = 10**6
    with pytest.raises(IndexError):
        learner.update(broken)
    learner.backbone.zero_grad()
    assert learner.update(rows(7))["grad_norm"] == pytest.approx(fresh["grad_norm"], rel=1e-5)


def test_weights_are_shared_whole(tiny: LanguageModel) -> None:
    """All but the cached rotations: the fused ones too, and the single projections are not copied on the way."""
    learner = Learner(tiny.backbone, LearnerSettings(update_threads=2), 1)
    learner.update(rows(4))
    assert learner.thread_parallel is not None
    (other,) = learner.thread_parallel.copies
    tensors = [t for m in other.backbone.modules() for t in every_tensor({**vars(m), "_tables": None})]
    own = {t.data_ptr() for m in tiny.backbone.modules() for t in every_tensor(vars(m))}
    assert tensors and all(t.data_ptr() in own for t in tensors)


def every_tensor(value: object) -> Iterator[Tensor]:
    """The tensors in nested values, also in modules that hide in tuples."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, dict | list | tuple):
        for part in value.values() if isinstance(value, dict) else value:
            yield from every_tensor(part)
    elif isinstance(value, nn.Module):
        yield from every_tensor(vars(value))


def test_adapters_that_drop_out_have_one_thread() -> None:
    for dropout, shared in ((0.0, True), (0.1, False)):
        language = with_lora(make_tiny(), LoraSettings(rank=2, dropout=dropout))
        learner = Learner(language.backbone, LearnerSettings(update_threads=2), 1)
        assert (learner.thread_parallel is not None) is shared
        assert np.isfinite(learner.update(rows(4))["loss"])
