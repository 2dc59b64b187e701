"""Prompts that rows share while they are decoded."""

from __future__ import annotations

import pytest
import torch

from oneiro.sampling.prefixes import NONE, Prefixes, Sharing


def caches(prompts: int, length: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    generator = torch.Generator().manual_seed(0)
    size = (prompts, 2, length, 4)
    return [(torch.randn(size, generator=generator), torch.randn(size, generator=generator)) for _ in range(2)]


@pytest.mark.parametrize("owners", [[0, 1, 0, 1, 1, 0], [1, 0, 0, 1, 2, 2], [0, 0, 1, 1, 2, 2], [2, 1]])
def test_shared_prompts_score_and_mix_as_each_row_would_alone(owners: list[int]) -> None:
    kv_cache, lengths, count = caches(3, 5), torch.tensor([5, 2, 4]), len(owners)
    prefixes = Prefixes(kv_cache, lengths)
    rows = torch.arange(count) if owners != [2, 1] else torch.tensor([3, 1])
    prefixes.seat(rows, torch.tensor(owners))
    total = 6
    query = torch.randn(total, 2, 3, 4, generator=torch.Generator().manual_seed(1))
    scores = torch.full((total, 2, 3, 9), 7.0)
    prefixes.score(1, query, scores)
    weights = torch.rand(total, 2, 3, 9)
    mixed = torch.ones(total, 2, 3, 4)
    prefixes.mix(1, weights, mixed)
    key, value = kv_cache[1]
    seated = dict(zip(rows.tolist(), owners, strict=True))
    for row in range(total):
        if row not in seated:
            assert (scores[row] == 7).all() and (mixed[row] == 1).all()
            continue
        owner = seated[row]
        for head in range(2):
            expected = query[row, head] @ key[owner, head].T
            expected[:, int(lengths[owner]) :] = -torch.inf
            torch.testing.assert_close(scores[row, head, :, :5], expected)
            assert (scores[row, head, :, 5:] == 7).all()
            torch.testing.assert_close(mixed[row, head], 1 + weights[row, head, :, :5] @ value[owner, head])


def test_rows_share_prompts_by_batches_and_forget_those_that_nobody_continues() -> None:
    sharing, one, two = Sharing(8), caches(2, 3), caches(1, 6)
    assert sharing.batch.tolist() == [NONE] * 8 and sharing.start.tolist() == [0] * 8
    assert sharing.admit(slice(0, 4), one, torch.tensor([0, 1, 1, 0]), torch.tensor([3, 2, 2, 3]))
    assert sharing.admit(slice(4, 6), two, torch.tensor([0, 0]), torch.tensor([6, 6]))
    assert sharing.admit(slice(6, 8), two, torch.tensor([0, 0]), torch.tensor([6, 6]))
    assert sharing.batch.tolist() == [0, 0, 0, 0, 1, 1, 1, 1] and len(sharing.prefixes) == 2
    assert sharing.owner.tolist() == [0, 1, 1, 0, 0, 0, 0, 0] and sharing.start.tolist() == [3, 2, 2, 3, 6, 6, 6, 6]
    first, second = sharing.seat_rows(8)
    assert (first.source is one, second.source is two, first.members, second.members) == (True, True, 2, 4)
    assert torch.as_tensor(first.rows).tolist() == [0, 3, 1, 2] and torch.as_tensor(second.rows).tolist() == [
        4,
        5,
        6,
        7,
    ]
    sharing.move(torch.tensor([7, 6]), torch.tensor([0, 2]))
    assert sharing.batch.tolist()[:4] == [1, 0, 1, 0] and sharing.start.tolist()[:4] == [6, 2, 6, 3]
    assert [torch.as_tensor(found.rows).tolist() for found in sharing.seat_rows(6)] == [[3, 1], [0, 2, 4, 5]]
    assert [found.source is two for found in sharing.seat_rows(1)] == [True]
    # A new batch gets a number of its own; three rows of one prompt and one of another are copied instead.
    three = caches(2, 3)
    assert sharing.admit(slice(1, 5), three, torch.tensor([0, 0, 1, 1]), torch.tensor([1, 1, 2, 2]))
    assert sharing.batch.tolist()[:5] == [1, 2, 2, 2, 2]
    assert not sharing.admit(slice(1, 4), caches(2, 3), torch.tensor([0, 0, 1]), torch.tensor([1, 1, 2]))
    assert sharing.batch.tolist()[:5] == [1, NONE, NONE, NONE, 2] and sharing.start.tolist()[1:4] == [0, 0, 0]
    alike = torch.tensor([0] * 6 + [1, 2])
    assert not sharing.admit(slice(0, 8), caches(3, 3), alike, torch.ones(8, dtype=torch.long))
    assert sharing.admit(slice(2, 6), one, torch.tensor([0, 1, 1, 0]), torch.tensor([3, 2, 2, 3]))
    sharing.clear()
    assert sharing.prefixes == {} and sharing.batch.tolist() == [NONE] * 8 and sharing.start.tolist() == [0] * 8


def test_who_sits_where_is_found_anew_after_every_admission_and_move() -> None:
    sharing, one, two = Sharing(4), caches(1, 3), caches(1, 5)
    assert sharing.admit(slice(0, 4), one, torch.tensor([0] * 4), torch.tensor([3] * 4))
    assert [found.source is one for found in sharing.seat_rows(4)] == [True]
    assert sharing.admit(slice(2, 4), two, torch.tensor([0, 0]), torch.tensor([5, 5]))
    assert [torch.arange(4)[found.rows].tolist() for found in sharing.seat_rows(4)] == [[0, 1], [2, 3]]
    sharing.move(torch.tensor([2]), torch.tensor([0]))
    assert [torch.arange(4)[found.rows].tolist() for found in sharing.seat_rows(4)] == [[1], [0, 2, 3]]
    # Also where the new rows have prompts of their own.
    assert not sharing.admit(slice(2, 4), caches(2, 3), torch.tensor([0, 1]), torch.tensor([3, 3]))
    assert [torch.arange(4)[found.rows].tolist() for found in sharing.seat_rows(4)] == [[1], [0]]
