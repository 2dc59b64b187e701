"""Estimates and intervals, against brute force and numbers worked by hand."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from oneiro.report.stats import bootstrap, pass_at_k, pass_rate, success_rate, wilson


@pytest.mark.parametrize("samples", [1, 2, 5, 7])
def test_pass_at_k_is_the_share_of_subsets_with_a_success(samples: int) -> None:
    for correct in range(samples + 1):
        outcomes = [1] * correct + [0] * (samples - correct)
        for k in range(1, samples + 1):
            subsets = list(combinations(outcomes, k))
            assert pass_at_k(samples, correct, k) == pytest.approx(sum(map(any, subsets)) / len(subsets))


def test_pass_at_k_of_many_samples_does_not_overflow() -> None:
    assert pass_at_k(10_000, 1, 5_000) == pytest.approx(0.5)


@pytest.mark.parametrize(("samples", "correct", "k"), [(4, 2, 0), (4, 2, 5), (4, 5, 1), (4, -1, 1)])
def test_pass_at_k_refuses_what_makes_no_sense(samples: int, correct: int, k: int) -> None:
    with pytest.raises(ValueError, match="needs 1 <= k"):
        pass_at_k(samples, correct, k)


def test_wilson_matches_published_examples() -> None:
    # Newcombe (1998), Statistics in Medicine 17, table I: 81/263, 15/148, 0/20 and 1/29.
    for successes, n, low, high in [
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ]:
        cell = wilson(successes, n)
        assert (cell.low, cell.high) == (pytest.approx(low, abs=5e-5), pytest.approx(high, abs=5e-5))
        assert (cell.value, cell.n) == (successes / n, n)
    assert wilson(0, 0).value is None


def test_the_bootstrap_interval_agrees_with_the_normal_one_on_many_levels() -> None:
    values = np.random.default_rng(1).random(2000)
    cell = bootstrap(values)
    half = 1.96 * values.std() / np.sqrt(len(values))
    assert cell.value == pytest.approx(values.mean())
    assert cell.low == pytest.approx(values.mean() - half, abs=0.1 * half)
    assert cell.high == pytest.approx(values.mean() + half, abs=0.1 * half)


def test_the_bootstrap_covers_the_truth_about_95_times_in_100() -> None:
    rng = np.random.default_rng(2)
    cells = [bootstrap(rng.random(60) < 0.3) for _ in range(300)]
    covered = np.mean([cell.low <= 0.3 <= cell.high for cell in cells])  # type: ignore[operator]
    assert 0.90 <= covered <= 0.98


def test_the_bootstrap_is_the_same_every_time_and_differs_by_seed() -> None:
    values = np.arange(10) / 10
    assert bootstrap(values) == bootstrap(values)
    assert bootstrap(values, seed=1) != bootstrap(values)


def test_levels_are_the_unit_so_copies_of_a_sample_add_no_certainty() -> None:
    once = np.random.default_rng(3).random((50, 1)) < 0.5
    assert success_rate(np.repeat(once, 8, axis=1)) == success_rate(once)


def test_unanimous_levels_still_have_an_interval() -> None:
    assert success_rate(np.ones((20, 4))) == wilson(20, 20)
    assert success_rate(np.zeros((20, 4))) == wilson(0, 20)
    assert bootstrap([]).n == 0
    assert bootstrap([0.5, 0.5]).low == 0.5


def test_pass_rate_averages_the_unbiased_estimate_over_levels() -> None:
    success = np.array([[1, 0, 0, 0], [0, 0, 0, 0], [1, 1, 1, 0]], bool)
    # pass@2 of 1, 0 and 3 right ones of 4: 1 - 3/6, 0, 1.
    assert pass_rate(success, 2).value == pytest.approx((0.5 + 0 + 1) / 3)
    assert pass_rate(success, 1).value == pytest.approx(success.mean())
