"""Advantages against numbers worked by hand."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import pytest

from oneiro.episode import Episode, Floats, Row, SamplingParams, Segment, given
from oneiro.learning import rl_settings
from oneiro.learning.algorithms import (
    Algorithm,
    DrGrpo,
    Grpo,
    Gspo,
    Ppo,
    Reinforce,
    Rloo,
    StateGrpo,
    Trajectory,
    TurnGrpo,
)
from oneiro.learning.algorithms.base import trajectory
from oneiro.learning.algorithms.ppo import bi_level_gae, gae
from oneiro.learning.algorithms.turn_grpo import returns_of, turns_of
from oneiro.learning.losses import LossSettings, kl_estimate, policy_loss, value_loss
from oneiro.learning.settings import FilterSettings
from oneiro.learning.update import keep_groups
from oneiro.runtime import plugins


def outcome(score: float, group: int, tokens: int = 2) -> Trajectory:
    rewards = np.zeros(tokens, np.float32)
    rewards[-1] = score
    return Trajectory(rewards, np.arange(tokens) == tokens - 1, group, score)


GROUPS = [outcome(1, 0), outcome(0, 0), outcome(0, 0), outcome(1, 0), outcome(2, 1), outcome(5, 1)]


def per_episode(advantages: list[Floats]) -> list[float]:
    return [float(a[0]) for a in advantages]


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
    one, two = TurnGrpo().estimate([turns(1, 2, 3), turns(0, 2, 0)])
    np.testing.assert_allclose(one, np.array([2, 2, 1.5, 1.5, 1.5]) / unit, rtol=1e-5)
    np.testing.assert_allclose(two, -one, rtol=1e-5)
    # With gamma 0 a turn answers for itself alone: 0.5, 0 and 1.5 from their means.
    unit = np.sqrt(2 * 2.5 / 3)
    one, two = TurnGrpo(gamma=0.0).estimate([turns(1, 2, 0), turns(0, 2, 3)])
    np.testing.assert_allclose(one, np.array([0.5, 0.5, 0, -1.5, -1.5]) / unit, rtol=1e-5)
    np.testing.assert_allclose(two, -one, rtol=1e-5)


def test_state_grpo_judges_a_turn_against_its_states_other_visits() -> None:
    ends = np.array([False, True, True])
    lucky = Trajectory(np.array([0, 0, 1], np.float32), ends, 0, 1.0, states=(b"start", b"door"))
    stuck = Trajectory(np.array([0, 0, 0], np.float32), ends, 0, 0.0, states=(b"start", b"start"))
    # Returns 1, 1 and 0, 0: spread 1/2, mean of either turn 1/2. Values with one prior visit worth that:
    #   start (1 + 0 + 0 + 1/2) / 4 = 3/8, door (1 + 1/2) / 2 = 3/4.
    one, two = StateGrpo(lam=1.0).estimate([lucky, stuck])
    np.testing.assert_allclose(one, [1.25, 1.25, 0.5], rtol=1e-5)
    np.testing.assert_allclose(two, [-0.75, -0.75, -0.75], rtol=1e-5)
    # With lam 0 a turn is worth the value it led to: start -> door 3/4 - 3/8, start -> start 0.
    one, two = StateGrpo(lam=0.0).estimate([lucky, stuck])
    np.testing.assert_allclose(one, [0.75, 0.75, 0.5], rtol=1e-5)
    np.testing.assert_allclose(two, [0, 0, -0.75], rtol=1e-5, atol=1e-7)


def test_state_grpo_finds_nothing_in_members_that_are_alike() -> None:
    """Rewards on the way are in the value of every turn."""
    alike = Trajectory(np.array([-0.1, -0.1, 1], np.float32), np.ones(3, bool), 0, 0.8, states=(b"a", b"b", b"c"))
    for found in StateGrpo(prior=2.0).estimate([alike] * 4):
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
    (found,) = Reinforce(gamma=0.5).estimate([t])
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
    (advantages,) = Ppo(whiten=False).estimate([t])
    np.testing.assert_allclose(advantages, [0.5, 0.75])
    assert t.returns is not None and t.returns.tolist() == [1, 1]


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


def group(*scores: float) -> list[Episode]:
    return [Episode([], rewards=[s]) for s in scores]


def test_filters_judge_raw_scores() -> None:
    groups = [group(1, 1), group(0, 1), group(0, 4), group(0, 2)]  # stds 0, .5, 2, 1
    kept = lambda **settings: [groups.index(g) for g in keep_groups(groups, FilterSettings(**settings))]  # noqa: E731
    assert kept(name="none") == [0, 1, 2, 3]
    assert kept(name="varied") == [1, 2, 3]
    assert kept(name="fraction", keep=0.25) == [2]
    assert kept(name="fraction", keep=0.5) == [2, 3]
    assert kept(name="top-p", keep=0.5) == [2]  # 2 of 3.5 is more than half
    assert kept(name="top-p", keep=0.9) == [1, 2, 3]
    assert keep_groups([group(1, 1)], FilterSettings(name="top-p", keep=0.9)) == []
    # exp of the stds: 1, 1.65, 7.39, 2.72, in all 12.76.
    assert kept(name="softmax-top-p", keep=0.5) == [2]
    assert kept(name="softmax-top-p", keep=0.9) == [1, 2, 3]  # 11.76 of them
    assert kept(name="softmax-top-p", keep=0.95) == [0, 1, 2, 3]
    for name in ("top-p", "softmax-top-p"):
        assert keep_groups([], FilterSettings(name=name, keep=0.9)) == []


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


class Mine(Algorithm):
    name: Literal["mine"] = "mine"


class Taken(Algorithm):
    name: Literal["grpo"] = "grpo"


class Nameless(Algorithm):
    name: str = "free"


def test_offered_algorithms_have_names_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    offered: list[Any] = [Mine, Taken, Nameless, dict, 5, Mine]
    known = [(plugins.Plugin("algorithms", f"p{i}", "there:It", "pkg"), kind) for i, kind in enumerate(offered)]
    skipped: list[str] = []
    monkeypatch.setattr(plugins, "load_all", lambda kind: known if kind == "algorithms" else [])
    monkeypatch.setattr(plugins, "skip", skipped.append)
    assert rl_settings.plugin_algorithms() == [Mine]
    assert ["exists" in line for line in skipped] == [True, False, False, False, True]
    assert (
        all("there:It is not an Algorithm" in line for line in skipped[1:4]) and "'p1' of package 'pkg'" in skipped[0]
    )
    assert rl_settings._names(Grpo) == ("grpo",) and rl_settings._names(Nameless) == () == rl_settings._names(int)


def played(seed: int) -> list[Trajectory]:
    """Twelve episodes of three interleaved groups and one alone; of 1 to 4 turns of 1 to 3 tokens."""
    random, found = np.random.default_rng(seed), []
    for number in range(13):
        sizes = random.integers(1, 4, size=random.integers(1, 5))
        ends = np.zeros(sizes.sum(), bool)
        ends[np.cumsum(sizes) - 1] = True
        rewards = np.where(ends, random.normal(size=len(ends)), 0).astype(np.float32)
        states = tuple(bytes([int(random.integers(3))]) for _ in sizes)
        values = random.normal(size=len(ends)).astype(np.float32)
        group = 9 if number == 12 else number % 3
        found.append(Trajectory(rewards, ends, group, float(rewards.sum()) + 0.25 * number, values, states))
    return found


def by_turn(t: Trajectory) -> list[list[int]]:
    """The places of each turn's tokens."""
    turns: list[list[int]] = [[]]
    for place, end in enumerate(t.turn_ends):
        turns[-1].append(place)
        if end:
            turns.append([])
    return turns[:-1]


def group_of(trajectories: list[Trajectory], i: int) -> list[Trajectory]:
    return [t for t in trajectories if t.group == trajectories[i].group]


def check(algorithm: Algorithm, trajectories: list[Trajectory], expected: list[list[float]]) -> None:
    found = algorithm.estimate(trajectories)
    for number, (a, b) in enumerate(zip(found, expected, strict=True)):
        assert a.dtype == np.float32 and a.shape == (len(b),)
        np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-5, err_msg=f"episode {number}")


@pytest.mark.parametrize("seed", range(3))
def test_algorithms_that_give_an_episode_one_advantage(seed: int) -> None:
    trajectories = played(seed)
    grpo, centred, others = [], [], []
    for i, t in enumerate(trajectories):
        scores = [u.score for u in group_of(trajectories, i)]
        n, mean = len(scores), sum(scores) / len(scores)
        spread = (sum((s - mean) ** 2 for s in scores) / (n - 1)) ** 0.5 if n > 1 else 0.0
        grpo.append([(t.score - mean) / (spread + 0.5)] * len(t.rewards))
        centred.append([t.score - mean] * len(t.rewards))
        others.append([t.score - (sum(scores) - t.score) / (n - 1) if n > 1 else 0.0] * len(t.rewards))
    check(Grpo(epsilon=0.5), trajectories, grpo)
    check(Gspo(epsilon=0.5), trajectories, grpo)
    check(DrGrpo(), trajectories, centred)
    check(Rloo(), trajectories, others)


@pytest.mark.parametrize("gamma", [1.0, 0.7, 0.0])
def test_turns_are_compared_with_the_groups_same_turn_however_many_there_are(gamma: float) -> None:
    trajectories = played(5)
    expected = []
    for i, t in enumerate(trajectories):
        earned = []
        for u in group_of(trajectories, i):
            own = [float(sum(u.rewards[places])) for places in by_turn(u)]
            earned.append([sum(gamma ** (k - j) * own[k] for k in range(j, len(own))) for j in range(len(own))])
        squares, free = 0.0, 0
        for turn in range(4):
            there = [e[turn] for e in earned if len(e) > turn]
            if there:
                squares += sum((e - sum(there) / len(there)) ** 2 for e in there)
                free += len(there) - 1
        spread = (squares / free) ** 0.5 if free else 0.0
        me = next(k for k, u in enumerate(group_of(trajectories, i)) if u is t)
        out = [0.0] * len(t.rewards)
        for turn, places in enumerate(by_turn(t)):
            there = [e[turn] for e in earned if len(e) > turn]
            for place in places:
                out[place] = (earned[me][turn] - sum(there) / len(there)) / (spread + 0.25)
        expected.append(out)
        np.testing.assert_allclose(returns_of(t, gamma), earned[me], rtol=1e-5, atol=1e-6)
        assert turns_of(t).tolist() == [turn for turn, places in enumerate(by_turn(t)) for _ in places]
    check(TurnGrpo(gamma=gamma, epsilon=0.25), trajectories, expected)


@pytest.mark.parametrize(("gamma", "lam", "prior"), [(1.0, 0.5, 1.0), (0.8, 0.3, 0.0), (0.9, 1.0, 2.5)])
def test_states_are_worth_what_the_group_earned_from_them_on(gamma: float, lam: float, prior: float) -> None:
    trajectories = played(6)
    expected = []
    for i, t in enumerate(trajectories):
        visits: list[tuple[bytes, int, float]] = []
        for u in group_of(trajectories, i):
            own = [float(sum(u.rewards[places])) for places in by_turn(u)]
            for j, state in enumerate(u.states):
                visits.append((state, j, sum(gamma ** (k - j) * own[k] for k in range(j, len(own)))))

        def value(state: bytes, turn: int, visits: list[tuple[bytes, int, float]] = visits) -> float:
            same = [r for s, _, r in visits if s == state]
            usual = [r for _, j, r in visits if j == turn]
            return (sum(same) + prior * sum(usual) / len(usual)) / (len(same) + prior)

        earned = [r for _, _, r in visits]
        spread = float(np.std(earned))
        own = [float(sum(t.rewards[places])) for places in by_turn(t)]
        values = [value(state, j) for j, state in enumerate(t.states)] + [0.0]
        out = [0.0] * len(t.rewards)
        for j, places in enumerate(by_turn(t)):
            total = sum(
                (gamma * lam) ** (k - j) * (own[k] + gamma * values[k + 1] - values[k]) for k in range(j, len(own))
            )
            for place in places:
                out[place] = total / (spread + 0.125)
        expected.append(out)
    check(StateGrpo(gamma=gamma, lam=lam, prior=prior, epsilon=0.125), trajectories, expected)


def whitened(rows: list[list[float]]) -> list[list[float]]:
    flat = np.concatenate([np.array(row) for row in rows])
    return [((np.array(row) - flat.mean()) / flat.std()).tolist() for row in rows]


@pytest.mark.parametrize("baseline", [False, True])
def test_returns_to_come_are_whitened_over_all_tokens(baseline: bool) -> None:
    trajectories, expected = played(7), []
    for i, t in enumerate(trajectories):
        mean = np.mean([u.score for u in group_of(trajectories, i)]) if baseline else 0.0
        n = len(t.rewards)
        expected.append([sum(0.9 ** (k - j) * float(t.rewards[k]) for k in range(j, n)) - mean for j in range(n)])
    check(Reinforce(gamma=0.9, baseline=baseline), trajectories, whitened(expected))


def test_tokens_that_are_all_alike_whiten_to_nothing() -> None:
    alike = [Trajectory(np.array([2.0], np.float32), np.array([True]), 0, 2.0)] * 3
    assert [found.tolist() for found in Reinforce().estimate(alike)] == [[0.0]] * 3


@pytest.mark.parametrize("bi_level", [False, True])
def test_ppo_sums_discounted_surprises(bi_level: bool) -> None:
    gamma, lam, turn_gamma = 0.9, 0.7, 0.6

    def gae(rewards: list[float], values: list[float], discount: float) -> list[float]:
        after = [*values[1:], 0.0]
        surprise = [r + discount * a - v for r, a, v in zip(rewards, after, values, strict=True)]
        return [
            sum((discount * lam) ** (k - j) * surprise[k] for k in range(j, len(rewards))) for j in range(len(rewards))
        ]

    trajectories, expected = played(8), []
    for t in trajectories:
        assert t.values is not None
        rewards, values = t.rewards.tolist(), t.values.tolist()
        if not bi_level:
            expected.append(gae(rewards, values, gamma))
            continue
        turns = by_turn(t)
        at_ends = [values[places[-1]] for places in turns]
        for_turns = gae([sum(rewards[k] for k in places) for places in turns], at_ends, turn_gamma)
        out: list[float] = []
        for places, advantage, value in zip(turns, for_turns, at_ends, strict=True):
            inside = [0.0] * (len(places) - 1) + [advantage + value]
            out += gae(inside, [values[k] for k in places], gamma)
        expected.append(out)
    settings = {"gamma": gamma, "lam": lam, "turn_gamma": turn_gamma, "bi_level": bi_level}
    check(Ppo(**settings, whiten=False), trajectories, expected)  # type: ignore[arg-type]
    check(Ppo(**settings), trajectories, whitened(expected))  # type: ignore[arg-type]
    for advantage, t in zip(expected, trajectories, strict=True):
        assert t.returns is not None
        np.testing.assert_allclose(t.returns, np.array(advantage) + t.values, rtol=1e-4, atol=1e-5)


def test_what_algorithms_say_about_the_loss() -> None:
    assert Gspo().loss == {
        "importance_sampling": "sequence", "clip_low": 3e-4, "clip_high": 4e-4, "dual_clip": None,
    }  # fmt: skip
    assert Grpo().loss == {} and Grpo().aggregate is None and not Grpo().critic and Ppo().critic
    assert (Gspo().aggregate, DrGrpo().aggregate) == ("sequence-mean", "constant")
    with pytest.raises(NotImplementedError):
        Algorithm(name="x").estimate([])


def sampled(turn: int, *tokens: int) -> Segment:
    return Segment(np.array(tokens), True, turn=turn, logprobs=np.zeros(len(tokens)), params=SamplingParams())


def test_a_trajectory_lines_up_turns_over_rows_forced_tokens_and_empty_replies() -> None:
    # Turn 2 is cut in two by a forced token, turn 3 sampled nothing, turn 4 is in a row of its own.
    first = Row([given([1]), sampled(1, 5), given([2, 3]), sampled(2, 6, 7), given([8], turn=2), sampled(2, 9)])
    second = Row([given([4]), sampled(3), given([6]), sampled(4, 5, 5)])
    episode = Episode([first, second], rewards=[1.0, 2.0, 4.0, 8.0], group=3)
    found = trajectory(episode, 7)
    assert found.rewards.tolist() == [1, 0, 0, 6, 0, 8] and len(found) == 6
    assert found.turn_ends.tolist() == [True, False, False, True, False, True]
    assert (found.group, found.score, found.values) == (7, 15.0, None)
    told = [np.frombuffer(state, np.int32).tolist() for state in found.states]
    assert told == [[1], [1, 5, 2, 3], [4, 6]]
    # One turn may be numbered 0; a reward beyond the last sampled token stands on it.
    single = trajectory(Episode([Row([given([1]), sampled(0, 5, 6)])], rewards=[3.0]), 0)
    assert single.rewards.tolist() == [0, 3] and single.turn_ends.tolist() == [False, True]
    late = trajectory(Episode([Row([given([1]), sampled(1, 5), sampled(2)])], rewards=[1.0, 2.0]), 0)
    assert late.rewards.tolist() == [3]
    nothing = trajectory(Episode([Row([given([1])])], rewards=[1.0]), 0)
    assert len(nothing) == 0 and nothing.states == () and nothing.score == 1.0
