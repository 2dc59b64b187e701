"""2048: merges by hand, endings, luck."""

from __future__ import annotations

from math import log2

import numpy as np
import pytest

from oneiro.runtime.errors import OneiroError
from oneiro.worlds import make
from oneiro.worlds.base import in_split
from oneiro.worlds.baselines import oracle_success, random_success
from oneiro.worlds.puzzle.game_2048 import WORDS, Tiles, best_way, merge_line, possible, read, render_spaced, slide


@pytest.mark.parametrize(
    ("line", "after", "points"),
    [
        ((2, 2, 2, 2), (4, 4, 0, 0), 8),
        ((2, 0, 2, 4), (4, 4, 0, 0), 4),
        ((4, 2, 2, 0), (4, 4, 0, 0), 4),
        ((2, 2, 4, 0), (4, 4, 0, 0), 4),
        ((0, 0, 0, 2), (2, 0, 0, 0), 0),
        ((2, 4, 2, 4), (2, 4, 2, 4), 0),
        ((8, 8, 8, 0), (16, 8, 0, 0), 16),
    ],
)
def test_a_line_merges_each_tile_once(line: tuple, after: tuple, points: int) -> None:
    assert merge_line(line) == (after, points)


def test_every_direction_is_a_rotation_of_the_others() -> None:
    rng = np.random.default_rng(0)
    for _ in range(50):
        board = rng.choice([0, 2, 4, 8], (4, 4))
        expected = np.array(slide(Tiles(4, tuple(board.ravel().tolist())), 3)[0].cells).reshape(4, 4)
        # Up is Left seen after a quarter turn, and so on.
        for way, turns in ((0, 1), (1, 2), (2, 3)):
            turned = np.rot90(board, -turns)
            found = np.array(slide(Tiles(4, tuple(turned.ravel().tolist())), way)[0].cells).reshape(4, 4)
            assert (np.rot90(found, turns) == expected).all()


def test_a_merge_pays_the_logarithm_of_its_points() -> None:
    world = make("2048")
    world.reset(seed=0)
    world.tiles = Tiles(4, (2, 2, 4, 4, *(0,) * 12))
    _, reward, _, _, info = world.step("left")
    assert reward == pytest.approx(0.1 * log2(13)) and info["effective"] and world.score == 12
    assert sum(tile > 0 for tile in world.tiles.cells) == 3
    world.tiles = Tiles(4, (2, 4, 8, 16, *(0,) * 12))
    before = world.tiles
    _, reward, _, _, info = world.step("Left")
    assert reward == 0.0 and not info["effective"] and world.tiles == before


def test_the_game_ends_when_stuck_and_success_is_the_target_tile() -> None:
    stuck = tuple(2 if (cell // 4 + cell) % 2 else 4 for cell in range(16))
    assert possible(Tiles(4, stuck)) == []
    world = make("2048", target=64)
    world.reset(seed=0)
    # Only the first two cells can merge; the new tile fills the hole.
    world.tiles = Tiles(4, (32, 32, 8, 2, 16, 2, 4, 8, 2, 4, 8, 16, 4, 8, 16, 32))
    _, _, done, _, info = world.step("Left")
    assert max(world.tiles.cells) == 64 and info["success"]
    assert done == (possible(world.tiles) == [])


def test_new_tiles_are_twos_nine_times_in_ten() -> None:
    world = make("2048", max_actions=10**6)
    world.reset(seed=0)
    new = []
    for _ in range(2000):
        world.tiles, world.over = Tiles(4, (0,) * 15 + (2,)), False
        world.step("Left")
        new.append(sum(world.tiles.cells) - 2)
    assert set(new) == {2, 4} and np.mean(np.array(new) == 2) == pytest.approx(0.9, abs=0.027)


def test_boards_read_back_from_their_text() -> None:
    tiles = Tiles(4, (2, 0, 0, 16, 0, 1024, 0, 0, *(0,) * 8))
    assert render_spaced(tiles) == "2 . . 16\n. 1024 . .\n. . . .\n. . . ."
    assert read(render_spaced(tiles), 4) == tiles
    assert read("2 . . 16\n. 1024 . .", 4) is None and read("2 . . -1\n" * 3 + ". . . .", 4) is None


def test_a_target_that_no_tile_can_be_is_refused() -> None:
    with pytest.raises(OneiroError, match="power of two"):
        make("2048", target=100)


def test_the_player_makes_what_chance_seldom_makes() -> None:
    chance, player = random_success("2048:3x3", 6, 2), oracle_success("2048:3x3", 6)
    assert chance.mean() < 0.4 and player.mean() > 0.9


def test_the_player_moves_at_once_and_alike_on_any_board() -> None:
    rng = np.random.default_rng(0)
    for size in (2, 3, 4, 8):
        for density in (0.1, 0.6, 1.0):
            cells = np.where(rng.random(size * size) < density, 2 ** rng.integers(1, 10, size * size), 0)
            tiles = Tiles(size, tuple(cells.tolist()))
            way = best_way(tiles, 0.9)
            assert (way is None) == (not possible(tiles)) and way == best_way(tiles, 0.9)
            assert way is None or slide(tiles, way)[0] != tiles


def test_the_oracle_has_no_advice_when_nothing_moves_or_the_game_is_over() -> None:
    world = make("2048", max_actions=1)
    world.reset(seed=0)
    assert world.oracle() in WORDS
    world.step("Left")
    assert world.over and world.oracle() is None
    world.reset(seed=0)
    world.tiles = Tiles(4, tuple(2 if (cell // 4 + cell) % 2 else 4 for cell in range(16)))
    assert world.oracle() is None


def test_the_ceiling_is_stated_where_the_sum_of_the_tiles_settles_it() -> None:
    world = make("2048")
    world.reset(seed=0)
    # A tile is the sum of what went into it; 702 tiles that are fours one time in ten add up to about 1544.
    assert world.ceiling() == 0.0
    for actions, expected in ((400, 0.0), (1500, None)):
        world = make("2048", max_actions=actions)
        world.reset(seed=0)
        assert world.ceiling() == expected
    world.tiles = Tiles(4, (2048, *(0,) * 15))
    assert world.ceiling() == 1.0
    sure = make("2048", two_probability=0.0, max_actions=600)  # 600 fours: enough, if they can be merged
    sure.reset(seed=0)
    assert sure.ceiling() is None


def least(tiles: Tiles) -> bytes:
    """The board's least rotation or mirror."""
    board = np.array(tiles.cells).reshape(tiles.size, tiles.size)
    return min(np.rot90(side, turns).tobytes() for side in (board, np.fliplr(board)) for turns in range(4))


@pytest.mark.parametrize(("size", "starts"), [(2, 1), (3, 3), (4, 7)])
def test_no_training_game_passes_an_evaluation_start_not_even_turned(size: int, starts: int) -> None:
    """There are 2, 8 and 21 starts with two 2s up to symmetry; every third is held out."""
    world, rng = make("2048", size=size, max_actions=6), np.random.default_rng(0)
    held_out = {}
    for seed in range(200):
        _, info = world.reset(seed=seed, options={"split": "eval"})
        held_out[info["canonical"]] = least(world.tiles)
        assert sorted(world.tiles.cells)[-3:] == [0, 2, 2]
    assert len(held_out) == len(set(held_out.values())) == starts
    passed, begun = set(), set()
    for seed in range(150):
        _, info = world.reset(seed=seed, options={"split": "train"})
        begun.add(least(world.tiles))
        while not world.over:
            passed.add(least(world.tiles))
            world.step(world.random_action(rng))
    assert not passed & set(held_out.values())
    assert len(begun) > starts and len(passed) > len(begun)


@pytest.mark.parametrize("probability", [0.0, 0.001, 1.0])
def test_both_splits_have_starts_whatever_tiles_appear(probability: float) -> None:
    world = make("2048:3x3", two_probability=probability)
    forms = {
        split: {world.reset(seed=seed, options={"split": split})[1]["canonical"] for seed in range(100)}
        for split in ("train", "eval")
    }
    assert forms["train"] and len(forms["eval"]) == 3 and not forms["train"] & forms["eval"]


def test_starts_have_one_canonical_name_exactly_if_they_are_equal_up_to_symmetry() -> None:
    world = make("2048:3x3", two_probability=0.5)
    found = {}
    for seed in range(1500):
        _, info = world.reset(seed=seed)
        found.setdefault(info["canonical"], set()).add(least(world.tiles))
        assert in_split(info["key"], "train") or 4 not in world.tiles.cells  # what play can meet is not held out
    # Eight with two 2s, eight with two 4s, twelve with a 2 and a 4.
    assert len(found) == 28 and all(len(forms) == 1 for forms in found.values())
    assert len(set.union(*found.values())) == 28
