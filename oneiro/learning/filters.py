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
    """none: all groups. varied: those with any spread. fraction: the `keep` part with the largest spread (StarPO-S).
    top-p: the fewest groups that hold `keep` of all spread (RAGEN-2)."""

    name: Literal["none", "varied", "fraction", "top-p"] = "varied"
    keep: float = Field(0.25, gt=0, le=1)


def keep(groups: Sequence[Group], settings: FilterSettings) -> list[Group]:
    """The groups to learn from, in their given order; may be empty."""
    if settings.name == "none":
        return list(groups)
    spreads = np.array([group.scores.std() for group in groups])
    order = np.argsort(-spreads, kind="stable")
    if settings.name == "varied":
        chosen = order
    elif settings.name == "fraction":
        chosen = order[: max(1, round(settings.keep * len(groups)))]
    else:
        cumulated = np.cumsum(spreads[order])
        # A hair below the bar counts as reaching it, or rounding would ask for one group too many.
        chosen = (
            order[: int(np.searchsorted(cumulated, settings.keep * cumulated[-1] - 1e-9)) + 1] if len(order) else order
        )
    return [groups[i] for i in sorted(chosen.tolist()) if spreads[i] > 1e-9]
