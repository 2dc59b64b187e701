"""Agreement between a model and the world: the published numbers, and an order of arguments that cannot be mixed up."""

from __future__ import annotations

import inspect

import numpy as np
import pytest

from oneiro.systems.policy_eval.agreement import agreement, mean_gap, mmrv, pearson

REAL_OPEN, RLVR_OPEN, BASE_OPEN = [0.0, 0.519, 0.704, 0.815], [0.033, 0.333, 0.622, 0.622], [0.044, 0.188, 0.5, 0.489]
REAL_CLOSE, RLVR_CLOSE, BASE_CLOSE = (
    [0.0, 0.741, 0.889, 0.926],
    [0.189, 0.711, 0.789, 0.889],
    [0.2, 0.567, 0.767, 0.811],
)


@pytest.mark.parametrize(
    ("real", "simulated", "violation", "correlation", "gap"),
    [
        (REAL_OPEN, RLVR_OPEN, 0.028, 0.976, 0.124),
        (REAL_OPEN, BASE_OPEN, 0.056, 0.922, 0.226),
        (REAL_CLOSE, RLVR_CLOSE, 0.0, 0.995, 0.089),
        (REAL_CLOSE, BASE_CLOSE, 0.0, 0.979, 0.153),
    ],
)
def test_published_success_rates_give_the_known_numbers(
    real: list[float], simulated: list[float], violation: float, correlation: float, gap: float
) -> None:
    from scipy.stats import pearsonr  # a second that workers who only collect this file need not spend

    assert mmrv(simulated=simulated, real=real) == pytest.approx(violation, abs=6e-4)
    assert pearson(simulated=simulated, real=real) == pytest.approx(correlation, abs=6e-4)
    assert mean_gap(simulated=simulated, real=real) == pytest.approx(gap, abs=6e-4)
    assert pearson(simulated=simulated, real=real) == pytest.approx(pearsonr(simulated, real).statistic, abs=1e-6)


def test_the_violation_depends_on_which_side_is_real() -> None:
    # Policies 1 and 2 are swapped. Seen from the right side the violation weighs 0.1 twice, from the wrong one 0.6.
    real, simulated = [0.0, 0.5, 0.6], [0.1, 0.9, 0.3]
    assert mmrv(simulated=simulated, real=real) == pytest.approx((0.0 + 0.1 + 0.1) / 3)
    assert mmrv(simulated=real, real=simulated) == pytest.approx((0.0 + 0.6 + 0.6) / 3)


def test_arguments_have_to_be_named() -> None:
    for measure in (mmrv, pearson, mean_gap, agreement):
        kinds = [parameter.kind for parameter in inspect.signature(measure).parameters.values()]
        assert set(kinds) == {inspect.Parameter.KEYWORD_ONLY}
    with pytest.raises(TypeError):
        mmrv(REAL_OPEN, RLVR_OPEN)  # type: ignore[misc]


def test_a_tie_counts_for_the_better_policy_only() -> None:
    # Policy 1 is really better by 0.4 and ties in the simulation: its violation is 0.4, that of policy 0 is none.
    assert mmrv(simulated=[0.5, 0.5], real=[0.3, 0.7]) == pytest.approx(0.2)
    assert mmrv(simulated=[0.3, 0.7], real=[0.5, 0.5]) == 0


def test_a_side_that_does_not_vary_has_no_correlation() -> None:
    assert pearson(simulated=[0.5, 0.5, 0.5], real=[0.0, 0.5, 1.0]) == 0
    assert pearson(simulated=[0.2, 0.2], real=[0.7, 0.7]) == 1  # they vary alike: not at all


def test_equal_outcomes_agree_without_doubt_and_others_with_an_interval() -> None:
    rng = np.random.default_rng(0)
    real = rng.random((5, 30)) < np.array([0.0, 0.2, 0.5, 0.8, 1.0])[:, None]
    same = agreement(simulated=real, real=real)
    assert (same.gap.value, same.gap.high, same.mmrv.high, same.pearson.low) == (0, 0, 0, 1) and same.gap.n == 30
    noisy = np.where(rng.random(real.shape) < 0.2, ~real, real)
    found = agreement(simulated=noisy, real=real)
    assert found.gap.low is not None and found.gap.high is not None and isinstance(found.gap.value, float)
    assert 0 < found.gap.low < found.gap.value < found.gap.high < 0.4
    assert found.gap == agreement(simulated=noisy, real=real).gap  # the same intervals every time
    for shapes in ((real, real[:4]), (real[0], real[0])):
        with pytest.raises(ValueError, match="policies, starts"):
            agreement(simulated=shapes[0], real=shapes[1])
