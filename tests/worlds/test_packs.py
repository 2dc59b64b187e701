"""Level packs: what is written is played again, and what is no level is named."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from oneiro import cli
from oneiro.runtime.errors import OneiroError
from oneiro.worlds import make, packs
from oneiro.worlds.baselines import oracle_success
from oneiro.worlds.grid.vector import make_batch

WORLDS = {
    "sokoban": {"view": "spaced"},
    "sokoban:larger": {},
    "frozen-lake": {"size": 5},
    "sudoku": {"clues": 9},
}


@pytest.mark.parametrize("name", WORLDS)
def test_a_pack_plays_the_levels_that_were_drawn(name: str, tmp_path: Path) -> None:
    world, pack = make(name, **WORLDS[name]), tmp_path / "levels.jsonl"
    assert packs.write(world, pack, 12, "eval", first_seed=5) == 12
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
    packs.write(make(name), pack, 4, None, first_seed=100)
    world = make(name, pack=pack)
    batch = make_batch(name, pack=pack)
    batch.reset(range(6))
    assert batch.render() == [world.reset(seed=seed)[0] for seed in range(6)]


def test_a_small_world_has_only_so_many_levels(tmp_path: Path) -> None:
    pack = tmp_path / "levels.jsonl"
    written = packs.write(make("frozen-lake", size=2), pack, 1000, None)
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
