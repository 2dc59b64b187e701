"""Who gets which rows, and how gradients are added up, with the numbers worked out by hand."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from oneiro.episode import Row, given
from oneiro.learning.batch import Example
from oneiro.learning.distributed import data_parallel
from oneiro.learning.distributed.data_parallel import buckets, portions, sum_gradients
from oneiro.learning.distributed.fsdp import FullySharded, ShardOptimiser, empty, layers_of
from oneiro.learning.learner import Learner, LearnerSettings
from oneiro.learning.optimiser import Optimiser
from oneiro.learning.settings import OptimiserSettings
from oneiro.models.heads import ValueHead
from oneiro.runtime import distributed
from oneiro.runtime.errors import OneiroError
from tests.conftest import make_tiny
from tests.ranks import on_every_rank


def row(prompt: list[int], own: int) -> Example:
    return Example.of(Row([given(prompt), given([1] * own, ce=1.0)]))


def test_a_shared_prefix_counts_once_where_tokens_are_dealt_out() -> None:
    # The prompt of 11 is shared but for its last token: 10 once, and 2 for each of its three rows; 16 tokens.
    shared = [row(list(range(11)), 1) for _ in range(3)]
    rows = [row([40, 40], 1), shared[0], row([50, 50], 3), shared[1], row([60, 60], 10), shared[2]]  # 3, 5 and 12
    # Largest first, each to who has least: 16 | 12, then 16 | 12 + 5, then 16 + 3 | 17. No more than 18 are one part.
    assert portions(rows, 2) == [[0, 1, 3, 5], [2, 4]]


def test_a_group_is_cut_by_what_it_costs_and_not_by_what_its_rows_would_cost_alone() -> None:
    rows = [row(list(range(11)), 1) for _ in range(4)]  # 10 + 4 * 2 = 18 tokens, 9 for a rank: a row has 12
    assert portions(rows, 2) == [[0, 2], [1, 3]]
    assert portions(rows, 1) == [[0, 1, 2, 3]]
    rows = [row(list(range(5)), 3) for _ in range(4)]  # 4 + 4 * 4 = 20 tokens, 10 for a rank; two rows have 12
    assert portions(rows, 2) == [[0, 2], [1, 3]]


def test_gradients_are_added_up_in_buckets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_parallel, "BUCKET", 10)
    pairs = [(parameter, parameter) for n in (4, 6, 1, 20, 2) for parameter in [nn.Parameter(torch.zeros(n))]]
    # 4 + 6 fill a bucket, 1 more would not fit; what is too large stands alone.
    assert [[p.numel() for p, _ in bucket] for bucket in buckets(pairs)] == [[4, 6], [1], [20], [2]]
    assert list(buckets([])) == []


SETTINGS = OptimiserSettings(lr=0.1, weight_decay=0.0, clip=1e9)


def replicated() -> list[Any]:
    """Gradients of one parameter, other ones on every rank; the other parameter took part on none."""
    a, b = nn.Parameter(torch.ones(4, dtype=torch.bfloat16)), nn.Parameter(torch.ones(3))
    made = Optimiser([("a", a), ("b", b)], SETTINGS)
    a.grad = torch.tensor([256.0, -2.0, 0.0, 0.0], dtype=torch.bfloat16) * (2 * distributed.rank() + 1)
    sum_gradients(made)
    total = None if made.masters[0].grad is None else made.masters[0].grad.tolist()
    norm = made.step(0.1)
    return [total, norm, made.masters[0].tolist(), b.tolist(), sorted(made.state()), a.grad, b.grad]


def unsharded() -> list[Any]:
    """What FSDP does with parameters that are whole on every rank, of which the first took no part."""
    a, b = nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(3))
    made = ShardOptimiser([("a", a), ("b", b)], {"a": a, "b": b}, SETTINGS)
    b.grad = torch.tensor([1.0, -2.0, 2.0]) * (distributed.rank() + 1)
    norm = made.step(0.1)
    return [norm, a.tolist(), b.tolist(), sorted(made.state()), a.grad, b.grad]


def test_gradients_are_added_up_and_what_took_no_part_is_left_alone() -> None:
    for rank, (data, whole) in enumerate(on_every_rank(2, lambda: (replicated(), unsharded()))):
        total, norm, a, b, state, *gradients = data
        # Each once and three times: (1024, -8). AdamW's first step is the rate, against the sign.
        assert total == [1024.0, -8.0, 0.0, 0.0] and norm == pytest.approx((1024**2 + 8**2) ** 0.5)
        assert a == pytest.approx([0.9, 1.1, 1.0, 1.0]) and b == [1.0] * 3
        assert state == ["a/exp_avg", "a/exp_avg_sq", "a/master", "a/step"] and gradients == [None, None]
        norm, a, b, state, *gradients = whole
        assert norm == pytest.approx(9.0) and a == [1.0, 1.0] and b == pytest.approx([0.9, 1.1, 0.9])
        # The main process alone keeps what a checkpoint needs.
        assert state == ([] if rank else ["b/exp_avg", "b/exp_avg_sq", "b/step"]) and gradients == [None, None]


def test_ranks_begin_with_the_weights_of_rank_0() -> None:
    def begin(mode: str) -> list[float]:
        language = make_tiny()
        head = ValueHead(language.backbone.shape.width)
        with torch.no_grad():
            language.backbone.norm.weight[:] = 7.0 + distributed.rank()
            next(head.parameters()).view(-1)[0] = 9.0 + distributed.rank()
        learner = Learner(language.backbone, LearnerSettings(parallel=mode), 4, head)  # type: ignore[arg-type]
        learned = dict(zip(learner.optimiser.names, learner.optimiser.masters, strict=True))["norm.weight"]
        own = [language.backbone.norm.weight[0], next(head.parameters()).view(-1)[0], learned.view(-1)[0]]
        return [float(value) for value in own]

    found = on_every_rank(2, lambda: (begin("data"), begin("fsdp")))
    assert found == [([7.0, 9.0, 7.0], [7.0, 9.0, 7.0])] * 2


def test_fsdp_refuses_what_it_cannot_shard() -> None:
    learner: Any = SimpleNamespace(settings=LearnerSettings(optimiser=OptimiserSettings(name="muon")))
    with pytest.raises(OneiroError, match="fsdp trains with adamw, not muon"):
        FullySharded().make_optimiser(learner)
    experts, layers = (nn.ModuleList(nn.Linear(1, 1) for _ in range(count)) for count in (3, 2))
    model: Any = SimpleNamespace(modules=lambda: [nn.Linear(1, 1), experts, layers], shape=SimpleNamespace(layers=2))
    assert layers_of(model) == list(layers)
    model.shape.layers = 4
    with pytest.raises(OneiroError, match="finds no list of layers"):
        layers_of(model)


def test_an_empty_micro_batch_has_every_column_and_no_token() -> None:
    made = empty(torch.device("cpu"))
    assert made.columns["values"] is made.columns["temperature"] and "advantages" not in made.columns
    assert made.places == []
