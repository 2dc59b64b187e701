"""Rows grouped by what they share."""

from __future__ import annotations

import numpy as np

from oneiro.models.prefix import PrefixGroup, common_length, common_prefixes, part, prefix_groups, rows_of


def test_rows_are_grouped_by_equal_prefixes_in_order() -> None:
    groups = prefix_groups([np.array(p, np.int32) for p in ([1, 2], [3], [1, 2], [], [3], [1])])
    assert groups == [PrefixGroup(2, [0, 2]), PrefixGroup(1, [1, 4]), PrefixGroup(0, [3]), PrefixGroup(1, [5])]
    assert rows_of(groups) == [0, 2, 1, 4, 3, 5] and part(PrefixGroup(7, [4, 5, 6, 8]), 1, 3) == PrefixGroup(7, [5, 6])


def test_prompts_are_grouped_by_what_they_begin_with() -> None:
    def arrays(*prompts: list[int]) -> list[np.ndarray]:
        return [np.array(prompt) for prompt in prompts]

    one, other = arrays([1, 2, 3, 4], [1, 2, 9])
    assert common_length(one, other) == 2 == common_length(other, one)
    assert common_length(one, one) == 4 and common_length(one, one[:3]) == 3 and common_length(one[1:], one) == 0
    prompts = arrays([1, 2, 3, 4], [5, 5], [1, 2, 9], [1, 2, 3, 7, 7], [1], [5, 5])
    # 1 2 3 for two rows spares 3 tokens, 1 2 for three spares 4; 1 for four would spare 3.
    assert common_prefixes(prompts, 1, 1) == [PrefixGroup(2, [0, 3, 2]), PrefixGroup(2, [1, 5])]
    assert common_prefixes(prompts, 1, 3) == [PrefixGroup(3, [0, 3])]
    # One that has less in common with others takes nothing from them, wherever it is sorted.
    assert common_prefixes(arrays([1, 0], [1, 2, 3, 4], [1, 2, 3, 4], [1, 9]), 1, 1) == [PrefixGroup(4, [1, 2])]
    # With two rows each, a prompt shares all of itself.
    assert common_prefixes(prompts[:1], 2, 4) == [PrefixGroup(4, [0])] and common_prefixes(prompts[:1], 2, 5) == []
    assert common_prefixes(prompts[:2], 1, 1) == [] == common_prefixes([], 2, 1)
