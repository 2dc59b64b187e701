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


def common_prefixes(prompts: Sequence[NDArray[np.integer]], copies: int, least: int) -> list[PrefixGroup]:
    """Group prompts that begin with the same `least` tokens or more, whatever follows; each has `copies` rows.

    A prompt joins its neighbour's group where that spares more tokens than two groups would. Prompts with nobody to
    share with are in no group.
    """
    groups: list[PrefixGroup] = []
    for row in sorted(range(len(prompts)), key=lambda i: prompts[i].tobytes()):
        if groups:
            # Among sorted prompts no other has more in common with this one than the last.
            group, prompt = groups[-1], prompts[row]
            length, count = min(group.length, common_length(prompts[group.rows[-1]], prompt)), copies * len(group.rows)
            apart = (count - 1) * group.length + (copies - 1) * len(prompt)
            if length >= least and (count + copies - 1) * length >= apart:
                groups[-1] = PrefixGroup(length, [*group.rows, row])
                continue
        groups.append(PrefixGroup(len(prompts[row]), [row]))
    return [group for group in groups if group.length >= least and copies * len(group.rows) > 1]


def common_length(one: NDArray[np.integer], other: NDArray[np.integer]) -> int:
    """How many tokens two prompts have in common at the beginning."""
    shorter = min(len(one), len(other))
    differ = one[:shorter] != other[:shorter]
    return int(differ.argmax()) if differ.any() else shorter


def part(group: PrefixGroup, start: int, end: int) -> PrefixGroup:
    """Some of a group's rows."""
    return PrefixGroup(group.length, group.rows[start:end])


def rows_of(groups: Sequence[PrefixGroup]) -> list[int]:
    """All rows, group by group."""
    return [row for group in groups for row in group.rows]
