"""Estimates and intervals, against brute force and numbers worked by hand."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from scipy.stats import t as student

from oneiro.report.stats import (
    RESAMPLES,
    bootstrap,
    clustered,
    over_seeds,
    paired,
    pass_at_k,
    pass_rate,
    success_rate,
    wilson,
)
from oneiro.report.table import Cell
from oneiro.runtime.seeds import generator


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


def test_one_level_has_the_wide_interval_of_one_case_or_none() -> None:
    for success, ends in ((1.0, (0.2065, 1.0)), (0.0, (0.0, 0.7935))):  # 1 / (1 + 1.96^2), Wilson's for one case
        cell = success_rate([[success] * 8])
        assert (cell.low, cell.high, cell.n) == (pytest.approx(ends[0], abs=1e-4), pytest.approx(ends[1], abs=1e-4), 1)
    assert success_rate([[1.0, 0.0, 0.0, 0.0]]) == bootstrap([0.25]) == Cell(0.25, n=1)
    assert not bootstrap([17.3]).measured
    assert Cell(0.25, n=1).words("{:.1%}") == "25.0%"
    assert Cell(0.25, 0.125, 0.5, 2).words("{:.1%}") == "25.0% (12.5% to 50.0%)"


def test_pass_rate_averages_the_unbiased_estimate_over_levels() -> None:
    success = np.array([[1, 0, 0, 0], [0, 0, 0, 0], [1, 1, 1, 0]], bool)
    # pass@2 of 1, 0 and 3 right ones of 4: 1 - 3/6, 0, 1.
    assert pass_rate(success, 2).value == pytest.approx((0.5 + 0 + 1) / 3)
    assert pass_rate(success, 1).value == pytest.approx(success.mean())


# Clusters -------------------------------------------------------------------------------------------------------------


def slow_interval(values: list[float], clusters: list[str]) -> tuple[float, float]:
    """Clusters drawn with replacement, all their cases taken together: by plain loops over the same draws."""
    names = sorted(set(clusters))
    cases = {name: [value for value, of in zip(values, clusters, strict=True) if of == name] for name in names}
    rng = generator("report", "bootstrap", 0)
    means: list[float] = []
    while len(means) < RESAMPLES:
        for drawn in rng.integers(len(names), size=(100, len(names))):
            pool = [value for number in drawn for value in cases[names[number]]]
            means.append(sum(pool) / len(pool))
    means.sort()

    def quantile(share: float) -> float:
        place = share * (len(means) - 1)
        below = int(place)
        return means[below] + (place - below) * (means[min(below + 1, len(means) - 1)] - means[below])

    return quantile(0.025), quantile(0.975)


def test_the_clustered_interval_is_that_of_plain_loops() -> None:
    rng = np.random.default_rng(4)
    clusters = [f"state {number}" for number in rng.integers(12, size=90)]
    values = [float(rng.random() < 0.2 + 0.05 * int(name.split()[1])) for name in clusters]
    cell = clustered(values, clusters)
    assert (cell.low, cell.high) == pytest.approx(slow_interval(values, clusters), abs=1e-12)
    assert (cell.value, cell.n) == (pytest.approx(sum(values) / 90), 90)


def test_two_clusters_by_hand() -> None:
    """Three right cases and one wrong: half the draws have both, a quarter only the right ones, a quarter the wrong."""
    cell = clustered([1, 1, 1, 0], ["a", "a", "a", "b"])
    assert (cell.value, cell.low, cell.high, cell.n) == (0.75, 0.0, 1.0, 4)


def test_cases_that_share_a_cluster_widen_the_interval() -> None:
    """Fifty clusters of ten cases, all right or all wrong, tell as much as fifty cases: sqrt(10) times wider."""
    right = np.random.default_rng(5).random(50) < 0.6
    values, clusters = np.repeat(right, 10), np.repeat(np.arange(50), 10)
    cell, rows, alone = clustered(values, clusters), wilson(int(values.sum()), 500), clustered(right, np.arange(50))
    assert cell.value == rows.value and (cell.low, cell.high) == (alone.low, alone.high)
    widths = [float(each.high) - float(each.low) for each in (cell, rows)]  # type: ignore[arg-type]
    assert 2.8 < widths[0] / widths[1] < 3.5


def test_clusters_of_one_are_the_ordinary_bootstrap() -> None:
    values = np.random.default_rng(6).random(40)
    cell, plain = clustered(values, np.arange(40), seed=3), bootstrap(values, seed=3)
    assert [cell.value, cell.low, cell.high] == pytest.approx([plain.value, plain.low, plain.high])
    assert cell.n == plain.n == 40
    assert clustered(values, np.arange(40)) == clustered(values, np.arange(40)) != cell


def test_a_difference_is_over_pairs_and_has_no_interval_where_no_case_differs() -> None:
    assert paired([0.0, 1.0, 0.3], [0.0, 1.0, 0.3]) == Cell(0.0, n=3)
    assert paired([1, 0, 1, 0], [1, 0, 1, 0], ["a", "a", "b", "b"]) == Cell(0.0, n=4)
    assert paired([], []).value is None
    cell = paired([1.0] * 100, [1.0, 0.0] * 50)
    assert cell.value == 0.5 and cell.low is not None and 0.38 < cell.low < 0.44
    mine, theirs, clusters = [0, 1, 0, 0, 1], [1, 1, 0, 1, 1], [0, 0, 0, 1, 2]
    apart = [-1, 0, 0, -1, 0]
    assert paired(mine, theirs, clusters, seed=2) == clustered(apart, clusters, seed=2) != paired(mine, theirs, seed=2)


def test_unanimous_clusters_have_wilsons_interval_over_clusters_and_one_alone_has_none() -> None:
    ends = wilson(3, 3)
    cell = clustered([1, 1, 1, 1, 1], [0, 0, 0, 1, 2])
    assert (cell.value, cell.low, cell.high, cell.n) == (1.0, ends.low, ends.high, 5)
    assert clustered([0, 0], ["a", "b"]).high == wilson(0, 2).high
    one = clustered([1, 0, 1], [7, 7, 7])
    assert (one.value, one.low, one.high, one.n) == (pytest.approx(2 / 3), None, None, 3)
    assert clustered([], []).value is None
    with pytest.raises(ValueError, match="each value needs one"):
        clustered([1, 0], [1])


@pytest.mark.parametrize("seeds", range(2, 41))
def test_intervals_over_seeds_are_students(seeds: int) -> None:
    cell = over_seeds(np.arange(seeds))
    error = np.std(np.arange(seeds), ddof=1) / np.sqrt(seeds)
    assert cell.value == pytest.approx((seeds - 1) / 2)
    assert (cell.high - cell.value) / error == pytest.approx(student.ppf(0.975, seeds - 1), rel=1e-3)
    assert cell.value - cell.low == pytest.approx(cell.high - cell.value)
