"""Layouts of batches, token by token."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from oneiro.episode import PrefixGroup, Row, SamplingParams, Segment, given
from oneiro.learning import batch as batching
from oneiro.learning.batch import Example, PackedGroups, RowsAfterPrefix, SeparateRows, batches


def reply(*tokens: int, turn: int = 0, temperature: float = 1.0, **more: Any) -> Segment:
    logprobs = -np.arange(1, len(tokens) + 1) / 4
    return Segment(np.array(tokens), True, turn=turn, logprobs=logprobs, params=SamplingParams(temperature), **more)


def family(prefix: list[int], *lengths: int, start: int = 100) -> list[Example]:
    """Rows behind one prefix; tokens of a row count up, so that places can be told."""
    rows = [Row([given(prefix), reply(*range(start + 10 * i, start + 10 * i + n))]) for i, n in enumerate(lengths)]
    return [Example.of(row) for row in rows]


def test_separate_rows_are_padded_and_know_what_predicts_what() -> None:
    examples = family([1, 2, 3], 2, 4)
    (found,) = batches(examples, 1000, share=False)
    assert isinstance(found, SeparateRows)
    assert found.tokens.tolist() == [[1, 2, 3, 100, 101, 0, 0], [1, 2, 3, 110, 111, 112, 113]]
    assert found.where.tolist() == [2, 3, 9, 10, 11, 12] and found.targets.tolist() == [100, 101, 110, 111, 112, 113]
    assert found.rows.tolist() == [0, 0, 1, 1, 1, 1] and found.computed_tokens == 14
    assert [(i, at.tolist()) for i, at in found.places] == [(0, [3, 4]), (1, [3, 4, 5, 6])]
    assert found.columns["logprobs"].tolist() == [-0.25, -0.5, -0.25, -0.5, -0.75, -1.0]
    assert set(found.columns) == {"policy", "ce", "kl", "logprobs", "temperature"}


def test_rows_after_a_prefix_leave_its_last_token_with_each_row() -> None:
    examples = [*family([1, 2, 3], 2, 4), *family([8, 9], 1, start=200)]
    (found,) = batches(examples, 1000, share=True, packed=False)
    assert isinstance(found, RowsAfterPrefix)
    # Groups by the length of what they share: [8] and its row, then [1, 2] and its two.
    assert found.tokens.tolist() == [[9, 200, 0, 0, 0], [3, 100, 101, 0, 0], [3, 110, 111, 112, 113]]
    assert found.prefixes.tolist() == [[8, 0], [1, 2]] and found.lengths.tolist() == [1, 2]
    assert found.owner.tolist() == [0, 1, 1] and found.start.tolist() == [1, 2, 2]
    assert found.where.tolist() == [0, 5, 6, 10, 11, 12, 13] and found.computed_tokens == 15 + 4
    assert [(i, at.tolist()) for i, at in found.places] == [(2, [2]), (0, [3, 4]), (1, [3, 4, 5, 6])]


def test_packed_groups_put_row_after_row_behind_their_prefix() -> None:
    examples = [*family([1, 2, 3], 2, 3), *family([8, 9], 1, start=200)]
    (found,) = batches(examples, 1000, share=True, packed=True)
    assert isinstance(found, PackedGroups)
    # [8] 9 200; [1 2] 3 100 101, 3 110 111 112: 3 and 9 tokens, in sequences of a multiple of 8.
    assert found.tokens.tolist() == [
        [8, 9, 200] + [0] * 13, [1, 2, 3, 100, 101, 3, 110, 111, 112] + [0] * 7,
    ]  # fmt: skip
    assert found.row_id.tolist() == [[0, 1, 1] + [-1] * 13, [0, 0, 1, 1, 1, 2, 2, 2, 2] + [-1] * 7]
    assert found.positions.tolist() == [[0, 1, 2] + [0] * 13, [0, 1, 2, 3, 4, 2, 3, 4, 5] + [0] * 7]
    assert found.where.tolist() == [1, 18, 19, 21, 22, 23] and found.computed_tokens == 32
    assert batching.packed_length(examples, PrefixGroup(2, [0, 1])) == 2 + 3 + 4
    (exact,) = batches(family([1, 2], 6), 1000, share=True, packed=True)
    assert exact.computed_tokens == 8


def test_prefixes_are_shared_where_that_saves_a_fifth() -> None:
    # Two rows of 5 + n tokens share 4: 4 of 2 x (5 + n) is a fifth at n = 5.
    for n, kind in ((5, RowsAfterPrefix), (6, SeparateRows)):
        (found,) = batches(family([1, 2, 3, 4, 5], n, n), 1000)
        assert isinstance(found, kind)
    (found,) = batches(family([1, 2, 3, 4, 5], 5, 5), 1000, packed=True)
    assert isinstance(found, PackedGroups)


def test_batches_hold_what_fits_the_budget_and_no_more() -> None:
    alone = [PrefixGroup(0, [i]) for i in range(4)]
    rows = family([1, 2], 2, 3, 3, 7)  # lengths 4, 5, 5, 9

    def sizes(budget: int) -> list[list[int]]:
        return [[g.rows[0] for g in chunk] for chunk in batching.pack(alone, rows, budget)]

    assert sizes(15) == [[0, 1, 2], [3]] and sizes(14) == [[0, 1], [2], [3]] and sizes(1) == [[0], [1], [2], [3]]
    assert sizes(36) == [[0, 1, 2, 3]] and sizes(35) == [[0, 1, 2], [3]]
    # With prefixes: rows x longest own part + groups x longest prefix.
    groups = [PrefixGroup(2, [0, 1]), PrefixGroup(1, [2])]
    assert len(list(batching.pack(groups, rows, 3 * 4 + 2 * 2))) == 1
    assert len(list(batching.pack(groups, rows, 3 * 4 + 2 * 2 - 1))) == 2
    uneven = [PrefixGroup(2, [0, 3]), PrefixGroup(1, [2])]  # the longest own part has 7
    assert [len(list(batching.pack(uneven, rows, budget))) for budget in (3 * 7 + 2 * 2, 3 * 7 + 2 * 2 - 1)] == [1, 2]
    sequences = [PrefixGroup(2, [0]), PrefixGroup(2, [1]), PrefixGroup(2, [3])]
    assert [len(c) for c in batching.pack_sequences(sequences, rows, 10)] == [2, 1]
    assert [len(c) for c in batching.pack_sequences(sequences, rows, 9)] == [1, 1, 1]
    assert [len(c) for c in batching.pack_sequences(sequences, rows, 27)] == [3]
    assert [len(c) for c in batching.pack_sequences(sequences, rows, 1)] == [1, 1, 1]
    assert list(batching.pack([], rows, 9)) == [] == list(batching.pack_sequences([], rows, 9))
    # A group that is too large is cut between rows; each part pays for its prefix again.
    whole = PrefixGroup(2, [0, 1, 2, 3])  # own parts 2, 3, 3, 7
    for budget, expected in (
        (17, [[0, 1, 2, 3]]),
        (16, [[0, 1, 2], [3]]),
        (7, [[0, 1], [2], [3]]),
        (1, [[0], [1], [2], [3]]),
    ):
        cut = list(batching.cut(whole, rows, budget))
        assert [g.rows for g in cut] == expected and all(g.length == 2 for g in cut)


def test_long_packed_groups_are_cut_at_the_longest_sequence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batching, "MAX_GROUP_TOKENS", 9)
    examples = family([1, 2, 3], 2, 3, 2)
    assert [b.computed_tokens for b in batches(examples, 1000, share=True, packed=True)] == [32]
    assert [b.computed_tokens for b in batches(examples, 8, share=True, packed=True)] == [8, 8, 8]
    (found,) = batches(examples, 1000, share=True, packed=False)
    assert found.computed_tokens == 3 * 4 + 2
