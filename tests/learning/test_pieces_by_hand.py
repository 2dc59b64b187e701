"""Pieces of learning one by one: layouts of batches, examples, training samples, schedules, checkpoints, selection."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from oneiro.episode import Episode, FinishReason, Row, SamplingParams, Segment, given, lost
from oneiro.episode import groups_of as episode_groups
from oneiro.learning import batch as batching
from oneiro.learning import checkpoint, correction, finite, head, loop, losses, sft
from oneiro.learning.algorithms import Ppo
from oneiro.learning.async_rollout import AsyncRollout, copy_of
from oneiro.learning.batch import PackedGroups, RowsAfterPrefix, SeparateRows, batches
from oneiro.learning.example import Example, groups_of, sampling_of
from oneiro.learning.filters import FilterSettings
from oneiro.learning.learner import Learner, LearnerSettings, Statistics, hidden_matrices, scaled_for
from oneiro.learning.loop import RlSettings, TrainingSample
from oneiro.learning.losses import LossSettings, policy_loss, row_log_ratio, value_loss
from oneiro.learning.optimiser import Optimiser, OptimiserSettings, learning_rate
from oneiro.learning.settings import CorrectionSettings, SelectionSettings, SftSettings
from oneiro.learning.stages import Selection
from oneiro.models.heads import OutputHead, ValueHead
from oneiro.models.language import LanguageModel
from oneiro.models.prefix import PrefixGroup
from oneiro.runtime import files, seeds
from oneiro.runtime.errors import OneiroError
from tests.conftest import make_tiny


def reply(*tokens: int, turn: int = 0, temperature: float = 1.0, **more: Any) -> Segment:
    logprobs = -np.arange(1, len(tokens) + 1) / 4
    return Segment(np.array(tokens), True, turn=turn, logprobs=logprobs, params=SamplingParams(temperature), **more)


# Rows and examples ----------------------------------------------------------------------------------------------------


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


def test_what_rows_may_share_ends_before_the_first_loss_and_where_it_is_told_to() -> None:
    parts = [given([1, 2]), given([3]), given([4, 5], ce=1.0), reply(6)]
    assert Row(parts).prefix.tolist() == [1, 2, 3] and Row(parts, shared_segments=1).prefix.tolist() == [1, 2]
    assert Row(parts, shared_segments=0).prefix.tolist() == [] and Row([reply(6)]).prefix.tolist() == []
    assert Example.of(Row(parts)).shared.tolist() == [1, 2] and Example.of(Row([reply(6)])).shared.tolist() == []
    found = groups_of([Example.of(Row(parts)), Example.of(Row([reply(6)])), Example.of(Row(parts))])
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


def test_episodes_count_their_tokens_scores_and_losses() -> None:
    first = Episode([Row([given([1]), reply(2, 3)]), Row([given([1]), reply(4)])], rewards=[1.0, -0.25], group=4)
    second = Episode([], group=2, finish_reason=FinishReason.ERROR, info={"error": "world died"})
    assert (first.score, first.sampled_tokens, second.score, second.sampled_tokens) == (0.75, 3, 0.0, 0)
    groups = episode_groups([first, second, first])
    assert [len(g.episodes) for g in groups] == [2, 1] and groups[0].scores.tolist() == [0.75, 0.75]
    assert lost([first]) is None and lost([first, second]) == "1 of 2 episodes lost to errors: world died"
    assert lost([replace(second, info={})] * 3) == "3 of 3 episodes lost to errors"
    assert SamplingParams().whole and not SamplingParams(top_k=1).whole and not SamplingParams(top_p=0.99).whole


# Batches --------------------------------------------------------------------------------------------------------------


def family(prefix: list[int], *lengths: int, start: int = 100) -> list[Example]:
    """Rows behind one prefix; tokens of a row count up, so that places can be told."""
    rows = [Row([given(prefix), reply(*range(start + 10 * i, start + 10 * i + n))]) for i, n in enumerate(lengths)]
    return [Example.of(row) for row in rows]


def test_separate_rows_are_padded_and_know_what_predicts_what() -> None:
    examples = family([1, 2, 3], 2, 4)
    (found,) = batches(examples, 1000, share=False)
    assert isinstance(found.layout, SeparateRows)
    assert found.layout.tokens.tolist() == [[1, 2, 3, 100, 101, 0, 0], [1, 2, 3, 110, 111, 112, 113]]
    assert found.where.tolist() == [2, 3, 9, 10, 11, 12] and found.targets.tolist() == [100, 101, 110, 111, 112, 113]
    assert found.rows.tolist() == [0, 0, 1, 1, 1, 1] and found.computed_tokens == 14
    assert [(i, at.tolist()) for i, at in found.places] == [(0, [3, 4]), (1, [3, 4, 5, 6])]
    assert found.columns["logprobs"].tolist() == [-0.25, -0.5, -0.25, -0.5, -0.75, -1.0]
    assert set(found.columns) == {"policy", "ce", "kl", "logprobs", "temperature"}


def test_rows_after_a_prefix_leave_its_last_token_with_each_row() -> None:
    examples = [*family([1, 2, 3], 2, 4), *family([8, 9], 1, start=200)]
    (found,) = batches(examples, 1000, share=True, packed=False)
    assert isinstance(found.layout, RowsAfterPrefix)
    # Groups by the length of what they share: [8] and its row, then [1, 2] and its two.
    assert found.layout.tokens.tolist() == [[9, 200, 0, 0, 0], [3, 100, 101, 0, 0], [3, 110, 111, 112, 113]]
    assert found.layout.prefixes.tolist() == [[8, 0], [1, 2]] and found.layout.lengths.tolist() == [1, 2]
    assert found.layout.owner.tolist() == [0, 1, 1] and found.layout.start.tolist() == [1, 2, 2]
    assert found.where.tolist() == [0, 5, 6, 10, 11, 12, 13] and found.computed_tokens == 15 + 4
    assert [(i, at.tolist()) for i, at in found.places] == [(2, [2]), (0, [3, 4]), (1, [3, 4, 5, 6])]


def test_packed_groups_put_row_after_row_behind_their_prefix() -> None:
    examples = [*family([1, 2, 3], 2, 3), *family([8, 9], 1, start=200)]
    (found,) = batches(examples, 1000, share=True, packed=True)
    assert isinstance(found.layout, PackedGroups)
    # [8] 9 200; [1 2] 3 100 101, 3 110 111 112: 3 and 9 tokens, in sequences of a multiple of 8.
    assert found.layout.tokens.tolist() == [
        [8, 9, 200] + [0] * 13, [1, 2, 3, 100, 101, 3, 110, 111, 112] + [0] * 7,
    ]  # fmt: skip
    assert found.layout.row_id.tolist() == [[0, 1, 1] + [-1] * 13, [0, 0, 1, 1, 1, 2, 2, 2, 2] + [-1] * 7]
    assert found.layout.positions.tolist() == [[0, 1, 2] + [0] * 13, [0, 1, 2, 3, 4, 2, 3, 4, 5] + [0] * 7]
    assert found.where.tolist() == [1, 18, 19, 21, 22, 23] and found.computed_tokens == 32
    assert batching.packed_length(examples, PrefixGroup(2, [0, 1])) == 2 + 3 + 4
    (exact,) = batches(family([1, 2], 6), 1000, share=True, packed=True)
    assert exact.computed_tokens == 8


def test_prefixes_are_shared_where_that_saves_a_fifth() -> None:
    # Two rows of 5 + n tokens share 4: 4 of 2 x (5 + n) is a fifth at n = 5.
    for n, kind in ((5, RowsAfterPrefix), (6, SeparateRows)):
        (found,) = batches(family([1, 2, 3, 4, 5], n, n), 1000)
        assert isinstance(found.layout, kind)
    (found,) = batches(family([1, 2, 3, 4, 5], 5, 5), 1000, packed=True)
    assert isinstance(found.layout, PackedGroups)


def test_batches_hold_what_fits_the_budget_and_no_more() -> None:
    alone = [PrefixGroup(0, [i]) for i in range(4)]
    rows = family([1, 2], 2, 3, 3, 7)  # lengths 4, 5, 5, 9

    def sizes(budget: int) -> list[list[int]]:
        return [[g.rows[0] for g in chunk] for chunk in batching.filled(alone, rows, budget)]

    assert sizes(15) == [[0, 1, 2], [3]] and sizes(14) == [[0, 1], [2], [3]] and sizes(1) == [[0], [1], [2], [3]]
    assert sizes(36) == [[0, 1, 2, 3]] and sizes(35) == [[0, 1, 2], [3]]
    # With prefixes: rows x longest own part + groups x longest prefix.
    groups = [PrefixGroup(2, [0, 1]), PrefixGroup(1, [2])]
    assert len(list(batching.filled(groups, rows, 3 * 4 + 2 * 2))) == 1
    assert len(list(batching.filled(groups, rows, 3 * 4 + 2 * 2 - 1))) == 2
    uneven = [PrefixGroup(2, [0, 3]), PrefixGroup(1, [2])]  # the longest own part has 7
    assert [len(list(batching.filled(uneven, rows, budget))) for budget in (3 * 7 + 2 * 2, 3 * 7 + 2 * 2 - 1)] == [1, 2]
    sequences = [PrefixGroup(2, [0]), PrefixGroup(2, [1]), PrefixGroup(2, [3])]
    assert [len(c) for c in batching.filled_sequences(sequences, rows, 10)] == [2, 1]
    assert [len(c) for c in batching.filled_sequences(sequences, rows, 9)] == [1, 1, 1]
    assert [len(c) for c in batching.filled_sequences(sequences, rows, 27)] == [3]
    assert [len(c) for c in batching.filled_sequences(sequences, rows, 1)] == [1, 1, 1]
    assert list(batching.filled([], rows, 9)) == [] == list(batching.filled_sequences([], rows, 9))
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
    monkeypatch.setattr(batching, "LONGEST_GROUP", 9)
    examples = family([1, 2, 3], 2, 3, 2)
    assert [b.computed_tokens for b in batches(examples, 1000, share=True, packed=True)] == [32]
    assert [b.computed_tokens for b in batches(examples, 8, share=True, packed=True)] == [8, 8, 8]
    (found,) = batches(examples, 1000, share=True, packed=False)
    assert found.computed_tokens == 3 * 4 + 2


# The head, losses and statistics --------------------------------------------------------------------------------------


def test_chunks_cover_all_tokens_once() -> None:
    cpu = torch.device("cpu")
    assert head.chunks(40, 1 << 22, cpu) == [slice(0, 16), slice(16, 32), slice(32, 40)]
    assert head.chunks(40, 1 << 17, cpu) == [slice(0, 32), slice(32, 40)] and head.chunks(0, 9, cpu) == []


@pytest.mark.parametrize("temperature", [1.0, 2.0, 0.5])
def test_scores_and_gradients_of_a_capped_head_in_parts(temperature: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(head, "CHUNK_NUMBERS", {"cpu": 1})
    torch.manual_seed(0)
    count, vocabulary = 37, 11
    hidden = torch.randn(count, 5, requires_grad=True)
    weight, bias = torch.randn(vocabulary, 5, requires_grad=True), torch.randn(vocabulary, requires_grad=True)
    targets, cold = torch.randint(0, vocabulary, (count,)), torch.full((count,), temperature)
    by_logprob, by_entropy = torch.randn(count), torch.randn(count)

    def objective(logprobs: torch.Tensor, entropies: torch.Tensor, part: slice) -> torch.Tensor:
        return (by_logprob[part] * logprobs + by_entropy[part] * entropies).sum()

    output = OutputHead(weight, bias, 1.5)
    total, logprobs, entropies = head.loss(hidden, output, targets, cold, objective)
    found = torch.autograd.grad(3 * total, (hidden, weight, bias))
    logits = 1.5 * torch.tanh((hidden @ weight.T + bias) / 1.5) / temperature
    scores = logits.log_softmax(-1)
    own, spread = scores.gather(1, targets[:, None])[:, 0], -(scores.exp() * scores).sum(-1)
    expected = torch.autograd.grad(3 * (by_logprob @ own + by_entropy @ spread), (hidden, weight, bias))
    torch.testing.assert_close(logprobs, own.detach())
    torch.testing.assert_close(entropies, spread.detach())
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-4)
    for a, b in zip(head.score(hidden, output, targets, cold), (own, spread), strict=True):
        torch.testing.assert_close(a, b.detach())
    params = SamplingParams(temperature, top_k=3)
    mass = head.log_kept_mass(hidden, output, targets, cold, params)
    for row in range(count):
        best = set(scores[row].topk(3).indices.tolist()) | {int(targets[row])}
        assert float(mass[row]) == pytest.approx(float(scores[row, list(best)].detach().exp().sum().log()), abs=1e-5)


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
    scaled = scaled_for(examples, LossSettings(aggregate="constant", max_tokens=5))
    assert scaled[0].weights["policy"].tolist() == pytest.approx([0, 0.1, 0.1])
    assert scaled[0].columns["mean_policy"].tolist() == [0, 0.125, 0.125]
    assert scaled[1].columns["mean_kl"].tolist() == pytest.approx([0, 1 / 6, 1 / 6, 1 / 6, 1 / 6])
    assert examples[0].columns == {}


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


def test_corrections_at_their_bounds() -> None:
    old, sampler = torch.log(torch.tensor([1.0, 4.0, 0.5, 0.49, 5.0, 5.1])), torch.zeros(6)
    weights, kept = correction.token_weights(old, sampler, CorrectionSettings(name="tis", cap=2.0))
    assert weights.tolist() == pytest.approx([1, 2, 0.5, 0.49, 2, 2]) and kept.all()
    weights, kept = correction.token_weights(
        old, sampler + 1e-7, CorrectionSettings(name="icepop", low=0.4999, high=5.0)
    )
    assert weights.tolist() == pytest.approx([1, 4, 0.5, 0, 5, 0], abs=1e-5)
    assert kept.tolist() == [True, True, True, False, True, False]
    exact = torch.zeros(2)
    for bound in ({"low": 1.0, "high": 2.0}, {"low": 0.5, "high": 1.0}):
        assert correction.token_weights(exact, exact, CorrectionSettings(name="icepop", **bound))[1].all()  # type: ignore[arg-type]
    _, kept = correction.token_weights(torch.tensor([torch.nan]), torch.zeros(1), CorrectionSettings(name="tis"))
    assert not kept.any()
    found = correction.mismatch(np.array([-1.0, -2.0], np.float32), np.array([-1.5, -1.75], np.float32))
    assert found["mismatch"] == 0.5
    assert found["mismatch_kl"] == pytest.approx((np.exp(0.5) - 1.5 + np.exp(-0.25) - 0.75) / 2)


# The loop's own pieces ------------------------------------------------------------------------------------------------


def test_training_samples_gather_and_scatter_over_rows() -> None:
    rows = [Row([given([1]), reply(2, 3, turn=1)]), Row([given([4, 5]), reply(6, turn=2), given([7], turn=2)])]
    episode = Episode(rows, rewards=[1.0, 2.0], group=5)
    sample = TrainingSample.of(episode, RlSettings(environment_ce=0.5))
    assert [e.weights["ce"].tolist() for e in sample.examples] == [[0, 0, 0], [0, 0, 0, 1]]
    sample.scatter("advantages", np.array([10.0, 20.0, 30.0], np.float32))
    assert [e.columns["advantages"].tolist() for e in sample.examples] == [[0, 10, 20], [0, 0, 30, 0]]
    assert sample.gather("advantages").tolist() == [10, 20, 30]
    assert sample.old_logprobs().tolist() == [-0.25, -0.5, -0.25]
    sample.scatter("reference", np.array([-1.0, -1.0, -2.0], np.float32))
    plain = sample.trajectory(RlSettings())
    assert plain.rewards.tolist() == [0, 1, 2] and plain.values is None and (plain.group, plain.score) == (5, 3.0)
    # k1 costs 0.75, 0.5 and 1.75, half of each is taken off.
    found = sample.trajectory(RlSettings(kl_in_reward=0.5))
    assert found.rewards.tolist() == [-0.375, 0.75, 1.125] and found.score == pytest.approx(3 - 1.5)
    sample.examples[0].columns["old"] = np.array([0.0, -1.0, -1.0], np.float32)
    assert sample.old_logprobs().tolist() == [-1.0, -1.0, -0.25]
    sample.scatter("values", np.array([7.0, 8.0, 9.0], np.float32))
    assert sample.trajectory(RlSettings()).values.tolist() == [7, 8, 9]  # type: ignore[union-attr]


def test_cut_replies_are_told_by_their_own_reason() -> None:
    cut = reply(2, finish_reason=FinishReason.LENGTH)
    ended = reply(2, finish_reason=FinishReason.TOKEN)
    given_cut = given([3])
    given_cut.finish_reason = FinishReason.LENGTH
    assert loop.truncated(Episode([Row([given([1]), ended]), Row([given([1]), cut])]))
    assert not loop.truncated(Episode([Row([given([1]), ended, given_cut])]))
    masked = TrainingSample.of(
        Episode([Row([given([1]), cut]), Row([given([1]), ended])]), RlSettings(mask_truncated=True)
    )
    assert [e.weights["policy"].tolist() for e in masked.examples] == [[0, 0], [0, 0]]
    assert [e.weights["kl"].tolist() for e in masked.examples] == [[0, 1], [0, 1]]
    whole = TrainingSample.of(Episode([Row([given([1]), ended])]), RlSettings(mask_truncated=True))
    assert whole.examples[0].weights["policy"].tolist() == [0, 1]


def test_a_refill_numbers_its_batches_behind_the_last_step_and_its_groups_behind_the_last_group() -> None:
    def batch(*scores: float, group: int = 0) -> list[Episode]:
        return [Episode([Row([given([1]), reply(2)])], rewards=[s], group=group) for s in scores]

    asked: list[int] = []

    def more(number: int) -> list[Episode]:
        asked.append(number)
        return batch(0.0, float(len(asked) > 1), group=2)

    settings = RlSettings(steps=10, filter=FilterSettings(refill=3))
    found = loop.refill(batch(1.0, 1.0, group=4), 1, 2, settings, more)
    assert asked == [16, 17] and [e.group for e in found] == [4, 4, 7, 7, 10, 10]
    asked.clear()
    assert len(loop.refill(batch(0.0, 1.0), 1, 2, settings, more)) == 2 and asked == []
    assert [e.group for e in loop.refill([], 1, 0, settings, more)] == [3, 3, 6, 6] and asked == [10, 11]
    asked.clear()
    loop.refill(batch(1.0, 1.0), 9, 0, settings, more)
    assert asked == [10, 11, 12]
    broken = replace(batch(5.0)[0], finish_reason=FinishReason.ERROR)
    silent = Episode([Row([given([1])])], rewards=[3.0])
    (good,) = batch(1.0)
    assert loop.learnable([broken, silent, good]) == [good]


def test_what_the_loop_says_about_the_loss_and_who_learns(tiny: LanguageModel) -> None:
    settings = RlSettings(environment_ce=0.3, learner=LearnerSettings(loss=LossSettings(max_tokens=9)))
    assert loop.learner_settings(settings, 70).loss.max_tokens == 9 and loop.learner_settings(settings).loss.ce == 0.3
    assert (
        loop.learner_settings(RlSettings(), 70).loss.max_tokens == 70
        and loop.learner_settings(RlSettings()).loss.ce == 1.0
    )
    plain = loop.make_learners(tiny, RlSettings(), LearnerSettings(), 5, seed=3)
    assert list(plain) == ["policy"] and (plain["policy"].steps, plain["policy"].seed) == (5, 3)
    assert plain["policy"].value_head is None and plain["policy"].has_lm_head
    shared = loop.make_learners(tiny, RlSettings(algorithm=Ppo(), shared_backbone=True), LearnerSettings(), 5, seed=3)
    assert list(shared) == ["policy"] and shared["policy"].value_head is not None and shared["policy"].seed == 3
    critic = OptimiserSettings(lr=0.25)
    both = loop.make_learners(tiny, RlSettings(algorithm=Ppo(), critic=critic), LearnerSettings(), 5, seed=3)
    assert list(both) == ["policy", "critic"] and both["critic"].settings.optimiser == critic
    assert both["policy"].settings.optimiser == OptimiserSettings() and both["policy"].value_head is None
    assert not both["critic"].has_lm_head and both["critic"].backbone is not tiny.backbone
    assert (both["critic"].steps, both["critic"].seed, both["policy"].steps, both["policy"].seed) == (5, 3, 5, 3)
    assert len(loop.modules(both)) == 3 and len(loop.modules(plain)) == 1
    assert RlSettings(epochs=3, minibatches=4).updates_per_step == 12


def test_minibatches_are_even_random_and_in_order() -> None:
    rows = [*family([1, 2, 3], 1, 1, 1, 1, 1), *family([4], 1), *family([5], 1), *family([6], 1)]
    parts = loop.minibatches(rows, 2, seed=1)
    assert sorted(i for p in parts for i in p) == list(range(8)) and [len(p) for p in parts] == [4, 4]
    assert all(p == sorted(p) for p in parts) and any({0, 1, 2, 3} <= set(p) for p in parts)
    assert loop.minibatches(rows, 1, seed=1) == [list(range(8))]
    assert len({str(loop.minibatches(rows, 3, seed)) for seed in range(6)}) > 1
    order = seeds.generator(4).permutation(3)
    assert loop.minibatches(family([1], 1, 1, 1), 5, 4) == [[int(order[k])] for k in range(3)]


# Supervised learning --------------------------------------------------------------------------------------------------


def test_an_update_takes_groups_of_as_many_rows_as_a_batch_has_on_average() -> None:
    plain = sft.Schedule.of(SftSettings(batch=4, epochs=1.5), 10, None)
    # Ten rows in fours: 1.5 x 10 / 4 = 3.75, so four updates.
    assert (plain.steps, plain.at_once, list(plain.ends)) == (4, 4, list(range(1, 11)))
    grouped = sft.Schedule.of(SftSettings(batch=4, epochs=1.0), 12, [2, 4, 6])
    # Three groups of four rows on average: one group at once, three updates.
    assert (grouped.steps, grouped.at_once, list(grouped.ends)) == (3, 1, [2, 6, 12])
    assert sorted(sorted(grouped.rows(0, step)) for step in range(3)) == [[0, 1], [2, 3, 4, 5], [6, 7, 8, 9, 10, 11]]
    small = sft.Schedule.of(SftSettings(batch=1, epochs=0.01), 100, [50, 50])
    assert (small.steps, small.at_once) == (1, 1)
    shuffles = [seeds.generator(7, "shuffle", epoch).permutation(5).tolist() for epoch in range(3)]
    chain = [row for shuffle in shuffles for row in shuffle]
    assert [sft.order(5, 7, step, 4) for step in range(3)] == [chain[:4], chain[4:8], chain[8:12]]


def test_held_out_loss_is_a_mean_over_weights_and_overfitting_is_five_percent(tiny: LanguageModel) -> None:
    rows = [Row([given([1, 2]), given([3, 4], ce=2.0)]), Row([given([1]), given([5], ce=0.5)])]
    found = sft.mean_loss(Learner(tiny.backbone, LearnerSettings(), 1), rows)
    scores = tiny.model(torch.tensor([[1, 2, 3, 4]])).logits[0].log_softmax(-1).detach()
    other = tiny.model(torch.tensor([[1, 5]])).logits[0].log_softmax(-1).detach()
    expected = -(2 * scores[1, 3] + 2 * scores[2, 4] + 0.5 * other[0, 5]) / 4.5
    assert found == pytest.approx(float(expected), rel=1e-4)
    assert sft.overfitting([]) is None and sft.overfitting([(1, 9.0)]) is None
    assert sft.overfitting([(1, 1.0), (2, 2.0), (3, 1.05)]) is None
    said = sft.overfitting([(1, 2.0), (5, 1.0), (9, 1.06)])
    assert said is not None and said.startswith("the loss on held-out rows was 1 after 5 of 9 steps and is 1.06 now")


@pytest.mark.parametrize(("steps", "looks"), [(8, [2, 4, 6, 8]), (3, [1, 2, 3]), (10, [3, 5, 8, 10])])
def test_the_held_out_loss_is_measured_four_times(steps: int, looks: list[int], tmp_path: Path) -> None:
    rows = [Row([given([1, 2]), given([3 + i], ce=1.0)]) for i in range(steps)]
    logged: dict[int, dict[str, float]] = {}
    settings = SftSettings(batch=1, epochs=1.0, checkpoint_every=100)
    rewound: list[int] = []
    folder = sft.train(
        make_tiny(), rows, rows[:1], settings, tmp_path, 0, lambda step, values: logged.update({step: values}),
        rewound.append, group_sizes=[1] * steps,
    )  # fmt: skip
    assert [step for step, values in logged.items() if "held_out_ce" in values] == looks
    assert folder.name == f"step-{steps:06d}" and rewound == [0] and all(v["rows"] == 1.0 for v in logged.values())


# Optimiser ------------------------------------------------------------------------------------------------------------


def test_rates_at_the_edges_of_their_schedules() -> None:
    def rates(steps: int, *at: int, **how: Any) -> list[float]:
        return [learning_rate(OptimiserSettings(lr=0.8, **how), step, steps) for step in at]

    assert rates(10, 0, 5, 9, 99) == [0.8] * 4
    # Two steps of warm-up, then eight of a line from 0.8 to a quarter of it.
    line = rates(10, 0, 1, 2, 6, 9, 10, 50, warmup=2, schedule="linear", final=0.25)
    assert line == pytest.approx([0.4, 0.8, 0.8, 0.8 * 0.625, 0.8 * (0.25 + 0.75 / 8), 0.2, 0.2])
    wave = rates(10, 2, 4, 6, 10, warmup=0.2, schedule="cosine")
    assert wave == pytest.approx([0.8, 0.8 * 0.8535534, 0.4, 0.0], abs=1e-7)
    assert rates(100, 6, 7, warmup=0.07, schedule="linear") == pytest.approx([0.8, 0.8])
    assert rates(1, 0, 1, warmup=5, schedule="linear") == pytest.approx([0.16, 0.32])
    assert rates(2, 2, warmup=2, schedule="linear") == [0.8]
    assert rates(10, 0, 1, warmup=1.5) == pytest.approx([0.4, 0.8]) and rates(10, 0, warmup=1.0) == [0.8]


def test_an_optimiser_counts_what_it_applied_and_returns_the_norm() -> None:
    weight, bias = torch.nn.Parameter(torch.ones(2, 2)), torch.nn.Parameter(torch.ones(2))
    still = torch.nn.Parameter(torch.ones(3))
    optimiser = Optimiser(
        [("weight", weight), ("bias", bias), ("still", still)], OptimiserSettings(lr=0.5, weight_decay=0.5)
    )
    weight.grad, bias.grad = torch.full((2, 2), 3.0), torch.full((2,), 4.0)
    assert (
        optimiser.applied == 0 and optimiser.step(0.125) == pytest.approx((36 + 32) ** 0.5) and optimiser.applied == 1
    )
    # The first step of Adam is the rate itself; matrices decay by rate x decay besides.
    assert weight.detach().flatten().tolist() == pytest.approx([1 - 0.0625 - 0.125] * 4, abs=1e-4)
    assert bias.detach().tolist() == pytest.approx([0.875] * 2, abs=1e-4) and still.detach().tolist() == [1, 1, 1]
    assert weight.grad is None and bias.grad is None
    assert sorted(optimiser.state()) == sorted(
        f"{n}/{k}" for n in ("weight", "bias") for k in ("step", "exp_avg", "exp_avg_sq")
    )
    weight.grad = torch.full((2, 2), torch.inf)
    with pytest.raises(finite.NotFiniteError, match="norm of the gradient is"):
        optimiser.step(0.1)
    assert weight.grad is None and optimiser.applied == 1
    assert weight.detach().flatten().tolist() == pytest.approx([1 - 0.0625 - 0.125] * 4, abs=1e-4)


def test_coarse_weights_without_a_gradient_stay_what_they_are() -> None:
    moved, still = (torch.nn.Parameter(torch.ones(2, dtype=torch.bfloat16)) for _ in range(2))
    optimiser = Optimiser([("moved", moved), ("still", still)], OptimiserSettings())
    moved.grad = torch.ones(2, dtype=torch.bfloat16)
    optimiser.step(0.25)
    assert moved.detach().tolist() == [0.75, 0.75] and still.detach().tolist() == [1, 1] and moved.grad is None
    assert set(optimiser.state()) == {
        "still/master",
        *(f"moved/{k}" for k in ("master", "step", "exp_avg", "exp_avg_sq")),
    }


def test_muon_and_adamw_get_the_settings_and_come_back_from_a_state() -> None:
    settings = OptimiserSettings(name="muon", lr=0.5, betas=(0.8, 0.7), weight_decay=0.03)

    def made() -> tuple[list[torch.nn.Parameter], Optimiser]:
        torch.manual_seed(0)
        parameters = [torch.nn.Parameter(torch.randn(3, 3)) for _ in range(2)] + [torch.nn.Parameter(torch.ones(3))]
        named = list(zip(("inside", "outside", "norm"), parameters, strict=True))
        return parameters, Optimiser(named, settings, hidden={"inside"})

    parameters, optimiser = made()
    (muon,), (matrices, vectors) = (part.param_groups for part in optimiser.parts)
    assert (muon["weight_decay"], muon["momentum"], muon["lr"]) == (0.03, 0.7, 0.5)
    assert (matrices["weight_decay"], vectors["weight_decay"], matrices["betas"]) == (0.03, 0.0, (0.8, 0.7))
    assert muon["params"] == parameters[:1] and matrices["params"] == parameters[1:2]
    again, other = made()

    def step(own: list[torch.nn.Parameter], optimiser: Optimiser, seed: int) -> None:
        torch.manual_seed(seed)
        for parameter in own:
            parameter.grad = torch.randn(parameter.shape)
        optimiser.step(0.1)

    step(parameters, optimiser, 1)
    other.restore({key: value.clone() for key, value in optimiser.state().items()})
    with torch.no_grad():
        for mine, theirs in zip(again, parameters, strict=True):
            mine.copy_(theirs)
    for own, each in ((parameters, optimiser), (again, other)):
        step(own, each, 2)
    assert all(torch.equal(a, b) for a, b in zip(parameters, again, strict=True))


# Checkpoints ----------------------------------------------------------------------------------------------------------


def written(folder: Path, step: int, **state: Any) -> Path:
    def fill(part: Path) -> None:
        files.write_json(part / "state.json", {"step": step, **state})
        (part / "model").mkdir()
        (part / "model" / "x").write_text(str(step))

    return checkpoint.write(folder, step, fill, keep=3)


def test_checkpoints_are_known_by_their_numbers(tmp_path: Path) -> None:
    assert checkpoint.latest(tmp_path) is None and checkpoint.intact(tmp_path) is None
    for step in (2, 10, 9, 1000000):
        written(tmp_path, step)
    (tmp_path / "step-x").mkdir()
    (tmp_path / "step-000004.part").mkdir()
    assert list(checkpoint.checkpoints(tmp_path)) == [9, 10, 1000000]  # three are kept
    assert checkpoint.latest(tmp_path) == tmp_path / "step-1000000"
    assert checkpoint.step_of(tmp_path / "step-000010") == 10
    assert (tmp_path / "model" / "x").read_text() == "1000000" and (tmp_path / "model").is_symlink()
    checkpoint.drop_older(tmp_path)
    assert list(checkpoint.checkpoints(tmp_path)) == [10, 1000000]
    assert checkpoint.last(tmp_path).name == "step-1000000" and list(checkpoint.checkpoints(tmp_path)) == [1000000]


def test_the_link_leads_to_the_best_weights_and_replaces_a_copied_folder(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "x").write_text("copied")
    newest = written(tmp_path, 1)
    assert (tmp_path / "model" / "x").read_text() == "1"
    (tmp_path / "best" / "model").mkdir(parents=True)
    (tmp_path / "best" / "model" / "x").write_text("best")
    (tmp_path / ".model-link").write_text("left behind")
    checkpoint.point_to(newest)
    assert (tmp_path / "model" / "x").read_text() == "best" and not (tmp_path / ".model-link").exists()
    (tmp_path / "alone" / "step-000001").mkdir(parents=True)
    checkpoint.point_to(tmp_path / "alone" / "step-000001")
    assert not (tmp_path / "alone" / "model").exists()


@pytest.mark.parametrize(
    "state",
    [[], {}, {"step": 2}, {"step": True}, {"step": -1}, {"step": "1"}, {"step": 1, "updates": []},
     {"step": 1, "updates": {"policy": -1}}, {"step": 1, "applied": {"policy": 0.5}},
     {"step": 1, "updates": {"policy": True}}],
)  # fmt: skip
def test_a_state_that_is_not_of_its_step_is_damage(state: Any, tmp_path: Path) -> None:
    folder = written(tmp_path, 1, updates={"policy": 0}, applied={"policy": 3})
    assert checkpoint.wrong_state(folder, 1) is None and checkpoint.wrong_state(folder, 2) is not None
    (folder / "state.json").write_text(json.dumps(state))
    assert checkpoint.wrong_state(folder, 1) is not None
    (folder / "state.json").unlink()
    assert "does not exist" in str(checkpoint.wrong_state(folder, 1))


def test_damaged_checkpoints_go_with_a_word_and_the_link_follows(tmp_path: Path) -> None:
    for step in (1, 2, 3):
        written(tmp_path, step)
    said: list[str] = []
    (tmp_path / "step-000003" / "model" / "x").write_text("other")
    (tmp_path / "step-000002" / "manifest.json").unlink()
    found = checkpoint.intact(tmp_path, said.append)
    assert found is not None and found[0].name == "step-000001" and found[1] == {"step": 1}
    assert len(said) == 2 and "step-000003 is damaged (model/x is not what was written): removed" in said[0]
    assert "going on from step-000001" in said[1] and "no manifest.json" in said[1]
    assert (tmp_path / "model" / "x").read_text() == "1" and list(checkpoint.checkpoints(tmp_path)) == [1]
    (tmp_path / "step-000001" / "manifest.json").unlink()
    with pytest.raises(
        OneiroError, match=r"step-000001 is damaged \(no manifest.json: written by an older version\?\)"
    ):
        checkpoint.intact(tmp_path, said.append)


def test_an_optimiser_state_is_whole_and_of_its_parameters(tmp_path: Path) -> None:
    parameter = torch.nn.Parameter(torch.ones(2))
    optimiser = Optimiser([("w", parameter)], OptimiserSettings())
    whole = {"w/exp_avg": torch.zeros(2), "w/exp_avg_sq": torch.zeros(2), "w/step": torch.tensor(1.0)}

    def check(tensors: dict[str, torch.Tensor], applied: int = 1) -> None:
        checkpoint.check_optimiser(tmp_path, optimiser, tensors, applied)

    check(whole)
    check(whole | {"w/master": torch.zeros(2)})
    check({}, 0)
    check({"w/master": torch.zeros(2)}, 0)
    check({"w/state1": torch.zeros(7, dtype=torch.uint8), "w/step": torch.tensor(3)})
    for wrong, said in (
        ({}, "state is empty"),
        ({"w/master": torch.zeros(2)}, "state is empty"),
        ({"v/step": torch.zeros(1)}, "knows no 'v'"),
        (whole | {"w/exp_avg": torch.zeros(3)}, "'w/exp_avg' of the optimiser has another shape"),
        (whole | {"w/master": torch.zeros(1)}, "another shape"),
        (whole | {"w/exp_avg_sq": torch.tensor([0.0, torch.nan])}, "not finite"),
        (whole | {"w/exp_avg": torch.zeros(2, dtype=torch.long)}, "holds torch.int64"),
        (whole | {"w/step": torch.tensor(torch.inf)}, "not finite"),
        ({"w/step": torch.tensor(1.0)}, "of 'w' is incomplete"),
        ({"w/step": torch.tensor(1.0), "w/master": torch.zeros(2)}, "incomplete"),
        ({"w/exp_avg": torch.zeros(2), "w/step": torch.tensor(1.0)}, "incomplete"),
        ({"w/exp_avg": torch.zeros(2), "w/exp_avg_sq": torch.zeros(2)}, "incomplete"),
    ):
        with pytest.raises(OneiroError, match=said):
            check(wrong)
    own = {"a": torch.zeros(2), "n": torch.zeros(1, dtype=torch.long)}
    checkpoint.check_weights(tmp_path, own, {"a": torch.ones(2), "n": torch.ones(1, dtype=torch.long)})
    for saved in ({"a": torch.ones(2)}, own | {"b": torch.ones(1)}, own | {"a": torch.ones(3)}):
        with pytest.raises(OneiroError, match="of another model"):
            checkpoint.check_weights(tmp_path, own, saved)
    for saved in (
        own | {"a": torch.ones(2, dtype=torch.long)},
        own | {"n": torch.ones(1)},
        own | {"a": torch.tensor([1.0, torch.inf])},
    ):
        with pytest.raises(OneiroError, match="does not fit this model"):
            checkpoint.check_weights(tmp_path, own, saved)


# Selection and rollouts -----------------------------------------------------------------------------------------------


def test_the_better_value_and_patience_are_as_told(tmp_path: Path) -> None:
    def selection(**settings: Any) -> Selection:
        return Selection(SelectionSettings(**settings), tmp_path, make_tiny(), lambda: {"score": 1.0}, "score")

    found = selection(patience=2)
    said = [found.see(step, {"score": value}) for step, value in enumerate([1.0, 1.0, 2.0, 1.5, None, 1.9], start=1)]
    assert said[:-1] == [None] * 5 and said[-1] == "RL ended at step 6: 2 validations in a row were no better than 2"
    assert found.reason == said[-1] and (found.best, found.since) == (2.0, 2)
    rows = [{"step": 1, "score": 1.0}, {"step": 2}, {"step": 3, "score": 0.5}]
    assert found.replay(rows) is None and (found.best, found.since, found.reason) == (1.0, 1, None)
    least = selection(mode="min")
    assert [least.see(1, {"score": v}) for v in (3.0, 2.0, 2.0, 5.0)] == [None] * 4
    assert (least.best, least.since) == (2.0, 2)
    every = selection(every=4)
    assert [step for step in range(1, 11) if every.measure(step)] == [1, 5, 9]
    assert json.loads((tmp_path / "best" / "selection.json").read_text()) == {
        "step": 8,
        "metric": "score",
        "value": 1.0,
    }


def test_an_actor_follows_the_policy_and_plays_ahead_with_what_it_knew(tiny: LanguageModel) -> None:
    actor = copy_of(tiny)
    assert not any(p.requires_grad for p in actor.backbone.parameters()) and actor.backbone is not tiny.backbone
    seen: list[tuple[int, float]] = []

    def play(step: int) -> list[Episode]:
        seen.append((step, float(actor.backbone.norm.weight.detach()[0])))
        return [Episode([], seed=step)]

    def set_policy(value: float) -> None:
        with torch.no_grad():
            tiny.backbone.norm.weight[0] = value

    with AsyncRollout(play, tiny, actor) as rollout:
        set_policy(1.0)
        assert rollout.episodes(0)[0].seed == 0
        rollout.begin(1)
        assert rollout._coming is not None and rollout._coming.result()[0].seed == 1
        set_policy(2.0)
        assert rollout.episodes(1)[0].seed == 1 and rollout._coming is None
        assert rollout.more(7)[0].seed == 7
        assert rollout.episodes(2)[0].seed == 2
    assert seen == [(0, 1.0), (1, 1.0), (7, 1.0), (2, 2.0)]
    with AsyncRollout(lambda step: [Episode([], seed=step)], tiny, tiny) as own:
        own.begin(3)
        assert own._coming is None and own.episodes(4)[0].seed == 4


def test_what_is_not_finite_is_named() -> None:
    finite.require({"a": 1.0})
    finite.require_array("a reward", [])
    with pytest.raises(finite.NotFiniteError, match=r"^b is nan$"):
        finite.require({"a": 1.0, "b": float("nan")})
    with pytest.raises(finite.NotFiniteError, match=r"^a reward is inf \(2 of 3\)$"):
        finite.require_array("a reward", [1.0, float("inf"), float("nan")])
    module = torch.nn.Linear(2, 2)
    finite.require_weights([module])
    with torch.no_grad():
        module.bias[1] = torch.nan
    with pytest.raises(finite.NotFiniteError, match="the weights 'bias' are not finite"):
        finite.require_weights([torch.nn.Linear(1, 1), module])
    with pytest.raises(OneiroError, match="model x cannot be trained: the weights 'bias'"):
        finite.require_start("x", [module])


def test_a_head_in_bfloat16_measures_in_float32() -> None:
    """Logits are rounded once, by the product; what follows has all digits. Gradients have the weights' type."""
    generator = torch.Generator().manual_seed(5)
    hidden = torch.randn(6, 8, generator=generator).bfloat16().requires_grad_()
    weight = torch.randn(20, 8, generator=generator).bfloat16().requires_grad_()
    targets, cold = torch.arange(6), torch.full((6,), 0.7)

    def objective(logprobs: torch.Tensor, entropies: torch.Tensor, part: slice) -> torch.Tensor:
        return -logprobs.sum() - 0.3 * entropies.sum()

    total, logprobs, entropies = head.loss(hidden, OutputHead(weight), targets, cold, objective)
    total.backward()
    logits = (hidden.detach() @ weight.detach().T).float().requires_grad_()
    every = torch.log_softmax(logits / 0.7, -1)
    own, spread = every[range(6), targets], -(every.exp() * every).sum(-1)
    torch.testing.assert_close(logprobs, own.detach(), atol=1e-6, rtol=1e-6)
    torch.testing.assert_close(entropies, spread.detach(), atol=1e-6, rtol=1e-6)
    for found, expected in zip(head.score(hidden, OutputHead(weight), targets, cold), (own, spread), strict=True):
        torch.testing.assert_close(found, expected.detach(), atol=1e-6, rtol=1e-6)
    (-own.sum() - 0.3 * spread.sum()).backward()
    assert logits.grad is not None and hidden.grad is not None and weight.grad is not None
    assert hidden.grad.dtype == weight.grad.dtype == torch.bfloat16
    torch.testing.assert_close(hidden.grad.float(), logits.grad @ weight.detach().float(), atol=0.05, rtol=0.02)
    torch.testing.assert_close(weight.grad.float(), logits.grad.T @ hidden.detach().float(), atol=0.05, rtol=0.02)


def test_values_are_the_heads_own_at_every_token_that_counts() -> None:
    language = make_tiny()
    head_ = ValueHead(language.backbone.shape.width)
    torch.nn.init.constant_(head_.linear.bias, 0.75)
    learner = Learner(language.backbone, LearnerSettings(), 1, head_)
    (values,) = learner.values([Example.of(Row([given([3, 4]), given([5, 6, 7], policy=1.0)]))])
    assert values.tolist() == [0.0, 0.0, 0.75, 0.75, 0.75]


def test_one_turn_is_as_long_as_its_tokens() -> None:
    reply = Segment(np.array([2, 3, 4], np.int32), True, logprobs=np.zeros(3, np.float32), params=SamplingParams())
    episode = Episode([Row([given([1]), reply])], [1.0])
    assert loop.describe([episode])["response_length"] == 3.0
