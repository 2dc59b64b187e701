"""Levels up to symmetry: none in both splits, and seeds whose levels differ."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from oneiro.worlds import make
from oneiro.worlds.base import NEITHER, World, canonical_key, in_split, level_key
from oneiro.worlds.baselines import ceiling, level_optima, random_success
from oneiro.worlds.levels import MAX_REPEATS, distinct_seeds, least_image, symmetries

SYMMETRIC = ("frozen-lake", "sokoban", "sokoban:two-boxes", "sudoku", "sudoku:hard", "2048", "2048:3x3")


def drawn(name: str, split: str | None, seeds: range) -> list[dict[str, Any]]:
    world = make(name)
    return [world.reset(seed=seed, options={"split": split})[1] for seed in seeds]


@pytest.mark.parametrize("name", SYMMETRIC)
def test_splits_share_no_level_up_to_symmetry(name: str) -> None:
    train, held_out = drawn(name, "train", range(150)), drawn(name, "eval", range(60))
    assert not {info["canonical"] for info in train} & {info["canonical"] for info in held_out}
    for infos, split in ((train, "train"), (held_out, "eval")):
        assert all(in_split(info["key"], split) and in_split(info["canonical"], split) for info in infos)
        # One key is one level, so it has one form.
        assert len({(info["key"], info["canonical"]) for info in infos}) == len({info["key"] for info in infos})


def test_levels_with_one_split_key_share_a_split_and_one_may_be_in_neither() -> None:
    keys = {level_key(str(number), "room") for number in range(50)}
    assert len(keys) == 50 and len({key[-1] for key in keys}) == 1
    neither = level_key("room")[:-1] + NEITHER
    assert in_split(neither, None) and not in_split(neither, "train") and not in_split(neither, "eval")


def test_distinct_seeds_are_the_first_of_their_levels() -> None:
    found = distinct_seeds(lambda: make("sokoban"), "eval", 60)
    forms = [info["canonical"] for info in drawn("sokoban", "eval", range(found[-1] + 1))]
    assert found == [seed for seed, form in enumerate(forms) if form not in forms[:seed]]
    assert len(found) == 60 < found[-1] + 1
    assert found == distinct_seeds(lambda: make("sokoban"), "eval", 60)
    assert found[:20] == distinct_seeds(lambda: make("sokoban"), "eval", 20)
    later = distinct_seeds(lambda: make("sokoban"), "eval", 5, first_seed=1000)
    assert later[0] == 1000 and len(set(later)) == 5


def test_a_world_with_few_levels_gives_all_it_has() -> None:
    # On 2x2 the goal is in a corner. No hole: start beside or across. One hole beside the goal: the start is beside or
    # across. One across: beside. A hole beside and one across: beside. Two beside: no way. Six levels on four maps.
    assert len(distinct_seeds(lambda: make("frozen-lake", size=2), None, 100)) == 6
    # Two 2s on 3x3 up to symmetry: two corners (2), corner and side (2), corner and middle, two sides (2), side and
    # middle: eight, of which every third is held out.
    assert len(distinct_seeds(lambda: make("2048:3x3"), "eval", 100)) == 3


class Same(World):
    """Has a single level, under a key for every seed."""

    name = "same"
    resets = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        self.begin(seed, options)
        Same.resets += 1
        return self.render(), {"key": level_key(str(self.seed)), "canonical": "0"}

    def step(self, action: str) -> Any:
        return self.outcome(0.0, effective=False)

    def render(self, view: str | None = None) -> str:
        return "."

    @property
    def instruction(self) -> str:
        return "Wait."


def test_the_search_for_distinct_levels_ends() -> None:
    Same.resets = 0
    assert distinct_seeds(Same, "eval", 2, first_seed=7) == [7]
    assert Same.resets == MAX_REPEATS + 1


def test_a_world_without_symmetries_is_known_by_its_keys() -> None:
    assert canonical_key({"key": "a"}) == "a" and canonical_key({"key": "a", "canonical": "b"}) == "b"
    found = distinct_seeds(lambda: make("cube:two"), "eval", 100)
    assert len(found) == 4  # of 27 cubes two turns away, however they are held


def test_baselines_play_the_seeds_they_are_given() -> None:
    name = "frozen-lake:slippery"
    plain = random_success(name, 12, 2)
    assert (random_success(name, 12, 2, seeds=range(12)) == plain).all()
    assert (random_success(name, 9, 2, seeds=[7, 3, 11]) == plain[[7, 3, 11]]).all()
    assert (random_success(name, 2, 2, seeds=[7, 3, 11]) == plain[[7, 3]]).all()
    assert (ceiling(name, 3, seeds=[7, 3, 11]) == ceiling(name, 12)[[7, 3, 11]]).all()
    assert level_optima(name, 2, seeds=[5, 4]).optimum == level_optima(name, 2, first_seed=4).optimum[::-1]


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
