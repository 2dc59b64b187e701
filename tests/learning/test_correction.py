"""The sampler's log-probabilities, the learner's, and what is done about their difference."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from oneiro.episode import Floats, Row, SamplingParams, Segment, given
from oneiro.learning import head
from oneiro.learning.batch import Example
from oneiro.learning.learner import Learner, LearnerSettings
from oneiro.learning.update import CorrectionSettings, correct, mismatch, token_weights
from oneiro.models.heads import OutputHead
from oneiro.models.language import LanguageModel
from oneiro.sampling.engine import Engine, SamplingSettings

TIS, ICEPOP = CorrectionSettings(name="tis"), CorrectionSettings(name="icepop")


def importances(*values: float) -> torch.Tensor:
    return torch.tensor(values).log()


def test_tis_caps_the_weight_and_leaves_no_token_out() -> None:
    weights, kept = token_weights(importances(0.25, 1.0, 1.5, 3.0), torch.zeros(4), TIS)
    np.testing.assert_allclose(weights, [0.25, 1, 1.5, 2], rtol=1e-6)
    assert kept.all()


def test_icepop_leaves_out_what_is_outside_its_band() -> None:
    weights, kept = token_weights(importances(0.49, 0.51, 1.0, 4.9, 5.1), torch.zeros(5), ICEPOP)
    np.testing.assert_allclose(weights, [0, 0.51, 1, 4.9, 0], rtol=1e-6)
    assert kept.tolist() == [False, True, True, True, False]


@pytest.mark.parametrize("how", [TIS, ICEPOP])
def test_no_infinity_comes_out(how: CorrectionSettings) -> None:
    old = torch.tensor([-1.0, -torch.inf, -torch.inf, -200.0])
    sampler = torch.tensor([-torch.inf, -1.0, -torch.inf, -1.0])
    weights, kept = token_weights(old, sampler, how)
    assert torch.isfinite(weights).all() and not weights[1:].any() and float(weights[0]) in (0.0, 2.0)
    assert not kept[2]


def test_mismatch_by_hand() -> None:
    found = mismatch(np.log(np.float32([0.5, 0.5])), np.log(np.float32([0.5, 0.25])))
    # k3: r - 1 - log r with r = 1 and 2.
    assert found == pytest.approx({"mismatch": np.log(2), "mismatch_kl": (2 - 1 - np.log(2)) / 2})


def rows(language: LanguageModel, shift: list[float]) -> list[Example]:
    """Two rows of two sampled tokens whose recorded log-probabilities are the learner's less `shift`."""
    made = []
    for place, reply in enumerate(([20, 21], [22, 23])):
        segment = Segment(np.array(reply), True, "assistant", logprobs=np.zeros(2), params=SamplingParams())
        made.append(Example.of(Row([given([5 + place, 6, 7]), segment])))
    scores, _ = Learner(language.backbone, LearnerSettings(), 1).logprobs(made)
    for example, score, by in zip(made, scores, np.split(np.array(shift), 2), strict=True):
        example.logprobs = np.zeros(5, np.float32)
        example.logprobs[3:] = score[3:] - by
        example.columns["advantages"] = np.full(5, 1.0, np.float32)
    return made


def test_masked_tokens_leave_the_mean_and_the_rest_is_weighted(tiny: LanguageModel) -> None:
    examples = rows(tiny, [0.0, np.log(3.0), np.log(8.0), np.log(0.6)])
    learner = Learner(tiny.backbone, LearnerSettings(), 1)
    recorded = [e.logprobs.copy() for e in examples]
    found = correct(examples, learner, ICEPOP)
    weights = np.concatenate([e.columns["correction"][3:] for e in examples])
    np.testing.assert_allclose(weights, [1, 3, 0, 0.6], rtol=1e-4)
    assert [e.weights["policy"].tolist() for e in examples] == [[0, 0, 0, 1, 1], [0, 0, 0, 0, 1]]
    assert found["correction_masked"] == 0.25 and found["correction"] == pytest.approx(4.6 / 4, rel=1e-4)
    assert found["mismatch"] == pytest.approx(np.log(8), rel=1e-4) and found["kept_mass"] == 1
    assert all(np.array_equal(e.logprobs, r) for e, r in zip(examples, recorded, strict=True))  # kept apart
    statistics = learner.update(examples)
    # The ratio to the recomputed policy is 1: minus advantage times weight, over the three tokens that are left.
    assert statistics["loss"] == pytest.approx(-(1 + 3 + 0.6) / 3, rel=1e-4)
    assert statistics["ratio"] == pytest.approx(1, rel=1e-5) and statistics["clip_fraction"] == 0


def test_without_a_correction_the_ratio_is_to_the_sampler(tiny: LanguageModel) -> None:
    examples = rows(tiny, [0.0, np.log(1.1), np.log(8.0), np.log(0.5)])
    statistics = Learner(tiny.backbone, LearnerSettings(), 1).update(examples)
    assert statistics["loss"] == pytest.approx(-(1 + 1.1 + 1.2 + 0.5) / 4, rel=1e-4)  # 8 is clipped at 1.2
    assert statistics["clip_fraction"] == 0.5


def plain_kept_mass(logits: Floats, how: SamplingParams) -> float:
    """Second implementation: sort, cut, sum."""
    p = np.exp(logits / how.temperature - np.max(logits / how.temperature))
    p = np.sort(p / p.sum())[::-1]
    if how.top_k:
        p[how.top_k :] = 0
    share = p / p.sum()
    before = np.cumsum(share) - share
    return float(p[before < how.top_p].sum())


@pytest.mark.parametrize("how", [{"top_k": 7}, {"top_p": 0.6}, {"top_k": 40, "top_p": 0.8, "temperature": 0.7}])
def test_truncated_samples_are_weighted_by_what_truncation_left(tiny: LanguageModel, how: dict) -> None:
    sampling = SamplingSettings(max_tokens=6, ignore_eos=True, **how)
    (samples,) = Engine(tiny).generate([[5, 6, 7]], 8, sampling, seed=3)
    examples = [Example.of(Row([given([5, 6, 7]), *sample.segments()])) for sample in samples]
    found = correct(examples, Learner(tiny.backbone, LearnerSettings(), 1), TIS)
    params = SamplingParams(sampling.temperature, sampling.top_p, sampling.top_k)
    for example in examples:
        tokens = torch.from_numpy(example.tokens.astype(np.int64))
        with torch.no_grad():
            logits = tiny.model(tokens[None].to(tiny.backbone.device)).logits[0].cpu().numpy()
        expected = [plain_kept_mass(logits[at - 1], params) for at in range(3, 9)]
        np.testing.assert_allclose(example.columns["correction"][3:], expected, rtol=2e-3)
    assert found["mismatch"] < 1e-4  # the sampler records what it had before truncation
    assert found["kept_mass"] < 0.99


def test_what_was_drawn_counts_as_kept() -> None:
    """Four tokens of probability 0.4, 0.3, 0.2, 0.1; top-k 2, where the third was drawn all the same."""
    weight, hidden = torch.tensor([[0.4], [0.3], [0.2], [0.1]]).log(), torch.ones(2, 1)
    found = head.log_kept_mass(hidden, OutputHead(weight), torch.tensor([0, 2]), torch.ones(2), SamplingParams(top_k=2))
    np.testing.assert_allclose(found.exp(), [0.7, 0.9], rtol=1e-6)


def test_corrections_at_their_bounds() -> None:
    old, sampler = torch.log(torch.tensor([1.0, 4.0, 0.5, 0.49, 5.0, 5.1])), torch.zeros(6)
    weights, kept = token_weights(old, sampler, CorrectionSettings(name="tis", cap=2.0))
    assert weights.tolist() == pytest.approx([1, 2, 0.5, 0.49, 2, 2]) and kept.all()
    weights, kept = token_weights(old, sampler + 1e-7, CorrectionSettings(name="icepop", low=0.4999, high=5.0))
    assert weights.tolist() == pytest.approx([1, 4, 0.5, 0, 5, 0], abs=1e-5)
    assert kept.tolist() == [True, True, True, False, True, False]
    exact = torch.zeros(2)
    for bound in ({"low": 1.0, "high": 2.0}, {"low": 0.5, "high": 1.0}):
        assert token_weights(exact, exact, CorrectionSettings(name="icepop", **bound))[1].all()  # type: ignore[arg-type]
    _, kept = token_weights(torch.tensor([torch.nan]), torch.zeros(1), CorrectionSettings(name="tis"))
    assert not kept.any()
    found = mismatch(np.array([-1.0, -2.0], np.float32), np.array([-1.5, -1.75], np.float32))
    assert found["mismatch"] == 0.5
    assert found["mismatch_kl"] == pytest.approx((np.exp(0.5) - 1.5 + np.exp(-0.25) - 0.75) / 2)
