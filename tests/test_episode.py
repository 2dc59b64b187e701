"""Rows and episodes: what they count and lay out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from oneiro.episode import (
    Episode,
    FinishReason,
    PrefixGroup,
    Row,
    SamplingParams,
    Segment,
    describe_errors,
    given,
    group_by_prefix,
    groups_of,
    to_plain,
)
from oneiro.learning.batch import sampling_of


def reply(*tokens: int, turn: int = 0, temperature: float = 1.0, **more: Any) -> Segment:
    logprobs = -np.arange(1, len(tokens) + 1) / 4
    return Segment(np.array(tokens), True, turn=turn, logprobs=logprobs, params=SamplingParams(temperature), **more)


def test_a_row_lays_its_segments_out_token_by_token() -> None:
    row = Row(
        [given([1, 2], turn=1), reply(3, 4, turn=1, temperature=0.5), given([5], turn=2, ce=0.25), reply(6, turn=2)]
    )
    row.segments[3].params = SamplingParams(0.5)
    row.segments[3].weights = {"policy": 0.5, "other": np.array([7.0])}
    assert len(row) == 6 and row.tokens.tolist() == [1, 2, 3, 4, 5, 6]
    assert row.sampled.tolist() == [False, False, True, True, False, True]
    assert row.logprobs.tolist() == [0, 0, -0.25, -0.5, 0, -0.25] and row.turns.tolist() == [1, 1, 1, 1, 2, 2]
    assert row.weights("policy").tolist() == [0, 0, 1, 1, 0, 0.5] and row.weights("kl").tolist() == [0, 0, 1, 1, 0, 1]
    assert row.weights("ce").tolist() == [0, 0, 0, 0, 0.25, 0] and row.weights("other").tolist() == [0, 0, 0, 0, 0, 7]
    assert row.temperature == 0.5 and Row([given([1])]).temperature == 1.0
    assert row.prefix.tolist() == [1, 2] and row.prefix.dtype == np.int32
    row.segments[3].params = SamplingParams(0.75)
    with pytest.raises(ValueError, match=r"mixes temperatures \[0.5, 0.75\]"):
        _ = row.temperature
    with pytest.raises(ValueError, match="one row mixes ways of sampling"):
        sampling_of(row)
    for wrong in (None, np.zeros(1)):
        with pytest.raises(ValueError, match="one log-probability per token"):
            Segment(np.array([1, 2]), True, logprobs=wrong)


def test_episodes_count_their_tokens_scores_and_losses() -> None:
    first = Episode([Row([given([1]), reply(2, 3)]), Row([given([1]), reply(4)])], rewards=[1.0, -0.25], group=4)
    second = Episode([], group=2, finish_reason=FinishReason.ERROR, info={"error": "world died"})
    assert (first.score, first.sampled_tokens, second.score, second.sampled_tokens) == (0.75, 3, 0.0, 0)
    groups = groups_of([first, second, first])
    assert groups == [[first, first], [second]]
    assert (
        describe_errors([first]) is None
        and describe_errors([first, second]) == "1 of 2 episodes lost to errors: world died"
    )
    assert describe_errors([replace(second, info={})] * 3) == "3 of 3 episodes lost to errors"
    assert SamplingParams().whole and not SamplingParams(top_k=1).whole and not SamplingParams(top_p=0.99).whole


def test_rows_are_grouped_by_equal_prefixes_in_order() -> None:
    groups = group_by_prefix([np.array(p, np.int32) for p in ([1, 2], [3], [1, 2], [], [3], [1])])
    assert groups == [PrefixGroup(2, [0, 2]), PrefixGroup(1, [1, 4]), PrefixGroup(0, [3]), PrefixGroup(1, [5])]


def test_a_stored_segment_holds_only_what_differs_from_the_default() -> None:
    (row,) = to_plain(Episode([Row([given([4, 5]), given([6], "assistant", "tag", 2, ce=0.5)])]))["rows"]
    plain, other = row["segments"]
    assert plain == {"tokens": [4, 5]}
    assert other == {"tokens": [6], "role": "assistant", "tag": "tag", "turn": 2, "weights": {"ce": 0.5}}
