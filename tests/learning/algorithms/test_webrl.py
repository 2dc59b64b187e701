"""WebRL's objectives: numbers worked by hand, and whole updates against plain transformers and autograd."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from oneiro.episode import Row, given
from oneiro.learning.algorithms.base import Algorithm, Trajectory
from oneiro.learning.algorithms.webrl import (
    Awr,
    Digirl,
    FilteredBc,
    Official,
    Paper,
    Rft,
    TurnAlgorithm,
    ValueReinforce,
    mc_returns,
    mixed_advantages,
    official_advantages,
)
from oneiro.learning.batch import Example
from oneiro.learning.learner import Learner, LearnerSettings
from oneiro.learning.losses import LossSettings, official_row_loss, row_loss
from oneiro.learning.optimiser import OptimiserSettings
from oneiro.models.language import LanguageModel
from tests.learning.test_objectives import assert_same_gradients, gradients, logprobs_of, updated

SIZES, TARGETS = (3, 8, 5), (1.0, -0.7, 0.25)
PROMPT = 4


def trajectory(outcome: float, *values: float, after: float = 0.0) -> Trajectory:
    """Turns of one token, and the outcome on the last."""
    rewards = np.zeros(len(values), np.float32)
    rewards[-1] = outcome
    return Trajectory(rewards, np.ones(len(values), bool), 0, outcome, np.array(values, np.float32), last_value=after)


def numbers(algorithm: Algorithm, *trajectories: Trajectory) -> list[np.ndarray]:
    return algorithm.estimate(trajectories)


@pytest.fixture
def examples(tiny: LanguageModel) -> list[Example]:
    """Three stored replies with a target each, and a reference that is not the model."""
    rng, made = np.random.default_rng(1), []
    for size, target in zip(SIZES, TARGETS, strict=True):
        example = Example.of(Row([given([5, 6, 7, 8]), given(rng.integers(20, 200, size), "assistant", policy=1.0)]))
        with torch.no_grad():
            true = logprobs_of(tiny, example).cpu().numpy()
        example.columns["old"] = np.zeros(len(example), np.float32)
        example.columns["old"][PROMPT:] = true[PROMPT - 1 :] + rng.normal(-0.05, 0.2, size)
        example.columns["advantages"] = np.full(len(example), target, np.float32)
        made.append(example)
    return made


def log_ratios(tiny: LanguageModel, examples: list[Example]) -> list[torch.Tensor]:
    """[tokens] of each reply, with gradient."""
    return [
        logprobs_of(tiny, e)[PROMPT - 1 :] - torch.from_numpy(e.columns["old"][PROMPT:]).to(tiny.backbone.device)
        for e in examples
    ]


@pytest.mark.parametrize("log_ratio", ["sum", "mean"])
def test_the_paper_regresses_beta_log_ratio_on_the_advantage(
    tiny: LanguageModel, examples: list[Example], log_ratio: str
) -> None:
    """Eq. 6, the mean over steps, as it stands there."""
    objective = Paper(beta=0.3, log_ratio=log_ratio)
    ratios = [getattr(r, log_ratio)() for r in log_ratios(tiny, examples)]
    total = sum((0.3 * rho - y) ** 2 for rho, y in zip(ratios, TARGETS, strict=True)) / 3
    expected = gradients(tiny, total)
    statistics, found = updated(tiny, examples, LossSettings(**objective.loss))
    assert statistics["loss"] == pytest.approx(float(total.detach()), rel=1e-4)
    assert_same_gradients(found, expected)


def test_the_released_loss_is_a_smooth_l1_on_positive_steps(tiny: LanguageModel, examples: list[Example]) -> None:
    total = torch.zeros((), device=tiny.backbone.device)
    for r, e, y in zip(log_ratios(tiny, examples), examples, TARGETS, strict=True):
        rho = r.mean()
        confidence = float(np.exp(e.columns["old"][PROMPT:].mean()))
        beta = 5.0 if (y >= 0 and confidence >= 0.8) or (y < 0 and confidence < 0.9) else 1.0
        beta = min(beta, abs(y / float(rho.detach())))
        target = torch.tensor(y, device=rho.device)
        total = total + (y > 0) * torch.nn.functional.smooth_l1_loss(beta * rho, target) / beta / 3
    expected = gradients(tiny, total)
    statistics, found = updated(tiny, examples, LossSettings(**Official().loss))
    assert statistics["loss"] == pytest.approx(float(total.detach()), rel=1e-4)
    assert_same_gradients(found, expected)


@pytest.mark.parametrize(("sure", "loss", "slope"), [(0.7, 0.405, -0.9), (0.85, 0.025, -0.5)])
def test_the_released_loss_is_strict_where_the_reference_was_sure_of_the_reply(
    sure: float, loss: float, slope: float
) -> None:
    """rho 0.1 and target 1: b is 1 below a geometric mean of 0.8 and 5 above; the prompt's tokens do not count."""
    columns = {
        "policy": torch.tensor([0.0, 0.0, 0.0, 1.0, 1.0]),
        "old": torch.tensor([0.0, 0.0, 0.0, sure, sure]).log().nan_to_num(neginf=0.0),
        "advantages": torch.tensor([5.0, 5.0, 5.0, 1.0, 1.0]),
    }
    settings = LossSettings(**Official().loss)
    value, found = row_loss(columns["old"] + 0.1, columns, torch.zeros(5, dtype=torch.long), 1, settings)
    assert value.tolist() == pytest.approx([loss] * 5, rel=1e-5)
    assert found.tolist() == pytest.approx([slope] * 5, rel=1e-5)


def test_reinforce_is_linear_in_the_log_ratio(tiny: LanguageModel, examples: list[Example]) -> None:
    total = -sum(y * r.sum() for r, y in zip(log_ratios(tiny, examples), TARGETS, strict=True)) / 3
    expected = gradients(tiny, total)
    _, found = updated(tiny, examples, LossSettings(**ValueReinforce().loss))
    assert_same_gradients(found, expected)


def test_bad_steps_become_less_likely_under_the_paper_and_stay_under_the_release(
    tiny: LanguageModel, examples: list[Example]
) -> None:
    bad = examples[1]
    before = float(logprobs_of(tiny, bad)[PROMPT - 1 :].sum().detach())
    bad.columns["advantages"][:] = -0.6
    learner = LearnerSettings(optimiser=OptimiserSettings(lr=1e-3, weight_decay=0.0))
    official = learner.model_copy(update={"loss": LossSettings(**Official().loss)})
    Learner(tiny.backbone, official, 1).update([bad])
    assert float(logprobs_of(tiny, bad)[PROMPT - 1 :].sum().detach()) == pytest.approx(before, abs=1e-5)
    paper = learner.model_copy(update={"loss": LossSettings(**Paper().loss)})
    bad.columns["old"][PROMPT:] = logprobs_of(tiny, bad)[PROMPT - 1 :].detach().cpu().numpy()
    Learner(tiny.backbone, paper, 1).update([bad])
    assert float(logprobs_of(tiny, bad)[PROMPT - 1 :].sum().detach()) < before - 1e-3


def test_a_step_has_one_loss_in_any_layout(tiny: LanguageModel, examples: list[Example]) -> None:
    still = OptimiserSettings(lr=1e-12, weight_decay=0.0)
    found = []
    for budget in (64, 10_000):
        settings = LearnerSettings(loss=LossSettings(**Paper().loss), token_budget=budget, optimiser=still)
        found.append(Learner(tiny.backbone, settings, 1).update(examples))
    assert found[0] == pytest.approx(found[1], rel=1e-4)


def test_numbers_of_a_trajectory_by_hand() -> None:
    good = trajectory(1.0, 0.5, 0.25)
    np.testing.assert_allclose(mixed_advantages(good, 0.5), [0.5 * (0.25 - 0.5) + 0.5 * 0.5, 1 - 0.25], atol=1e-6)
    np.testing.assert_allclose(mixed_advantages(good, 1.0), [-0.25, 0.75], atol=1e-6)
    bad = trajectory(0.0, 0.5, 0.25)
    np.testing.assert_allclose(mixed_advantages(bad, 0.5), [0.5 * -0.25 + 0.5 * -0.5, -0.25], atol=1e-6)
    np.testing.assert_allclose(numbers(Paper(lam=0.5), bad)[0], [-0.375, -0.25], atol=1e-6)
    np.testing.assert_allclose(numbers(Paper(), bad)[0], [-0.375, -0.25], atol=1e-6)
    assert Paper().loss["row_beta"] == 0.5 and Paper().loss["aggregate"] == "constant"
    np.testing.assert_allclose(numbers(ValueReinforce(), good)[0], [0.5, 0.75], atol=1e-6)
    # The last state of a failure: what follows is the page that the last action left.
    np.testing.assert_allclose(official_advantages(trajectory(0.0, 0.1, 0.4, after=0.3), 0.9), [0.25, -0.15], atol=1e-6)
    assert mc_returns(np.ones(3, np.float32), 0.5).tolist() == [1.75, 1.5, 1.0]


def test_baselines_weigh_steps_as_their_papers_say() -> None:
    trajectories = [trajectory(1.0, 0.2), trajectory(0.0, 0.2, 0.9), trajectory(0.0, 0.5)]
    assert [n.tolist() for n in numbers(FilteredBc(), *trajectories)] == [[1.0], [0.0, 0.0], [0.0]]
    assert [n.tolist() for n in numbers(FilteredBc(percentile=0), *trajectories)] == [[1.0], [0.0, 0.0], [0.0]]
    weights = numbers(Awr(temperature=0.5, cap=2.0), *trajectories)
    np.testing.assert_allclose(weights[0], [2.0], rtol=1e-6)  # exp(1.6) is cut
    np.testing.assert_allclose(weights[1], np.exp([-0.4, -1.8]), rtol=1e-6)
    np.testing.assert_allclose(numbers(Awr(), trajectory(1.0, -1.0, 0.5))[0], [20.0, np.e], rtol=1e-5)  # exp(4) is cut
    assert [n.tolist() for n in numbers(Digirl(), *trajectories)] == [[1.0], [1.0, 0.0], [0.0]]


def test_edges_of_the_baselines() -> None:
    won, lost = trajectory(1.0, 0.2), trajectory(0.0, 0.2)
    assert [n.tolist() for n in numbers(FilteredBc(), won, won)] == [[1.0], [1.0]]  # at the percentile is enough
    assert [n.tolist() for n in numbers(FilteredBc(), lost, lost)] == [[0.0], [0.0]] and numbers(FilteredBc()) == []
    half = trajectory(0.5, 0.2)  # of 0, 0.5 and 1, the 70th percentile is 0.7 and the 50th is 0.5
    assert [n.tolist() for n in numbers(FilteredBc(), lost, half, won)] == [[0.0], [0.0], [1.0]]
    assert [n.tolist() for n in numbers(FilteredBc(percentile=50), lost, half, won)] == [[0.0], [1.0], [1.0]]
    edge = trajectory(0.0, 0.0, after=0.05)  # an advantage of 0: what the step costs is what it gained
    assert numbers(Digirl(), edge)[0].tolist() == [0.0]


def test_the_released_advantages_are_cut_on_both_sides() -> None:
    assert official_advantages(trajectory(0.0, 1.0), 0.9).tolist() == [-1.0]  # -1.05
    assert official_advantages(trajectory(1.0, 0.5, 0.5), 0.9).tolist() == [1.0, 1.0]
    np.testing.assert_allclose(official_advantages(trajectory(1.0, 1.0), 0.9), [0.95], atol=1e-6)
    # A half success: 0 - 1 - 0.05 + 0.5 + (0.5 + gamma 0.5), and on the last step 0 - 0 - 0.05 + 0.5 + 0.5.
    half = trajectory(0.5, 1.0, 0.0)
    np.testing.assert_allclose(official_advantages(half, 0.9), [0.4, 0.95], atol=1e-6)
    np.testing.assert_allclose(official_advantages(half, 0.5), [0.2, 0.95], atol=1e-6)
    # The release discounts by 0.9: 0 - 1 - 0.05 + 0.3 + (0.3 + 0.9 x 0.3) is -0.18; by 1.7 and more it would be good.
    little = trajectory(0.3, 1.0, 0.0)
    np.testing.assert_allclose(official_advantages(little, 0.9), [-0.18, 0.55], atol=1e-6)
    assert numbers(Official(), little)[0].tolist() == [pytest.approx(-0.6), 1.0]
    assert numbers(Digirl(), little)[0].tolist() == [0.0, 1.0]


def test_a_reference_that_equals_the_policy_leaves_the_target_alone() -> None:
    value, slope = official_row_loss(torch.zeros(2), torch.tensor([1.0, -0.6]), torch.tensor([0.5, 0.5]))
    assert value.tolist() == [0.5, 0.0]
    assert slope.tolist() == [-1.0, 0.0]


def test_the_released_targets_are_one_or_masked_by_the_sign_of_the_advantage() -> None:
    lost = trajectory(0.0, 0.5, 0.2, after=0.6)  # advantages -0.35 and 0.35
    edge = trajectory(0.0, 0.0, after=0.05)  # 0: what a step costs is what it gained
    won = trajectory(1.0, 0.9, 0.3, after=0.0)
    found = numbers(Official(), lost, edge, won)
    assert [own.tolist() for own in found] == [[pytest.approx(-0.6), 1.0], [1.0], [1.0, 1.0]]
    assert all(own.dtype == np.float32 for own in found)


def test_the_numbers_of_a_turn_stand_on_all_of_its_tokens() -> None:
    """Two turns of 2 and 3 tokens: V is read at the first token of each, the reward is on the last of all."""
    values = np.array([0.5, 9.0, 0.25, 9.0, 9.0], np.float32)
    ends = np.array([False, True, False, False, True])
    rewards = np.array([0, 0, 0, 0, 1], np.float32)
    (found,) = numbers(Paper(), Trajectory(rewards, ends, 0, 1.0, values))
    np.testing.assert_allclose(found, [0.125, 0.125, 0.75, 0.75, 0.75], atol=1e-6)


def test_what_each_algorithm_needs() -> None:
    """Values of states, the policy before the first update as reference, weights instead of targets."""
    facts: dict[type[TurnAlgorithm], tuple[bool, ...]] = {
        Paper: (True, True, False),
        Official: (True, True, False),
        ValueReinforce: (True, True, False),
        FilteredBc: (False, False, True),
        Awr: (True, False, True),
        Digirl: (True, False, True),
    }
    for kind, expected in facts.items():
        assert (kind.outcome_critic, kind.recompute, kind.weighted) == expected, kind
        assert not kind.critic
    with pytest.raises(NotImplementedError):
        numbers(TurnAlgorithm(name="any"), trajectory(1.0, 0.5))


def test_rft_imitates_every_turn_of_a_success_and_none_of_a_failure() -> None:
    good, bad = numbers(Rft(), trajectory(1.0, 0.2, 0.9), trajectory(0.0, 0.9, 0.9, 0.9))
    assert good.tolist() == [1.0, 1.0] and bad.tolist() == [0.0] * 3
    assert Rft().weighted and not Rft().outcome_critic  # weights of cross-entropy, without a critic
