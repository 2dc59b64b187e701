"""Levels up to symmetry: none in both splits, and seeds whose levels differ."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from oneiro import cli
from oneiro.runtime.errors import OneiroError
from oneiro.worlds import levels, make
from oneiro.worlds.base import NEITHER, World, canonical_key, in_split, level_key
from oneiro.worlds.baselines import ceiling, level_optima, oracle_success, random_success
from oneiro.worlds.grid.vector import make_batch
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


WORLDS = {
    "sokoban": {"view": "spaced"},
    "sokoban:larger": {},
    "frozen-lake": {"size": 5},
    "sudoku": {"clues": 9},
}


@pytest.mark.parametrize("name", WORLDS)
def test_a_pack_plays_the_levels_that_were_drawn(name: str, tmp_path: Path) -> None:
    world, pack = make(name, **WORLDS[name]), tmp_path / "levels.jsonl"
    assert levels.write_pack(world, pack, 12, "eval", first_seed=5) == 12
    rows = [json.loads(line) for line in pack.read_text().splitlines()]
    again = make(name, **WORLDS[name], pack=pack)
    for number, row in enumerate(rows):
        drawn = world.reset(seed=row["seed"], options={"split": "eval"})
        packed = again.reset(seed=number, options={"split": "eval"})
        assert drawn == packed == again.reset(seed=number + 12) and packed[1]["optimum"] == row["optimum"]
    assert oracle_success(name, 12, settings={**WORLDS[name], "pack": pack, "max_actions": 60}).all()
    assert len({row["key"] for row in rows}) == 12
    with pytest.raises(OneiroError, match="has 12 levels, and none in the split 'train'"):
        again.reset(seed=0, options={"split": "train"})


@pytest.mark.parametrize("name", ["sokoban", "frozen-lake", "sudoku"])
def test_a_batch_plays_the_pack_too(name: str, tmp_path: Path) -> None:
    pack = tmp_path / "levels.jsonl"
    levels.write_pack(make(name), pack, 4, None, first_seed=100)
    world = make(name, pack=pack)
    batch = make_batch(name, pack=pack)
    batch.reset(range(6))
    assert batch.render() == [world.reset(seed=seed)[0] for seed in range(6)]


def test_a_small_world_has_only_so_many_levels(tmp_path: Path) -> None:
    pack = tmp_path / "levels.jsonl"
    written = levels.write_pack(make("frozen-lake", size=2), pack, 1000, None)
    assert 12 <= written < 100 and len(pack.read_text().splitlines()) == written


ROOM = "######\n#___##\n#_X_##\n#_O_##\n#P__##\n######"


@pytest.mark.parametrize(
    ("name", "row", "said"),
    [
        ("sokoban", {"text": ROOM}, "level 1 lacks 'optimum'"),
        ("sokoban", {"text": "nonsense", "optimum": 3}, "level 1 shows no room"),
        ("sokoban", {"text": ROOM, "optimum": 4}, "no shortest solution of 4 moves"),
        ("sokoban", {"text": ROOM.replace("#P", "_P"), "optimum": 5}, "not closed by walls"),
        ("sokoban:larger", {"text": ROOM, "optimum": 3}, "set height=6 width=6 boxes=1"),
        ("frozen-lake", {"text": "P_G\n___\n___", "optimum": 2}, "set size=3"),
        ("frozen-lake", {"text": "PO_G\nO___\n____\n____", "optimum": 3}, "no shortest path of 3 moves"),
        ("sudoku", {"text": make("sudoku").reset(seed=0)[0], "optimum": 7}, "no 4x4 board with 7 empty cells"),
    ],
)
def test_what_is_no_level_is_named(name: str, row: dict[str, object], said: str, tmp_path: Path) -> None:
    pack = tmp_path / "levels.jsonl"
    pack.write_text(json.dumps(row))
    with pytest.raises(OneiroError, match=said):
        make(name, pack=pack).reset(seed=0)


def test_a_level_of_ones_own_can_be_played(tmp_path: Path) -> None:
    pack = tmp_path / "mine.jsonl"
    pack.write_text(json.dumps({"text": ROOM, "optimum": 5}))
    world = make("sokoban", pack=pack)
    assert world.reset(seed=3)[1]["optimum"] == 5
    for word in ("Up", "Up", "Up", "Right", "Down"):
        assert not world.over and world.oracle() == word
        world.step(word)
    assert world.over and world.room.solved  # type: ignore[attr-defined]


def test_packs_are_written_from_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "levels.jsonl"
    assert cli.main(["data", "levels", "sudoku:hard", "--levels", "3", "--split", "train", "--out", str(out)]) == 0
    assert "3 levels of sudoku:hard" in capsys.readouterr().out and len(out.read_text().splitlines()) == 3
    assert cli.main(["data", "levels", "bandit", "--out", str(out)]) == 2
    assert "cannot be packed" in capsys.readouterr().err
    assert cli.main(["data", "levels", "sokoban:grid-vocab", "--out", str(out)]) == 2
    assert "leave glyphs out" in capsys.readouterr().err
