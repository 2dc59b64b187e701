"""What an update reports, by hand: means over tokens of a model whose log-probabilities are known."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from oneiro.episode import Episode, FinishReason, Row, SamplingParams, Segment, given
from oneiro.learning.batch import Example
from oneiro.learning.learner import Learner, LearnerSettings, Statistics
from oneiro.learning.loop import describe
from oneiro.learning.losses import LossSettings
from oneiro.models.heads import ValueHead
from oneiro.models.language import LanguageModel

PROMPT, REPLY, ANSWER = [4, 5, 6], [7, 8, 9, 10], [11, 12]


def test_an_update_reports_means_over_its_tokens(tiny: LanguageModel) -> None:
    tokens = torch.tensor([*PROMPT, *REPLY, *ANSWER])
    scores = tiny.model(tokens[None]).logits[0, :-1].log_softmax(-1).detach()
    every = scores.gather(1, tokens[1:, None])[:, 0].numpy()
    own, answered = every[2:6], every[6:8]
    entropies = -(scores.exp() * scores).sum(-1).numpy()[2:6]
    apart = np.array([0.1, -0.5, 0.05, 0.4], np.float32)  # logarithms of the ratios: two are outside of the clip
    gaps = np.array([0.2, -0.3, 0.0, 1.0], np.float32)  # reference against policy
    reply = Segment(np.array(REPLY), True, logprobs=own - apart, params=SamplingParams())
    example = Example.of(Row([given(PROMPT), reply, given(ANSWER, ce=1.0)]))
    sampled = slice(3, 7)
    columns = {name: np.zeros(9, np.float32) for name in ("advantages", "reference", "values", "returns")}
    columns["reference"][sampled] = own + gaps
    columns["returns"][sampled] = [1.0, 2.0, 3.0, 4.0]
    example.columns = columns
    head = ValueHead(tiny.backbone.shape.width, tiny.backbone.device)
    with torch.no_grad():
        head.linear.bias.fill_(0.5)
    settings = LearnerSettings(loss=LossSettings(kl=0.1, value=0.25, value_clip=None))
    found = Learner(tiny.backbone, settings, 1, head).update([example])
    ratio, k3 = np.exp(apart), np.exp(gaps) - gaps - 1
    expected = {
        "entropy": entropies.mean(),
        "ratio": ratio.mean(),
        "approx_kl": (ratio - 1 - apart).mean(),
        "clip_fraction": 0.5,
        "largest_difference": 0.5,
        "reference_kl": k3.mean(),
        "ce": -answered.mean(),
        "value": 0.5,
        "value_error": np.mean([0.25, 2.25, 6.25, 12.25]),
        "lr": 1e-3,
    }
    for name, value in expected.items():
        assert found[name] == pytest.approx(float(value), rel=1e-4), name
    loss = 0.1 * k3.mean() - answered.mean() + 0.25 * 0.5 * expected["value_error"]
    assert found["loss"] == pytest.approx(float(loss), rel=1e-4)


def test_a_batch_of_episodes_is_described_by_means() -> None:
    def episode(rewards: list[float], replies: list[int], **more: object) -> Episode:
        made = [Segment(np.arange(n), True, logprobs=np.zeros(n), params=SamplingParams()) for n in replies]
        return Episode([Row([given([1]), *made])], rewards=rewards, **more)  # type: ignore[arg-type]

    found = describe(
        [
            episode([1.0, 2.0], [3, 4], success=True, terms={"goal": [1.0, 1.0], "format": [0.0, 1.0]}),
            episode([0.5], [2], terms={"goal": [0.5]}, finish_reason=FinishReason.ERROR),
        ]
    )
    assert found == {
        "success": 0.5,
        "reward": 1.75,
        "turns": 1.5,
        "response_length": 3.0,
        "errors": 0.5,
        "reward_goal": 1.25,
        "reward_format": 0.5,
    }
    assert describe([]) == {}


def test_a_ratio_at_the_bound_is_not_outside_of_the_clip() -> None:
    """exp(0) is 1 to the last bit, and the bounds are 1 too."""
    columns = {name: torch.tensor([0.5, 0.5]) for name in ("mean_policy", "advantages", "logprobs", "ce")}
    for moved, outside in ((0.0, 0.0), (0.1, 0.5), (-0.1, 0.5)):
        statistics = Statistics()
        logprobs = columns["logprobs"] + torch.tensor([0.0, moved])
        statistics.add_policy(logprobs, torch.zeros(2), columns, LossSettings(clip_low=0, clip_high=0))
        assert float(statistics.sums["clip_fraction"]) == outside
