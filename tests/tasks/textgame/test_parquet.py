"""The public parquet layout, written and read."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from oneiro.runtime.errors import OneiroError
from oneiro.tasks.textgame.parquet import import_parquet, read_parquet, write_parquet
from oneiro.tasks.textgame.predictor import TextGamePredictor, TextGamePredictorConfig
from oneiro.worlds.textgame.crawl import CrawlConfig, crawl, own_rules
from oneiro.worlds.textgame.dataset import open_dataset, write_dataset
from oneiro.worlds.textgame.state import Transition

task = TextGamePredictor(TextGamePredictorConfig(layout="repr", reasoning=True), rules=own_rules())


@pytest.fixture(scope="module")
def cases() -> list[Transition]:
    return list(crawl(["brew-tea"], "train", CrawlConfig(levels=1, still=1, max_steps=5)))


def test_what_is_written_reads_back(cases: list[Transition], tmp_path: Path) -> None:
    assert write_parquet(tmp_path / "a.parquet", cases, task) == len(cases)
    assert list(read_parquet(tmp_path / "a.parquet")) == cases


def test_the_columns_are_those_of_the_public_files(cases: list[Transition], tmp_path: Path) -> None:
    write_parquet(tmp_path / "a.parquet", cases, task)
    row = pq.read_table(tmp_path / "a.parquet").to_pylist()[3]
    case = cases[3]
    assert set(row) == {"data_source", "prompt", "ability", "reward_model", "extra_info"}
    assert row["data_source"] == "llm_simulator"
    assert row["prompt"] == task.prompt(case)
    assert row["reward_model"]["style"] == "rule"
    assert json.loads(row["reward_model"]["ground_truth"]) == {"game_state": [*case.after, case.score_after]}
    assert json.loads(row["extra_info"]["data_state"]) == {"game_state": [*case.state, case.score]}
    assert (row["extra_info"]["data_action"], row["extra_info"]["index"]) == (case.action, 3)


def test_an_sft_file_has_the_answer_as_its_ground_truth(cases: list[Transition], tmp_path: Path) -> None:
    write_parquet(tmp_path / "a.parquet", cases, task, answers=True)
    for row, case in zip(pq.read_table(tmp_path / "a.parquet").to_pylist(), cases, strict=True):
        assert task.judge(row["reward_model"]["ground_truth"], case).exact


def public(cases: list[Transition], path: Path, split: str = "train") -> Path:
    """A file as others publish it: only the public entries."""
    rows = [
        {
            "data_source": "llm_simulator",
            "prompt": [
                {"role": "user", "content": f"Example: UUID base: 3\nCurrent UUID base is {case.uuid_base}\nGo."}
            ],
            "ability": "x",
            "reward_model": {
                "style": "rule",
                "ground_truth": json.dumps({"game_state": [*case.after, case.score_after]}),
            },
            "extra_info": {
                "split": split,
                "index": number,
                "data_state": json.dumps({"game_state": [*case.state, case.score]}),
                "data_action": case.action,
            },
        }
        for number, case in enumerate(cases)
    ]
    pq.write_table(pa.Table.from_pylist(rows), path)
    return path


def test_a_public_file_gives_states_commands_and_the_base_from_its_prompt(
    cases: list[Transition], tmp_path: Path
) -> None:
    found = list(read_parquet(public(cases, tmp_path / "p.parquet")))
    assert [(f.state, f.action, f.after, f.score_after, f.uuid_base) for f in found] == [
        (c.state, c.action, c.after, c.score_after, c.uuid_base) for c in cases
    ]
    assert {f.game for f in found} == {"unknown"} and found[2].id == "p/2"


def test_a_public_file_takes_game_and_middle_state_from_known_data(cases: list[Transition], tmp_path: Path) -> None:
    write_dataset(tmp_path / "known", "known", cases, {})
    known = open_dataset(tmp_path / "known", "train")
    assert list(read_parquet(public(cases, tmp_path / "p.parquet"), known)) == cases


def test_rows_on_both_sides_of_the_split_are_found_where_both_are_imported(
    cases: list[Transition], tmp_path: Path
) -> None:
    source = tmp_path / "source"
    source.mkdir()
    public(cases[:4], source / "train.parquet")
    public(cases[3:6], source / "test.parquet", "test")
    import_parquet(source, tmp_path / "out")
    assert [row.duplicate for row in open_dataset(tmp_path / "out", "train")] == [False, False, False, True]
    assert [row.duplicate for row in open_dataset(tmp_path / "out", "test")] == [True, False, False]
    import_parquet(source / "test.parquet", tmp_path / "alone")
    assert [row.duplicate for row in open_dataset(tmp_path / "alone", "test")] == [None] * 3  # nobody can know


def test_rows_of_one_question_take_its_ids_in_turn(cases: list[Transition], tmp_path: Path) -> None:
    twins = [cases[0], replace(cases[0], id="twin/1"), cases[1]]
    write_dataset(tmp_path / "known", "known", twins, {})
    known = open_dataset(tmp_path / "known", "train")
    assert [row.id for row in read_parquet(public(twins, tmp_path / "p.parquet"), known)] == [row.id for row in twins]


def test_a_folder_of_files_becomes_a_dataset_and_files_of_answers_are_left_out(
    cases: list[Transition], tmp_path: Path
) -> None:
    source, half = tmp_path / "source", len(cases) // 2
    source.mkdir()
    write_parquet(source / "a.parquet", cases[:half], task)
    write_parquet(source / "b.parquet", [replace(case, split="test") for case in cases[half:]], task)
    write_parquet(source / "sft.parquet", cases, task, answers=True)
    counts, skipped = import_parquet(source, tmp_path / "out")
    assert counts == {"train": half, "test": len(cases) - half} and skipped == ["sft.parquet"]
    assert list(open_dataset(tmp_path / "out", "train")) == cases[:half]
    assert list(open_dataset(tmp_path / "out", "test")) == [replace(case, split="test") for case in cases[half:]]
    with pytest.raises(OneiroError, match="answers to learn from"):
        import_parquet(source / "sft.parquet", tmp_path / "no")
    with pytest.raises(OneiroError, match="no parquet files"):
        import_parquet(tmp_path / "out", tmp_path / "no")


def test_a_folder_imported_before_tells_the_games_and_rules(cases: list[Transition], tmp_path: Path) -> None:
    write_dataset(tmp_path / "known", "known", cases, own_rules(), example=cases[:1])
    public(cases, tmp_path / "p.parquet")
    import_parquet(tmp_path / "p.parquet", tmp_path / "out", tmp_path / "known")
    found = open_dataset(tmp_path / "out", "train")
    assert list(found) == cases and found.rules == own_rules()


@pytest.mark.parametrize("split", ["../train", "states", "", "a/b"])
def test_a_split_that_is_no_name_for_a_file_is_refused(cases: list[Transition], tmp_path: Path, split: str) -> None:
    write_parquet(tmp_path / "p.parquet", [replace(cases[0], split=split)], task)
    with pytest.raises(OneiroError, match="no name for a file"):
        import_parquet(tmp_path / "p.parquet", tmp_path / "out")


def test_states_that_are_none_are_named(cases: list[Transition], tmp_path: Path) -> None:
    for number, broken in enumerate(([{"uuid": 1}], ["x"], [{"uuid": "1", "properties": {}, "contains": []}])):
        path = public([replace(cases[0], state=broken)], tmp_path / f"{number}.parquet")
        with pytest.raises(OneiroError, match="not in the public text-game layout"):
            list(read_parquet(path))


def test_only_whole_steps_have_a_ground_truth(cases: list[Transition], tmp_path: Path) -> None:
    tick = TextGamePredictor(TextGamePredictorConfig(rules="none", transition="tick"))
    with pytest.raises(OneiroError, match="transition=full"):
        write_parquet(tmp_path / "a.parquet", cases, tick)
    assert write_parquet(tmp_path / "a.parquet", cases, tick, answers=True) == len(cases)


def test_files_of_another_layout_are_named(tmp_path: Path) -> None:
    with pytest.raises(OneiroError, match="does not exist"):
        list(read_parquet(tmp_path / "no.parquet"))
    pq.write_table(pa.table({"a": [1]}), tmp_path / "a.parquet")
    with pytest.raises(OneiroError, match="not in the public text-game layout"):
        list(read_parquet(tmp_path / "a.parquet"))
    (tmp_path / "b.parquet").write_bytes(b"PAR1 nonsense")
    with pytest.raises(OneiroError, match="not in the public text-game layout"):
        list(read_parquet(tmp_path / "b.parquet"))
