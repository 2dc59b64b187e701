"""Rows that begin with the same tokens: sampler and learner compute what such a group shares once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class PrefixGroup:
    """`length` tokens that some rows share, and the numbers of these rows."""

    length: int
    rows: list[int]


def prefix_groups(prefixes: Iterable[NDArray[np.integer]]) -> list[PrefixGroup]:
    """Group rows by equal prefixes, in order of first appearance; `prefixes` has one for each row."""
    groups: dict[bytes, PrefixGroup] = {}
    for row, prefix in enumerate(prefixes):
        groups.setdefault(prefix.tobytes(), PrefixGroup(len(prefix), [])).rows.append(row)
    return list(groups.values())


def part(group: PrefixGroup, start: int, end: int) -> PrefixGroup:
    """Some of a group's rows."""
    return PrefixGroup(group.length, group.rows[start:end])


def rows_of(groups: Sequence[PrefixGroup]) -> list[int]:
    """All rows, group by group."""
    return [row for group in groups for row in group.rows]
