"""Who gets which rows and parameters, with the numbers worked out by hand; what ranks keep, and what is sent again."""

from __future__ import annotations

import gc
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from oneiro.episode import Row, given
from oneiro.learning import distributed, shards
from oneiro.learning.distributed import ZeroOptimiser, portions
from oneiro.learning.example import Example
from oneiro.learning.fsdp import FullySharded, ShardOptimiser, empty, layers_of
from oneiro.learning.learner import Learner, LearnerSettings
from oneiro.learning.settings import OptimiserSettings
from oneiro.models import mirror
from oneiro.models.heads import ValueHead
from oneiro.runtime import team as teams
from oneiro.runtime.errors import OneiroError
from oneiro.runtime.team import Team
from tests.conftest import make_tiny
from tests.ranks import on_ranks


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


def zero(sizes: list[tuple[int, torch.dtype]], owner: list[int], size: int = 2) -> Any:
    """What deals parameters out, without a team."""
    made = ZeroOptimiser.__new__(ZeroOptimiser)
    made.team = SimpleNamespace(rank=0, size=size)  # type: ignore[assignment]
    made.every = [(str(i), nn.Parameter(torch.zeros(n, dtype=kind))) for i, (n, kind) in enumerate(sizes)]
    made.owner = owner
    return made


def test_parameters_are_sent_in_buckets_of_one_owner_and_one_type(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distributed, "BUCKET", 10)
    whole, half = torch.float32, torch.bfloat16
    made = zero(
        [(4, whole), (6, whole), (1, whole), (3, half), (20, whole), (2, whole), (5, whole)], [0, 0, 0, 0, 1, 0, 1]
    )
    found = [(owner, [p.numel() for p in bucket]) for owner, bucket in made._buckets()]
    # 4 + 6 fill a bucket, 1 more would not fit; another type begins another; what is too large stands alone.
    assert found == [(0, [4, 6]), (0, [1]), (0, [3]), (0, [2]), (1, [20]), (1, [5])]
    assert next(iter(zero([(4, whole)], [1], 3)._buckets()))[0] == 1


SETTINGS = OptimiserSettings(lr=0.1, weight_decay=0.0, clip=1e9)


def owned(team: Team) -> list[Any]:
    """Gradients of one parameter, other ones on every rank; the other parameter took part on none."""
    a, b = nn.Parameter(torch.ones(4)), nn.Parameter(torch.ones(3))
    made = ZeroOptimiser(team, [("a", a), ("b", b)], SETTINGS)
    a.grad = torch.tensor([1.0, -2.0, 0.0, 0.0]) * (team.rank + 1)
    norm = made.step(0.1)
    return team.gather((made.owner, norm, a.tolist(), b.tolist(), sorted(made.state()), a.grad, b.grad))


def unsharded(team: Team) -> list[Any]:
    """What FSDP does with parameters that are whole on every rank, of which the first took no part."""
    a, b = nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(3))
    made = ShardOptimiser([("a", a), ("b", b)], {"a": a, "b": b}, SETTINGS)
    b.grad = torch.tensor([1.0, -2.0, 2.0]) * (team.rank + 1)
    norm = made.step(0.1)
    return team.gather((norm, a.tolist(), b.tolist(), sorted(made.shards()), a.grad, b.grad))


def test_gradients_are_added_up_and_what_took_no_part_is_left_alone() -> None:
    def work() -> tuple[list[Any], list[Any]]:
        team = teams.current()
        assert team is not None
        return team.together(owned), team.together(unsharded)

    zero, whole = on_ranks(2, work)
    for rank, (owner, norm, a, b, state, *gradients) in enumerate(zero):
        # 1 + 2 times each: (3, -6), whose norm is the root of 45; AdamW's first step is the rate, against the sign.
        assert owner == [0, 1] and norm == pytest.approx(45**0.5) and a == pytest.approx([0.9, 1.1, 1.0, 1.0])
        assert b == [1.0] * 3 and state == ([] if rank else ["a/exp_avg", "a/exp_avg_sq", "a/step"])
        assert gradients == [None, None]
    for norm, a, b, state, *gradients in whole:
        assert norm == pytest.approx(9.0) and a == [1.0, 1.0] and b == pytest.approx([0.9, 1.1, 0.9])
        assert state == ["b/exp_avg", "b/exp_avg_sq", "b/step"] and gradients == [None, None]


def test_fsdp_refuses_what_it_cannot_shard() -> None:
    learner: Any = SimpleNamespace(settings=LearnerSettings(optimiser=OptimiserSettings(name="muon")))
    with pytest.raises(OneiroError, match="fsdp trains with adamw, not muon"):
        FullySharded(SimpleNamespace()).prepare(learner)  # type: ignore[arg-type]
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


def test_shards_that_cannot_be_written_name_the_rank_and_none_are_written_before_an_update(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    team: Any = SimpleNamespace(rank=3, orders=None, everywhere=lambda own: [False, own])
    with pytest.raises(OneiroError, match=r"rank 3 cannot write .*policy-optimiser: .*; every rank needs the run"):
        shards.write(team, tmp_path / "file" / "policy", {"w/step": torch.ones(())})
    shards.write(team, tmp_path / "policy", {})
    assert not shards.folder_of(tmp_path / "policy").exists() and shards.listed(tmp_path / "policy") == {}


def kept(team: Team) -> list[list[int]]:
    return team.gather(sorted(team.kept))


def weights(team: Team, number: int) -> list[tuple[float, float]]:
    """One weight of the body and one of the value head, on every rank."""
    learner = team.kept[number]
    return team.gather(
        (float(learner.backbone.norm.weight[0]), float(next(learner.value_head.parameters()).view(-1)[0]))
    )


def test_ranks_follow_the_learner_of_rank_0_and_forget_it_with_him() -> None:
    make_tiny()  # so that ranks need not import what it needs
    rows = [Example.of(Row([given([1, 2]), given([3 + i], ce=1.0)])) for i in range(4)]

    def work() -> dict[str, Any]:
        team, language = teams.current(), make_tiny()
        assert team is not None
        head = ValueHead(language.backbone.shape.width)
        learner = Learner(language.backbone, LearnerSettings(), 4, head, has_lm_head=True)
        number = learner.parallel.number
        found: dict[str, Any] = {"kept": team.together(kept)}
        learner.backbone.norm.weight.data[0] = 7.0  # through `data`: nobody sees it
        next(head.parameters()).data.view(-1)[0] = 8.0
        learner.parallel.changed(learner)
        found["changed"] = team.together(weights, number)
        for example in rows:
            example.columns |= dict.fromkeys(("values", "returns"), example.weights["ce"] * 0)
        learner.update(rows)
        found["sent"] = [m.versions == m.present() for m in mirror._mirrors.values()]
        found["updated"] = team.together(weights, number)
        del learner
        gc.collect()
        found["left"] = team.together(kept)
        return found

    found = on_ranks(2, work)
    # 1: the body, 2: the value head, 3: the learner. The bytes of the first two lie under -1 and -2.
    assert found["kept"] == [[-2, -1, 3], [-2, -1, 1, 2, 3]]
    assert found["changed"] == [(7.0, 8.0)] * 2
    assert found["updated"][0] == found["updated"][1] != (7.0, 8.0)
    assert found["sent"] == [True, True]  # every rank made the update: there is nothing to send
    assert found["left"] == [[-2, -1], [-2, -1, 1, 2]]
