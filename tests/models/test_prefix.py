"""Rows grouped by what they share."""

from __future__ import annotations

import numpy as np

from oneiro.models.prefix import PrefixGroup, part, prefix_groups, rows_of


def test_rows_are_grouped_by_equal_prefixes_in_order() -> None:
    groups = prefix_groups([np.array(p, np.int32) for p in ([1, 2], [3], [1, 2], [], [3], [1])])
    assert groups == [PrefixGroup(2, [0, 2]), PrefixGroup(1, [1, 4]), PrefixGroup(0, [3]), PrefixGroup(1, [5])]
    assert rows_of(groups) == [0, 2, 1, 4, 3, 5] and part(PrefixGroup(7, [4, 5, 6, 8]), 1, 3) == PrefixGroup(7, [5, 6])
