"""Which groups a step learns from."""

from __future__ import annotations

from oneiro.episode import Episode
from oneiro.learning.settings import FilterSettings
from oneiro.learning.update import keep_groups, keep_varied


def group(*scores: float) -> list[Episode]:
    return [Episode([], rewards=[s]) for s in scores]


def test_filters_at_their_edges() -> None:
    groups = [group(0, 2), group(3, 3), group(0, 4), group(5, 7), group(0, 1e-10)]

    def kept(**settings: object) -> list[int]:
        return [groups.index(g) for g in keep_groups(groups, FilterSettings(**settings))]  # type: ignore[arg-type]

    assert [groups.index(g) for g in keep_varied(groups)] == [0, 2, 3] == kept(name="varied")
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
    assert keep_groups([], FilterSettings(name="varied")) == []
    far = [group(0, 4000), group(0, 1)]
    assert keep_groups(far, FilterSettings(name="softmax-top-p", keep=0.5)) == far[:1]
