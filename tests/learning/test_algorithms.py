"""Advantages against numbers worked by hand."""

from __future__ import annotations

import numpy as np
import pytest

from oneiro.episode import Episode, Group, Row, SamplingParams, Segment, given
from oneiro.learning import filters
from oneiro.learning.algorithms import DrGrpo, Grpo, Ppo, Reinforce, Rloo, StateGrpo, Trajectory, TurnGrpo
from oneiro.learning.algorithms.base import trajectory
from oneiro.learning.algorithms.ppo import bi_level_gae, gae
from oneiro.learning.filters import FilterSettings
from oneiro.learning.losses import LossSettings, kl_estimate, policy_loss, value_loss


def outcome(score: float, group: int, tokens: int = 2) -> Trajectory:
    rewards = np.zeros(tokens, np.float32)
    rewards[-1] = score
    return Trajectory(rewards, np.arange(tokens) == tokens - 1, group, score)


GROUPS = [outcome(1, 0), outcome(0, 0), outcome(0, 0), outcome(1, 0), outcome(2, 1), outcome(5, 1)]


def per_episode(estimate: object) -> list[float]:
    return [float(a[0]) for a in estimate.advantages]  # type: ignore[attr-defined]


def test_grpo_is_the_score_in_units_of_the_groups_spread() -> None:
    # Group 0: mean 1/2, sample variance (4 * 1/4) / 3 = 1/3. Group 1: mean 3.5, sample variance 2 * 2.25 = 4.5.
    a, b = 0.5 * np.sqrt(3), 1.5 / np.sqrt(4.5)
    np.testing.assert_allclose(per_episode(Grpo().estimate(GROUPS)), [a, -a, -a, a, -b, b], rtol=1e-5)


def test_turn_grpo_judges_a_turn_by_what_came_from_it_on() -> None:
    ends = np.array([False, True, True, False, True])

    def turns(first: float, second: float, third: float) -> Trajectory:
        return Trajectory(np.array([0, first, second, 0, third], np.float32), ends, 0, first + second + third)

    # Returns: 6, 5, 3 and 2, 2, 0, which are 2, 1.5 and 1.5 from their means: the unit is sqrt(2 * 8.5 / 3).
    unit = np.sqrt(17 / 3)
    one, two = TurnGrpo().estimate([turns(1, 2, 3), turns(0, 2, 0)]).advantages
    np.testing.assert_allclose(one, np.array([2, 2, 1.5, 1.5, 1.5]) / unit, rtol=1e-5)
    np.testing.assert_allclose(two, -one, rtol=1e-5)
    # With gamma 0 a turn answers for itself alone: 0.5, 0 and 1.5 from their means.
    unit = np.sqrt(2 * 2.5 / 3)
    one, two = TurnGrpo(gamma=0.0).estimate([turns(1, 2, 0), turns(0, 2, 3)]).advantages
    np.testing.assert_allclose(one, np.array([0.5, 0.5, 0, -1.5, -1.5]) / unit, rtol=1e-5)
    np.testing.assert_allclose(two, -one, rtol=1e-5)


def test_state_grpo_judges_a_turn_against_its_states_other_visits() -> None:
    ends = np.array([False, True, True])
    lucky = Trajectory(np.array([0, 0, 1], np.float32), ends, 0, 1.0, states=(b"start", b"door"))
    stuck = Trajectory(np.array([0, 0, 0], np.float32), ends, 0, 0.0, states=(b"start", b"start"))
    # Returns 1, 1 and 0, 0: spread 1/2, mean of either turn 1/2. Values with one prior visit worth that:
    #   start (1 + 0 + 0 + 1/2) / 4 = 3/8, door (1 + 1/2) / 2 = 3/4.
    one, two = StateGrpo(lam=1.0).estimate([lucky, stuck]).advantages
    np.testing.assert_allclose(one, [1.25, 1.25, 0.5], rtol=1e-5)
    np.testing.assert_allclose(two, [-0.75, -0.75, -0.75], rtol=1e-5)
    # With lam 0 a turn is worth the value it led to: start -> door 3/4 - 3/8, start -> start 0.
    one, two = StateGrpo(lam=0.0).estimate([lucky, stuck]).advantages
    np.testing.assert_allclose(one, [0.75, 0.75, 0.5], rtol=1e-5)
    np.testing.assert_allclose(two, [0, 0, -0.75], rtol=1e-5, atol=1e-7)


def test_state_grpo_finds_nothing_in_members_that_are_alike() -> None:
    """Rewards on the way are in the value of every turn."""
    alike = Trajectory(np.array([-0.1, -0.1, 1], np.float32), np.ones(3, bool), 0, 0.8, states=(b"a", b"b", b"c"))
    for found in StateGrpo(prior=2.0).estimate([alike] * 4).advantages:
        np.testing.assert_allclose(found, 0, atol=1e-6)


def test_an_empty_first_turn_keeps_its_reward() -> None:
    episode = Episode([Row(turn_segments(1, 0)), Row(turn_segments(2, 2)), Row(turn_segments(3, 2))], [-0.5, 0.5, 1.0])
    t = trajectory(episode, 0)
    np.testing.assert_allclose(t.rewards, [-0.5, 0.5, 0, 1])
    assert len(t.states) == t.turn_ends.sum() == 2


def test_states_are_the_same_where_the_same_was_told() -> None:
    episode = Episode([Row(turn_segments(1, 3)), Row(turn_segments(2, 2))], [0.0, 1.0])
    told = trajectory(episode, 0).states
    assert len(told) == 2 and told[0] == told[1]
    growing = Episode([Row([*turn_segments(1, 3), *turn_segments(2, 2)])], [0.0, 1.0])
    assert len(set(trajectory(growing, 0).states)) == 2


def test_dr_grpo_only_centres() -> None:
    np.testing.assert_allclose(per_episode(DrGrpo().estimate(GROUPS)), [0.5, -0.5, -0.5, 0.5, -1.5, 1.5])


def test_rloo_compares_with_the_others() -> None:
    # 1 - (0+0+1)/3 = 2/3;  0 - (1+0+1)/3 = -2/3;  2 - 5 = -3.
    np.testing.assert_allclose(per_episode(Rloo().estimate(GROUPS)), [2 / 3, -2 / 3, -2 / 3, 2 / 3, -3, 3], rtol=1e-6)


def test_a_group_of_one_has_no_advantage() -> None:
    for algorithm in (Grpo(), DrGrpo(), Rloo()):
        assert per_episode(algorithm.estimate([outcome(3, 0)])) == [0.0]


def test_reinforce_whitens_returns_to_come_over_all_tokens() -> None:
    t = Trajectory(np.array([1, 0, 2], np.float32), np.array([True, False, True]), 0, 3)
    # Returns with gamma 1/2: [1 + 0 + 0.5, 1, 2]; mean 1.5, variance (0 + .25 + .25) / 3.
    (found,) = Reinforce(gamma=0.5).estimate([t]).advantages
    np.testing.assert_allclose(found, np.array([0, -0.5, 0.5]) / np.sqrt(1 / 6), rtol=1e-5)


def test_gae_by_hand() -> None:
    rewards, values = np.array([0, 1, 2], np.float32), np.array([0.5, 1.0, 1.5], np.float32)
    # delta = [0 + .9*1 - .5, 1 + .9*1.5 - 1, 2 - 1.5] = [.4, 1.35, .5]; gamma*lam = .72
    # A2 = .5; A1 = 1.35 + .72*.5 = 1.71; A0 = .4 + .72*1.71 = 1.6312
    np.testing.assert_allclose(gae(rewards, values, 0.9, 0.8), [1.6312, 1.71, 0.5], rtol=1e-5)


def test_gae_with_gamma_and_lambda_one_is_return_minus_value() -> None:
    rewards, values = np.array([0, 0, 3], np.float32), np.array([1, 2, 2.5], np.float32)
    np.testing.assert_allclose(gae(rewards, values, 1, 1), [2, 1, 0.5])


def test_bi_level_gae_by_hand() -> None:
    rewards = np.array([0, 0, 0, 1], np.float32)
    values = np.array([0.2, 0.4, 0.6, 0.8], np.float32)
    ends = np.array([False, True, False, True])
    # Turns earn [0, 1] with values [.4, .8] at their ends; turn gamma .5, lambda 1:
    #   A_turn2 = 1 - .8 = .2; A_turn1 = (0 + .5*.8 - .4) + .5*.2 = .1; returns [.5, 1].
    # Tokens, gamma 1: turn 1 target .5: [.5 - .2, .5 - .4]; turn 2 target 1: [1 - .6, 1 - .8].
    np.testing.assert_allclose(bi_level_gae(rewards, values, ends, 1.0, 0.5, 1.0), [0.3, 0.1, 0.4, 0.2], atol=1e-6)


def test_a_turn_that_earned_nothing_still_ends() -> None:
    """Upstream finds turn ends by looking for rewards, so a turn paid 0 melts into the next one."""
    values = np.array([0.2, 0.4, 0.6, 0.8], np.float32)
    two_turns = bi_level_gae(np.array([0, 0, 0, 1], np.float32), values, np.array([0, 1, 0, 1], bool), 1.0, 0.5, 1.0)
    one_turn = bi_level_gae(np.array([0, 0, 0, 1], np.float32), values, np.array([0, 0, 0, 1], bool), 1.0, 0.5, 1.0)
    assert not np.allclose(two_turns, one_turn)


def test_ppo_returns_are_advantages_plus_values() -> None:
    t = Trajectory(np.array([0, 1], np.float32), np.array([False, True]), 0, 1, np.array([0.5, 0.25], np.float32))
    estimate = Ppo(whiten=False).estimate([t])
    np.testing.assert_allclose(estimate.advantages[0], [0.5, 0.75])
    assert estimate.returns is not None
    np.testing.assert_allclose(estimate.returns[0], [1, 1])


def turn_segments(turn: int, tokens: int) -> list[Segment]:
    sampled = Segment(
        np.arange(tokens), True, "assistant", turn=turn, logprobs=np.zeros(tokens), params=SamplingParams()
    )
    return [given([1, 2], turn=turn), sampled]


@pytest.mark.parametrize("one_row", [True, False])
def test_rewards_stand_on_the_last_sampled_token_of_their_turn(one_row: bool) -> None:
    parts = [turn_segments(1, 3), turn_segments(2, 2)]
    rows = [Row(parts[0] + parts[1])] if one_row else [Row(p) for p in parts]
    t = trajectory(Episode(rows, rewards=[0.5, -1.0]), 0)
    np.testing.assert_allclose(t.rewards, [0, 0, 0.5, 0, -1])
    np.testing.assert_array_equal(t.turn_ends, [False, False, True, False, True])


def group(*scores: float) -> Group:
    return Group([Episode([], rewards=[s]) for s in scores])


def test_filters_judge_raw_scores() -> None:
    groups = [group(1, 1), group(0, 1), group(0, 4), group(0, 2)]  # stds 0, .5, 2, 1
    kept = lambda **settings: [groups.index(g) for g in filters.keep(groups, FilterSettings(**settings))]  # noqa: E731
    assert kept(name="none") == [0, 1, 2, 3]
    assert kept(name="varied") == [1, 2, 3]
    assert kept(name="fraction", keep=0.25) == [2]
    assert kept(name="fraction", keep=0.5) == [2, 3]
    assert kept(name="top-p", keep=0.5) == [2]  # 2 of 3.5 is more than half
    assert kept(name="top-p", keep=0.9) == [1, 2, 3]
    assert filters.keep([group(1, 1)], FilterSettings(name="top-p", keep=0.9)) == []
    # exp of the stds: 1, 1.65, 7.39, 2.72, in all 12.76.
    assert kept(name="softmax-top-p", keep=0.5) == [2]
    assert kept(name="softmax-top-p", keep=0.9) == [1, 2, 3]  # 11.76 of them
    assert kept(name="softmax-top-p", keep=0.95) == [0, 1, 2, 3]
    for name in ("top-p", "softmax-top-p"):
        assert filters.keep([], FilterSettings(name=name, keep=0.9)) == []


def test_clipping_by_hand() -> None:
    import torch

    settings = LossSettings(clip_low=0.2, clip_high=0.3, dual_clip=3.0)
    ratio = torch.tensor([1.5, 1.5, 0.5, 0.5, 10.0])
    advantages = torch.tensor([1.0, -1.0, 1.0, -1.0, -1.0])
    found = policy_loss(ratio.log(), advantages, settings)
    torch.testing.assert_close(found, torch.tensor([-1.3, 1.5, -0.5, 0.8, 3.0]))


def test_kl_estimators_by_hand() -> None:
    import torch

    own, reference = torch.tensor([-1.0]), torch.tensor([-1.5])
    assert float(kl_estimate(own, reference, "k1")) == pytest.approx(0.5)
    assert float(kl_estimate(own, reference, "k2")) == pytest.approx(0.125)
    assert float(kl_estimate(own, reference, "k3")) == pytest.approx(np.exp(-0.5) + 0.5 - 1)


def test_value_clipping_takes_the_worse() -> None:
    import torch

    new, old, target = torch.tensor([2.0]), torch.tensor([0.0]), torch.tensor([2.0])
    assert float(value_loss(new, old, target, None)) == 0
    assert float(value_loss(new, old, target, 0.5)) == pytest.approx(0.5 * 1.5**2)
