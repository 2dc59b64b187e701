"""Learning rates and optimisers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oneiro.errors import OneiroError
from oneiro.learning.optimiser import OptimiserSettings, learning_rate
from oneiro.recipe import build


def test_schedules_by_hand() -> None:
    cosine = OptimiserSettings(lr=1.0, schedule="cosine", warmup=2, final=0.1)
    rates = [learning_rate(cosine, step, 10) for step in (0, 1, 2, 6, 10)]
    np.testing.assert_allclose(rates, [0.5, 1.0, 1.0, 0.55, 0.1])
    linear = OptimiserSettings(lr=1.0, schedule="linear", warmup=0.2)
    np.testing.assert_allclose([learning_rate(linear, step, 10) for step in (0, 1, 2, 6, 10)], [0.5, 1, 1, 0.5, 0])
    # Half a step of warm-up is one step, and 0.07 * 100 = 7.000000000000001 is seven.
    assert learning_rate(OptimiserSettings(lr=1.0, warmup=0.05), 0, 10) == 1.0
    assert learning_rate(OptimiserSettings(lr=1.0, warmup=0.07), 6, 100) == 1.0
    np.testing.assert_allclose(
        [learning_rate(OptimiserSettings(lr=1.0, warmup=0.25), step, 10) for step in range(4)], [1 / 3, 2 / 3, 1, 1]
    )


@settings(max_examples=300, deadline=None)
@given(
    warmup=st.one_of(st.floats(0, 0.999), st.floats(1, 200)),
    steps=st.integers(1, 300),
    schedule=st.sampled_from(["constant", "cosine", "linear"]),
    final=st.floats(0, 1),
)
def test_warm_up_rises_by_equal_steps_to_the_rate_and_never_passes_it(
    warmup: float, steps: int, schedule: str, final: float
) -> None:
    chosen = OptimiserSettings(lr=0.5, warmup=warmup, schedule=schedule, final=final)  # type: ignore[arg-type]
    rates = np.array([learning_rate(chosen, step, steps) for step in range(steps)])
    assert (rates <= 0.5 * (1 + 1e-12)).all() and (rates >= 0).all()
    rising = next((step for step, rate in enumerate(rates) if rate >= 0.5 * (1 - 1e-12)), steps)
    np.testing.assert_allclose(np.diff(rates[: rising + 1]), rates[0], rtol=1e-9)  # as far from each other as from 0
    asked = warmup if warmup >= 1 else warmup * steps
    assert abs(rising + 1 - asked) < 1 or rising == steps or (asked < 1 and rising == 0)
    # After its top it falls, without a jump: by no more than its steepest step.
    if rising < steps:
        falls = -np.diff(rates[rising:])
        steepest = 0.5 * np.pi / 2 / max(1, steps - rising - 1)
        assert (falls >= -1e-12).all() and (falls <= steepest + 1e-12).all()


@pytest.mark.parametrize("lr", [1e8, float("inf"), float("nan"), 0.0])
def test_a_rate_that_only_destroys_is_refused(lr: float) -> None:
    with pytest.raises(OneiroError, match=r"^lr: "):
        build(OptimiserSettings, {"lr": lr})
