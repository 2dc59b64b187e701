"""Numbers with their uncertainty: unbiased pass@k, bootstrap over levels or clusters, Wilson for plain proportions."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from oneiro.report.table import Cell
from oneiro.runtime.seeds import generator

Z = 1.959963984540054
"""The normal quantile of a 95 % interval."""
RESAMPLES = 2000  # of a bootstrap: the ends of a 95 % interval rest on 50 of them
CHUNK = 100  # resamples drawn at once, which bounds memory


def pass_at_k(samples: int, correct: int, k: int) -> float:
    """Unbiased estimate of the chance that at least one of k samples is right, from `correct` right ones of `samples`.

    1 - C(samples - correct, k) / C(samples, k), as a product that never overflows (Chen et al. 2021, arXiv 2107.03374).
    """
    if not 1 <= k <= samples or not 0 <= correct <= samples:
        raise ValueError(f"pass@{k} needs 1 <= k <= samples and 0 <= correct <= samples, got {correct} of {samples}")
    if samples - correct < k:
        return 1.0
    return 1.0 - math.prod(1.0 - k / i for i in range(samples - correct + 1, samples + 1))


def wilson(successes: int, n: int) -> Cell:
    """A proportion of n independent cases with Wilson's score interval."""
    if n < 1:
        return Cell(None, n=0)
    p = successes / n
    centre = (p + Z**2 / (2 * n)) / (1 + Z**2 / n)
    half = Z / (1 + Z**2 / n) * math.sqrt(p * (1 - p) / n + Z**2 / (4 * n**2))
    return Cell(p, max(0.0, centre - half), min(1.0, centre + half), n)


def bootstrap(values_L: ArrayLike, seed: int = 0) -> Cell:
    """The mean over levels with its percentile interval; levels, not single samples, are what is drawn again.

    Where every level is exactly 0, or every one exactly 1, resampling sees no spread; Wilson's interval stands in. One
    level with another value says nothing of how levels differ: it gets no interval.
    """
    values = np.asarray(values_L, np.float64)
    if len(values) == 1 and values[0] in (0.0, 1.0):
        return wilson(int(values[0]), 1)
    return clustered(values, np.arange(len(values)), seed)


T_975 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131)
"""Student's t quantile of a 95 % interval for 1, 2, ... 15 degrees of freedom; beyond, two terms of its
expansion in 1 / freedom are enough.
"""


def over_seeds(values_S: ArrayLike) -> Cell:
    """The mean over seeds with Student's interval; n counts seeds.

    A bootstrap of a handful of values is too narrow: it cannot draw what it has not seen. One seed alone has no
    interval.
    """
    values = np.asarray(values_S, np.float64)
    n = len(values)
    if n < 2:
        return Cell(float(values[0]) if n else None, n=n)
    mean, error = float(values.mean()), float(values.std(ddof=1)) / math.sqrt(n)
    freedom = n - 1
    half = error * (T_975[freedom - 1] if freedom <= len(T_975) else Z + 2.372 / freedom + 2.823 / freedom**2)
    return Cell(mean, mean - half, mean + half, n)


def clustered(values_N: ArrayLike, clusters_N: ArrayLike, seed: int = 0) -> Cell:
    """The mean over cases with its percentile interval where cases of one cluster belong together; n counts cases.

    Whole clusters are drawn again, each with all its cases, as often as there are clusters. Cases that share a start
    state, a level or a game tell less than as many independent ones, so the interval is wider than Wilson's. One
    cluster alone says nothing of how clusters differ: it gets no interval. Where every case is exactly 0, or every one
    exactly 1, resampling sees no spread; Wilson's interval over clusters stands in.
    """
    values = np.asarray(values_N, np.float64)
    _, numbers = np.unique(np.asarray(clusters_N), return_inverse=True)
    if len(values) != len(numbers):
        raise ValueError(f"{len(values)} values and {len(numbers)} clusters: each value needs one")
    if not len(values):
        return Cell(None, n=0)
    sizes = np.bincount(numbers)
    sums, count, mean = np.bincount(numbers, values), len(sizes), float(values.mean())
    if count == 1:
        return Cell(mean, n=len(values))
    if mean in (0.0, 1.0) and np.all(values == mean):
        ends = wilson(int(mean) * count, count)
        return Cell(mean, ends.low, ends.high, len(values))
    rng = generator("report", "bootstrap", seed)
    means = []
    for _ in range(RESAMPLES // CHUNK):
        drawn = rng.integers(count, size=(CHUNK, count))
        means.append(sums[drawn].sum(axis=1) / sizes[drawn].sum(axis=1))
    low, high = np.quantile(np.concatenate(means), [0.025, 0.975])
    return Cell(mean, float(low), float(high), len(values))


def paired(mine_N: ArrayLike, theirs_N: ArrayLike, clusters_N: ArrayLike | None = None, seed: int = 0) -> Cell:
    """The mean of mine less theirs, case by case, with its interval over clusters of cases, or over cases.

    Where no case differs resampling sees no spread, and a difference is no proportion: it gets no interval.
    """
    apart = np.subtract(mine_N, theirs_N, dtype=np.float64)
    if len(apart) and not apart.any():
        return Cell(0.0, n=len(apart))
    return bootstrap(apart, seed) if clusters_N is None else clustered(apart, clusters_N, seed)


def success_rate(success_LS: ArrayLike, seed: int = 0) -> Cell:
    """Success of `[levels, samples]` outcomes (pass@1), bootstrapped over levels."""
    return bootstrap(np.asarray(success_LS, np.float64).mean(axis=1), seed)


def pass_rate(success_LS: ArrayLike, k: int, seed: int = 0) -> Cell:
    """pass@k of `[levels, samples]` outcomes: unbiased on each level, bootstrapped over levels."""
    success = np.asarray(success_LS, bool)
    return bootstrap([pass_at_k(success.shape[1], int(row.sum()), k) for row in success], seed)
