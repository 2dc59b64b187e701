"""Losses and their weights, by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from oneiro.episode import Row, SamplingParams, Segment, given
from oneiro.learning import losses
from oneiro.learning.batch import Example
from oneiro.learning.learner import add_weights
from oneiro.learning.losses import LossSettings, policy_loss, row_log_ratio, value_loss


def reply(*tokens: int, turn: int = 0, temperature: float = 1.0, **more: Any) -> Segment:
    logprobs = -np.arange(1, len(tokens) + 1) / 4
    return Segment(np.array(tokens), True, turn=turn, logprobs=logprobs, params=SamplingParams(temperature), **more)


def test_clips_and_estimates_beyond_their_bounds() -> None:
    settings = LossSettings(clip_low=0.5, clip_high=0.25, dual_clip=None)
    ratio, advantage = torch.tensor([30.0, -30.0, 30.0, 0.0]), torch.tensor([-1.0, 1.0, 1.0, -2.0])
    expected = [float(np.exp(20)), -float(np.exp(-20)), -1.25, 2.0]
    assert policy_loss(ratio, advantage, settings).tolist() == pytest.approx(expected, rel=1e-5)
    far = losses.kl_estimate(torch.tensor([0.0, 0.0]), torch.tensor([50.0, -50.0]), "k3")
    assert far.tolist() == pytest.approx([np.exp(10) - 11, np.exp(-10) + 9], rel=1e-5)
    values, old, target = torch.tensor([2.0, 0.2, -3.0]), torch.zeros(3), torch.tensor([0.5, 1.0, -1.0])
    # Clipped to 0.5: errors 0, 0.8, 0.5 against 1.5, 0.8, 2; the worse counts.
    assert value_loss(values, old, target, 0.5).tolist() == pytest.approx([1.125, 0.32, 2.0])
    columns = {
        "policy": torch.tensor([0.5, 0.0, 0.5, 1.0]),
        "logprobs": torch.zeros(4),
        "old": torch.tensor([0.0, 9.0, 1.0, 2.0]),
    }
    found = row_log_ratio(torch.tensor([1.0, 1.0, 3.0, 7.0]), columns, torch.tensor([0, 0, 0, 2]), 3)
    assert found.tolist() == [1.5, 1.5, 1.5, 5.0]


def test_weights_are_scaled_as_each_aggregation_says() -> None:
    rows = [Row([given([1]), reply(2, 3)]), Row([given([1]), reply(2, 3, 4, 5)]), Row([given([1, 2, 3], ce=1.0)])]
    examples = [Example.of(row) for row in rows]
    examples[1].weights["policy"][2] = 3.0

    def policy(*how: Any) -> list[list[float]]:
        return [w["policy"].tolist() for w in losses.normalise(examples, *how)]

    # Sums 2, 6, 0: eight in all; two rows count.
    assert policy("token-mean") == [[0, 0.125, 0.125], [0, 0.125, 0.375, 0.125, 0.125], [0, 0, 0]]
    third = pytest.approx([0, 1 / 12, 0.25, 1 / 12, 1 / 12])
    assert policy("sequence-mean") == [[0, 0.25, 0.25], third, [0, 0, 0]]
    assert policy("constant", 5) == [
        [0, pytest.approx(0.1), pytest.approx(0.1)],
        pytest.approx([0, 0.1, 0.3, 0.1, 0.1]),
        [0, 0, 0],
    ]
    assert [w["ce"].tolist() for w in losses.normalise(examples, "constant", 5)][2] == [0, 0.5, 0.5]
    scaled = add_weights(examples, LossSettings(aggregate="constant", max_tokens=5))
    assert scaled[0].weights["policy"].tolist() == pytest.approx([0, 0.1, 0.1])
    assert scaled[0].columns["mean_policy"].tolist() == [0, 0.125, 0.125]
    assert scaled[1].columns["mean_kl"].tolist() == pytest.approx([0, 1 / 6, 1 / 6, 1 / 6, 1 / 6])
    assert examples[0].columns == {}
