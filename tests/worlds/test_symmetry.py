"""Boards up to symmetry: known counts, and every rotation and mirror by numpy's own."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from oneiro.worlds.symmetry import least_image, symmetries


def images(board: NDArray[np.uint8]) -> list[NDArray[np.uint8]]:
    """The eight rotations and mirrors of a board; of one that is not square, four have its shape."""
    return [np.rot90(side, turns) for side in (board, np.fliplr(board)) for turns in range(4)]


def test_a_rectangle_has_four_symmetries() -> None:
    # 0 1 2
    # 3 4 5
    assert symmetries(2, 3).tolist() == [
        [0, 1, 2, 3, 4, 5],
        [3, 4, 5, 0, 1, 2],
        [2, 1, 0, 5, 4, 3],
        [5, 4, 3, 2, 1, 0],
    ]


def test_a_square_has_eight_and_any_two_make_one_of_them() -> None:
    found = {tuple(way) for way in symmetries(3, 3).tolist()}
    assert len(found) == 8
    assert all(tuple(first[cell] for cell in second) in found for first in found for second in found)


@pytest.mark.parametrize(("size", "forms"), [(1, 2), (2, 6), (3, 102), (4, 8548)])
def test_boards_of_two_colours_are_as_many_as_known(size: int, forms: int) -> None:
    # OEIS A054247; without the mirror there would be 2, 6, 140, 16456.
    cells = np.arange(size * size)
    boards = ((np.arange(2**size**2)[:, None] >> cells) & 1).astype(np.uint8).reshape(-1, size, size)
    assert len({least_image(board) for board in boards}) == forms


@settings(deadline=None)
@given(st.data())
def test_a_form_is_the_same_for_all_images(data: st.DataObject) -> None:
    height, width = data.draw(st.integers(1, 5)), data.draw(st.integers(1, 5))
    drawn = data.draw(st.lists(st.integers(0, 3), min_size=2 * height * width, max_size=2 * height * width))
    ground, things = np.array(drawn, np.uint8).reshape(2, height, width)
    form = least_image(ground, things)
    assert form[:1] == least_image(ground)  # what stands on the ground changes nothing about it
    for turned_ground, turned_things in zip(images(ground), images(things), strict=True):
        if turned_ground.shape == ground.shape:
            assert least_image(turned_ground, turned_things) == form


def test_things_turn_with_their_ground() -> None:
    """A corner is marked: a thing beside it is not one across from it, though each layer alone looks the same."""
    ground, beside, across = np.zeros((3, 2, 2), np.uint8)
    ground[0, 0] = beside[0, 1] = across[1, 1] = 1
    assert least_image(beside) == least_image(across)
    assert least_image(ground, beside) != least_image(ground, across)
    assert least_image(ground, beside) == least_image(ground, beside.T)
    assert least_image(ground, across) == (bytes([0, 0, 0, 1]), bytes([1, 0, 0, 0]))
