"""Rows that begin with the same tokens: sampler and learner compute what such a group shares once."""

from __future__ import annotations

import itertools
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


@dataclass(frozen=True, slots=True)
class _Piece:
    """Neighbours among sorted prompts: the first and the last, how they are grouped, how many tokens that spares."""

    first: int
    last: int
    groups: list[PrefixGroup]
    spared: int


def common_prefixes(prompts: Sequence[NDArray[np.integer]], copies: int, least: int) -> list[PrefixGroup]:
    """Group prompts that begin with the same `least` tokens or more, whatever follows; each has `copies` rows.

    Neighbours among sorted prompts join, those with most in common first, where one group spares as many tokens as
    the groups they are in. Prompts with nobody to share with are in no group.
    """
    order = sorted(range(len(prompts)), key=lambda i: prompts[i].tobytes())
    alone = [PrefixGroup(len(prompts[i]), [i]) for i in order]
    pieces = [
        _Piece(k, k, [group], (copies - 1) * group.length if group.length >= least else 0)
        for k, group in enumerate(alone)
    ]
    common = [common_length(prompts[i], prompts[k]) for i, k in itertools.pairwise(order)]
    for k in sorted(range(len(common)), key=lambda k: -common[k]):
        if common[k] < least:
            break
        left, right = pieces[k], pieces[k + 1]
        first, last = left.first, right.last
        groups, spared = left.groups + right.groups, left.spared + right.spared
        together = (copies * (last + 1 - first) - 1) * common[k]
        if together >= spared:
            groups, spared = [PrefixGroup(common[k], order[first : last + 1])], together
        # Only the ends of a piece are ever asked.
        pieces[first] = pieces[last] = _Piece(first, last, groups, spared)
    groups, k = [], 0
    while k < len(order):
        groups += pieces[k].groups
        k = pieces[k].last + 1
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
