"""Folders of transitions, and the import of ByteSized32."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path

import pytest

from oneiro.runtime.errors import OneiroError
from oneiro.worlds.textgame.crawl import CrawlConfig, crawl, own_dataset, own_rules
from oneiro.worlds.textgame.dataset import import_bytesized32, open_dataset, read_transitions, splits, write_dataset
from oneiro.worlds.textgame.state import Transition

DATA = Path(__file__).parents[4] / "shared" / "data" / "bytesized32"
needs_data = pytest.mark.skipif(not DATA.is_dir(), reason="the ByteSized32 transitions are not at hand")
SMALL = CrawlConfig(levels=1, still=1, max_steps=4)


@pytest.fixture(scope="module")
def cases() -> list[Transition]:
    return list(crawl(["mix-paint", "light-bulb"], "train", SMALL))


def test_what_is_written_is_read_back_row_by_row(cases: list[Transition], tmp_path: Path) -> None:
    other = [
        replace(case, split="test", duplicate=flag) for case, flag in zip(cases, (True, None, False), strict=False)
    ]
    counts = write_dataset(tmp_path, "mine", [*cases, *other], own_rules())
    assert counts == splits(tmp_path) == {"test": 3, "train": len(cases)}
    assert list(open_dataset(tmp_path, "train")) == cases
    assert list(open_dataset(tmp_path, "test")) == other
    data = open_dataset(tmp_path, "train")
    assert data[5] == cases[5] and data[2:4] == cases[2:4]
    assert data.rules == own_rules()


def test_each_state_is_stored_once_and_shared(cases: list[Transition], tmp_path: Path) -> None:
    write_dataset(tmp_path, "mine", cases, {})
    data = open_dataset(tmp_path, "train")
    texts = {json.dumps(state) for case in cases for state in (case.state, case.after_action, case.after)}
    assert len(data.states) == len(texts)
    assert data[0].state is data[1].state


def test_the_same_transitions_give_the_same_bytes(cases: list[Transition], tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_dataset(tmp_path / name, "mine", cases, {})
    for path in (tmp_path / "a").iterdir():
        assert path.read_bytes() == (tmp_path / "b" / path.name).read_bytes()


def test_only_keeps_the_games_that_are_named(cases: list[Transition], tmp_path: Path) -> None:
    write_dataset(tmp_path, "mine", cases, {})
    data = open_dataset(tmp_path, "train")
    assert data.games == ["light-bulb", "mix-paint"]
    assert {case.game for case in data.only(["mix-paint"])} == {"mix-paint"}
    with pytest.raises(OneiroError, match="did you mean 'mix-paint'"):
        data.only(["mixpaint"])


def test_missing_and_damaged_folders_are_named_in_one_line(cases: list[Transition], tmp_path: Path) -> None:
    with pytest.raises(OneiroError, match="no text-game data"):
        open_dataset(tmp_path)
    write_dataset(tmp_path, "mine", cases, {})
    with pytest.raises(OneiroError, match="no split 'tst'"):
        open_dataset(tmp_path, "tst")
    whole = (tmp_path / "train.jsonl.gz").read_bytes()
    (tmp_path / "train.jsonl.gz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(OneiroError, match="damaged"):
        open_dataset(tmp_path)
    (tmp_path / "train.jsonl.gz").write_bytes(gzip.compress(b""))
    with pytest.raises(OneiroError, match="0 rows"):
        open_dataset(tmp_path)


def test_what_a_folder_lacks_is_named_when_it_is_opened(cases: list[Transition], tmp_path: Path) -> None:
    write_dataset(tmp_path, "mine", cases, {})
    whole = json.loads((tmp_path / "data.json").read_text())
    for key, value in (("splits", None), ("tasks", []), ("scores", {}), ("name", 5)):
        (tmp_path / "data.json").write_text(json.dumps({**whole, key: value}))
        with pytest.raises(OneiroError, match=f"has no '{key}'; import the data again"):
            splits(tmp_path)
    (tmp_path / "data.json").write_text(json.dumps({**whole, "tasks": {}}))
    with pytest.raises(OneiroError, match="no task for the game 'mix-paint'"):
        open_dataset(tmp_path)
    (tmp_path / "data.json").write_text(json.dumps({**whole, "scores": []}))
    with pytest.raises(OneiroError, match="state or score that is not there"):
        open_dataset(tmp_path)
    (tmp_path / "data.json").write_text(json.dumps(whole))
    with gzip.open(tmp_path / "train.jsonl.gz", "rt") as handle:
        rows = [json.loads(line) for line in handle]
    for odd in (10**6, -1, "x"):
        rows[3][4] = odd  # the number of its state
        with gzip.open(tmp_path / "train.jsonl.gz", "wt") as handle:
            handle.writelines(json.dumps(row) + "\n" for row in rows)
        with pytest.raises(OneiroError, match="is damaged"):
            open_dataset(tmp_path)


def test_a_folder_of_something_else_is_not_overwritten(cases: list[Transition], tmp_path: Path) -> None:
    (tmp_path / "data.json").write_text('{"format": "mine"}')
    with pytest.raises(OneiroError, match="something else"):
        write_dataset(tmp_path, "mine", cases, {})


def test_our_games_give_train_test_and_unseen_games(tmp_path: Path) -> None:
    config = CrawlConfig(levels=1, still=0, max_steps=2, wander=0)
    counts = own_dataset(tmp_path, config, held_out=["make-ice"])
    assert set(counts) == {"train", "test", "unseen"}
    assert open_dataset(tmp_path, "unseen").games == ["make-ice"]
    assert "make-ice" not in open_dataset(tmp_path, "train").games
    assert len(open_dataset(tmp_path, "train").games) == 10
    with pytest.raises(OneiroError, match="no text game"):
        own_dataset(tmp_path, config, held_out=["make-icee"])


def test_recording_is_the_same_every_time(cases: list[Transition]) -> None:
    assert list(crawl(["mix-paint", "light-bulb"], "train", SMALL)) == cases


@needs_data
def test_every_row_s_own_difference_leads_to_its_next_state() -> None:
    from oneiro.worlds.textgame.state import Difference, difference, same_state

    with gzip.open(DATA / "mini.jsonl.gz", "rt") as handle:
        recorded = [json.loads(line)["diff"] for line in handle]
    for case, diff in zip(read_transitions(DATA / "mini.jsonl.gz"), recorded, strict=True):
        assert same_state(Difference(diff["modified"], diff["removed"]).apply(case.state), case.after)
        mine = difference(case.state, case.after)
        assert {thing["uuid"] for thing in mine.modified} == {thing["uuid"] for thing in diff["modified"]}
        assert mine.removed == sorted(diff["removed"])


@needs_data
def test_flags_agree_with_the_recorded_ones() -> None:
    with gzip.open(DATA / "mini.jsonl.gz", "rt") as handle:
        recorded = [json.loads(line) for line in handle]
    for case, row in zip(read_transitions(DATA / "mini.jsonl.gz"), recorded, strict=True):
        flags = (case.changed, case.gold, case.creates(), case.removes(), case.duplicate, case.on_plan)
        names = ("changed", "gold", "adds_object", "removes_object", "cross_split_dup", "is_gold_action")
        assert flags == tuple(row[name] for name in names)
        assert case.observation == row["observation"]


@needs_data
def test_an_import_keeps_every_row(tmp_path: Path) -> None:
    """A small source folder in the real layout: a few rows stand for the large files."""
    source = tmp_path / "source"
    source.mkdir()
    for name in ("test.jsonl.gz", "train_changed.jsonl.gz", "train_unchanged.jsonl.gz", "examples.jsonl.gz"):
        with gzip.open(DATA / name, "rt") as full, gzip.open(source / name, "wt") as part:
            part.writelines(line for line, _ in zip(full, range(20), strict=False))
    (source / "rules.json.gz").write_bytes((DATA / "rules.json.gz").read_bytes())
    counts = import_bytesized32(source, tmp_path / "out")
    assert counts == {"example": 4, "test": 20, "train": 40}
    assert list(open_dataset(tmp_path / "out", "test")) == list(read_transitions(source / "test.jsonl.gz"))
    assert set(open_dataset(tmp_path / "out", "test").rules) == {"human", "llm"}


@pytest.mark.parametrize(
    ("said", "known"), [({}, None), ({"cross_split_dup": None}, None), ({"cross_split_dup": False}, False)]
)
def test_a_row_that_does_not_say_whether_it_is_a_duplicate_is_not_known_to_be_clean(
    tmp_path: Path, said: dict[str, bool | None], known: bool | None
) -> None:
    state = [{"uuid": 1, "name": "cup", "properties": {}, "contains": []}]
    row = {"id": "a", "split": "test", "game": "g", "task": "t", "action": "look", "uuid_base": 2, "score": {}}
    states = dict.fromkeys(("state", "state_after_action", "state_after_tick"), state)
    (tmp_path / "rows.jsonl").write_text(json.dumps({**row, **states, "score_after": {}, **said}))
    (read,) = read_transitions(tmp_path / "rows.jsonl")
    assert read.duplicate is known
    write_dataset(tmp_path / "out", "rows", [read], {})
    assert [kept.duplicate for kept in open_dataset(tmp_path / "out", "test")] == [known]


def test_a_source_that_lacks_files_is_named(tmp_path: Path) -> None:
    with pytest.raises(OneiroError, match=r"lacks test\.jsonl\.gz"):
        import_bytesized32(tmp_path, tmp_path / "out")


def test_a_broken_row_is_named_by_its_number(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text('{"id": 1}\n')
    with pytest.raises(OneiroError, match="after row 0"):
        list(read_transitions(tmp_path / "rows.jsonl"))
