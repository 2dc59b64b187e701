"""Every algorithm against a second implementation: plain numbers, loops over turns, random episodes."""

from __future__ import annotations

import numpy as np
import pytest

from oneiro.episode import Episode, Group, Row, SamplingParams, Segment, given
from oneiro.learning import filters
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
from oneiro.learning.algorithms.turn_grpo import returns_of, turns_of
from oneiro.learning.filters import FilterSettings


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
    found = algorithm.estimate(trajectories).advantages
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
    assert [found.tolist() for found in Reinforce().estimate(alike).advantages] == [[0.0]] * 3


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
    returns = Ppo(**settings).estimate(trajectories).returns  # type: ignore[arg-type]
    assert returns is not None
    for found, advantage, t in zip(returns, expected, trajectories, strict=True):
        np.testing.assert_allclose(found, np.array(advantage) + t.values, rtol=1e-4, atol=1e-5)


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


def group(*scores: float) -> Group:
    return Group([Episode([], rewards=[s]) for s in scores])


def test_filters_at_their_edges() -> None:
    groups = [group(0, 2), group(3, 3), group(0, 4), group(5, 7), group(0, 1e-10)]

    def kept(**settings: object) -> list[int]:
        return [groups.index(g) for g in filters.keep(groups, FilterSettings(**settings))]  # type: ignore[arg-type]

    assert [groups.index(g) for g in filters.varied(groups)] == [0, 2, 3] == kept(name="varied")
    assert kept(name="none") == [0, 1, 2, 3, 4] == kept(name="none", keep=0.1)
    # Of equal ones the first; one at least; parts are rounded to the nearest; groups without std never.
    assert kept(name="fraction", keep=0.4) == [0, 2] and kept(name="fraction", keep=0.01) == [2]
    assert kept(name="fraction", keep=0.3) == [0, 2] and kept(name="fraction", keep=1.0) == [0, 2, 3]
    # Stds 1, 2, 1 of 4 in all: one group holds a half, two hold three quarters, exactly.
    assert kept(name="top-p", keep=0.5) == [2] and kept(name="top-p", keep=0.51) == [0, 2]
    assert kept(name="top-p", keep=0.75) == [0, 2] and kept(name="top-p", keep=1.0) == [0, 2, 3]
    # Softmax: e, 1, e^2, e, 1 of 14.8 in all; the largest holds 0.4985, with a second 0.682.
    assert kept(name="softmax-top-p", keep=0.49) == [2] and kept(name="softmax-top-p", keep=0.5) == [0, 2]
    assert kept(name="softmax-top-p", keep=1.0) == [0, 1, 2, 3, 4]
    assert filters.keep([], FilterSettings(name="varied")) == []
    far = [group(0, 4000), group(0, 1)]
    assert filters.keep(far, FilterSettings(name="softmax-top-p", keep=0.5)) == far[:1]
