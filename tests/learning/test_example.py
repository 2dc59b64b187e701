"""Examples: what a row predicts and shares."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from oneiro.episode import PrefixGroup, Row, SamplingParams, Segment, given
from oneiro.learning.batch import Example, prefix_groups
from oneiro.runtime.errors import OneiroError


def reply(*tokens: int, turn: int = 0, temperature: float = 1.0, **more: Any) -> Segment:
    logprobs = -np.arange(1, len(tokens) + 1) / 4
    return Segment(np.array(tokens), True, turn=turn, logprobs=logprobs, params=SamplingParams(temperature), **more)


def test_what_rows_may_share_ends_before_the_first_loss_and_where_it_is_told_to() -> None:
    parts = [given([1, 2]), given([3]), given([4, 5], ce=1.0), reply(6)]
    assert Row(parts).prefix.tolist() == [1, 2, 3] and Row(parts, shared_segments=1).prefix.tolist() == [1, 2]
    assert Row(parts, shared_segments=0).prefix.tolist() == [] and Row([reply(6)]).prefix.tolist() == []
    assert Example.of(Row(parts)).shared.tolist() == [1, 2] and Example.of(Row([reply(6)])).shared.tolist() == []
    found = prefix_groups([Example.of(Row(parts)), Example.of(Row([reply(6)])), Example.of(Row(parts))])
    assert found == [PrefixGroup(2, [0, 2]), PrefixGroup(0, [1])]


def test_an_example_predicts_every_token_but_the_first() -> None:
    example = Example.of(Row([reply(3, 4, 5, temperature=0.5), given([6, 7], ce=2.0)]))
    assert example.weights["policy"].tolist() == [0, 1, 1, 0, 0] == example.weights["kl"].tolist()
    assert example.weights["ce"].tolist() == [0, 0, 0, 2, 2] and example.prefix == 0 and len(example) == 5
    assert example.temperature.tolist() == [0.5, 0.5, 0.5, 1, 1] and example.temperature.dtype == np.float32
    assert example.sampling == SamplingParams(0.5) and example.columns == {}
    assert Example.of(Row([given([1, 2], ce=1.0)])).weights["ce"].tolist() == [0, 1]
    with pytest.raises(OneiroError, match="greedy samples cannot be learned from"):
        Example.of(Row([given([1]), reply(2, temperature=0.0)]))
