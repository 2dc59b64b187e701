"""Which groups are worth learning from, judged by their *raw* scores: a group whose members all score alike teaches
nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from pydantic import Field

from oneiro.episode import Group
from oneiro.recipe import Settings


class FilterSettings(Settings):
    """none: all groups. varied: those with any std. fraction: the `keep` part with the largest std (StarPO-S).
    top-p: the fewest groups that hold `keep` of all std (RAGEN-2). softmax-top-p: the fewest that hold `keep` of the
    softmax of stds, groups without any among them; so RAGEN-2's own scripts, a milder choice: most stds are far
    below 1, where a softmax hardly tells them apart."""

    name: Literal["none", "varied", "fraction", "top-p", "softmax-top-p"] = "varied"
    keep: float = Field(0.25, gt=0, le=1)
    """For `fraction`, `top-p` and `softmax-top-p`."""
    refill: int = Field(0, ge=0)
    """How many more batches a step may draw where groups had no std, until as many have some as one batch has groups
    (dynamic sampling, DAPO)."""


NO_STD = 1e-9  # equal rewards, up to float rounding of their mean


def keep_varied(groups: Sequence[Group]) -> list[Group]:
    """Those whose members score differently."""
    return [group for group in groups if group.scores.std() > NO_STD]


def keep(groups: Sequence[Group], settings: FilterSettings) -> list[Group]:
    """The groups to learn from, in their given order; may be empty."""
    if settings.name == "none" or not groups:
        return list(groups)
    stds = np.array([group.scores.std() for group in groups])
    order = np.argsort(-stds, kind="stable")
    if settings.name == "softmax-top-p":
        weights = np.exp(stds - stds.max())
        return [groups[i] for i in sorted(_nucleus(weights, order, settings.keep))]
    if settings.name == "varied":
        chosen = order.tolist()
    elif settings.name == "fraction":
        chosen = order[: max(1, round(settings.keep * len(groups)))].tolist()
    else:
        chosen = _nucleus(stds, order, settings.keep)
    return [groups[i] for i in sorted(chosen) if stds[i] > NO_STD]


def _nucleus(weights: np.ndarray, order: np.ndarray, share: float) -> list[int]:
    """The first places of `order` that together hold this share of all weight."""
    cumulated = np.cumsum(weights[order])
    # A hair below the bar counts as reaching it, or rounding would ask for one group too many.
    return order[: int(np.searchsorted(cumulated, share * cumulated[-1] - 1e-9)) + 1].tolist()
