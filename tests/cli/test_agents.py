"""Text games on the command line: importing, scoring any answers, playing."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from oneiro.tasks.textgame.data import record
from oneiro.tasks.textgame.predictor import TextGamePredictor, TextGamePredictorConfig
from oneiro.tasks.textgame.recipe import TextGameDataSettings
from oneiro.worlds.textgame.crawl import CrawlConfig, crawl, own_rules
from oneiro.worlds.textgame.dataset import open_dataset, splits
from oneiro.worlds.textgame.state import Transition
from tests.commands import mistake, oneiro

TASK = TextGamePredictor(TextGamePredictorConfig(rules="none"))


@pytest.fixture(scope="module")
def games(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small folder of our own games: test rows of one game, and a held-out game."""
    out = tmp_path_factory.mktemp("games")
    few = CrawlConfig(levels=1, max_steps=3)
    record(TextGameDataSettings(games=("make-ice",), held_out=("mix-paint",), crawl=few, test_levels=1), out)
    return out


def scores(games: Path, out: Path, *arguments: object) -> dict[str, Any]:
    done = oneiro("eval", "text-game", "--data", games, *arguments, "--json", out)
    assert done.returncode == 0, done.stderr
    assert "Text games: exact next states" in done.stdout
    found: dict[str, Any] = json.loads(out.read_text())
    return found


def accuracy(row: dict[str, Any], subset: str = "all") -> list[float]:
    return [row[subset][part]["accuracy"] for part in ("unchanged", "changed", "overall")]


def test_the_perfect_answer_and_no_change_are_scored_on_every_row(games: Path, tmp_path: Path) -> None:
    rows = open_dataset(games, "test")
    still = 100 * sum(not case.changed for case in rows) / len(rows)
    found = scores(games, tmp_path / "scores.json", "--answers", "no-change", "--scorer", "strict")["rows"]
    assert list(found) == ["lookup", "perfect", "no change"]
    assert accuracy(found["perfect"]) == accuracy(found["perfect"], "held_out") == [100, 100, 100]
    assert accuracy(found["no change"]) == [100, 0, pytest.approx(still)]
    assert found["no change"]["all"]["overall"]["cases"] == len(rows)


def test_the_published_scorer_cannot_credit_a_created_object(games: Path, tmp_path: Path) -> None:
    rows = list(open_dataset(games, "test"))
    assert any(case.creates() for case in rows)
    found = scores(games, tmp_path / "scores.json", "--answers", "perfect", "--scorer", "official")
    right = 100 * sum(not case.creates() for case in rows if case.changed) / sum(case.changed for case in rows)
    assert accuracy(found["rows"]["perfect"])[1] == pytest.approx(right)
    assert found["tables"][0]["rows"][2]["answers"] == "perfect"


def test_any_systems_raw_outputs_are_scored_from_a_file(games: Path, tmp_path: Path) -> None:
    rows, file = list(open_dataset(games, "test")), tmp_path / "mine.jsonl"
    changed = [case for case in rows if case.changed]
    texts = {case.id: f"It seems so.\n```json\n{TASK.perfect(case)}\n```" for case in changed[:3]}
    texts |= {changed[3].id: "I do not know.", changed[4].id: TASK.no_change(changed[4])}
    file.write_text("".join(json.dumps({"id": key, "answer": text}) + "\n" for key, text in texts.items()))
    mine = scores(games, tmp_path / "scores.json", "--answers", file)["rows"]["mine.jsonl"]
    assert mine["all"]["overall"]["accuracy"] == pytest.approx(100 * 3 / len(rows))
    assert mine["errors"]["missing answers"] == len(rows) - 5
    assert mine["errors"]["with"]["missed change"] == 1 and mine["errors"]["with"]["malformed"] == len(rows) - 4


def test_answers_in_the_full_form_are_read_where_the_settings_say_so(games: Path, tmp_path: Path) -> None:
    task, file = TextGamePredictor(TextGamePredictorConfig(rules="none", output="full")), tmp_path / "full.jsonl"
    lines = [json.dumps({"id": case.id, "answer": task.perfect(case)}) for case in open_dataset(games, "test")]
    file.write_text("\n".join(lines) + "\n")
    found = scores(games, tmp_path / "scores.json", "--answers", file, "--settings", "output=full")
    assert accuracy(found["rows"]["full.jsonl"]) == [100, 100, 100]


def test_mistakes_are_one_line(games: Path, tmp_path: Path) -> None:
    evaluate = ("eval", "text-game", "--data", games)
    assert "either --model DIR_OR_NAME or --answers" in mistake(*evaluate)
    assert "did you mean 'official'" in mistake(*evaluate, "--answers", "perfect", "--scorer", "offical")
    assert "does not exist" in mistake(*evaluate, "--answers", tmp_path / "nowhere.jsonl")
    assert "no split 'tset'; did you mean 'test'" in mistake(*evaluate, "--answers", "perfect", "--split", "tset")
    assert "unknown key 'rule'" in mistake(*evaluate, "--answers", "perfect", "--settings", "rule=none")
    assert "holds no text-game data" in mistake("eval", "text-game", "--data", tmp_path, "--answers", "perfect")
    assert "no model folder at" in mistake(*evaluate, "--model", tmp_path / "nowhere")
    assert "lacks test.jsonl.gz" in mistake("data", "bytesized32", "--from", tmp_path, "--out", tmp_path / "out")
    assert "did you mean 'make-ice'" in mistake("play", "textgame", "make-ise")
    assert "did you mean 'perfect'" in mistake(*evaluate, "--answers", "perfct")
    whole = ("--scorer", "official", "--settings", "output=full")
    assert "exist only for transition=full" in mistake(*evaluate, "--answers", "perfect", *whole)
    assert "give --scorer strict or" in mistake(*evaluate, "--answers", "perfect", "--settings", "scorer=official")


def test_answers_in_another_form_than_asked_for_are_recognised(games: Path, tmp_path: Path) -> None:
    task, file = TextGamePredictor(TextGamePredictorConfig(rules="none", output="edits")), tmp_path / "edits.jsonl"
    lines = [json.dumps({"id": case.id, "answer": task.perfect(case)}) for case in open_dataset(games, "test")]
    file.write_text("\n".join(lines) + "\n")
    said = mistake("eval", "text-game", "--data", games, "--answers", file)
    assert "in the form output=difference; give --settings output=edits" in said
    found = scores(games, tmp_path / "s.json", "--answers", file, "--settings", "output=edits", "--scorer", "official")
    assert accuracy(found["rows"]["edits.jsonl"]) == accuracy(found["rows"]["perfect"])


def test_mistakes_with_parquet_are_one_line(games: Path, tmp_path: Path) -> None:
    (tmp_path / "bad.parquet").write_bytes(b"PAR1 nonsense")
    load, save = ("data", "bytesized32", "--out", tmp_path / "out", "--from"), ("data", "text-game", "--from", games)
    assert "not in the public text-game layout" in mistake(*load, tmp_path / "bad.parquet")
    assert "does not exist" in mistake(*load, tmp_path / "nowhere.parquet")
    assert "--known goes with parquet files" in mistake(*load, games, "--known", games)
    assert "holds no text-game data" in mistake(*load, tmp_path / "bad.parquet", "--known", tmp_path)
    assert "does not end in .parquet" in mistake(*save, "--out", tmp_path / "rows")
    assert "did you mean 'test'" in mistake(*save, "--out", tmp_path / "rows.parquet", "--split", "tset")
    assert "unknown key 'rule'" in mistake(*save, "--out", tmp_path / "rows.parquet", "--settings", "rule=none")


def test_transitions_go_to_parquet_and_come_back(games: Path, tmp_path: Path) -> None:
    file, back = tmp_path / "rows.parquet", tmp_path / "back"
    done = oneiro("data", "text-game", "--from", games, "--split", "test", "--out", file, "--settings", "layout=repr")
    assert done.returncode == 0, done.stderr
    done = oneiro("data", "bytesized32", "--from", file, "--known", games, "--out", back)
    assert done.returncode == 0, done.stderr
    there = open_dataset(back, "test")
    assert list(there) == list(open_dataset(games, "test")) and there.rules == own_rules()


def test_a_game_is_played_by_its_name() -> None:
    done = oneiro("play", "textgame", "brew-tea", text="h\nwait\nq\n")
    assert done.returncode == 0, done.stderr
    assert "Your task is to brew a cup of tea." in done.stdout and "the oracle: " in done.stdout
    assert oneiro("play", "textgame:brew-tea", text="h\nwait\nq\n").stdout == done.stdout


def test_transitions_in_json_lines_are_imported(tmp_path: Path) -> None:
    source, out = tmp_path / "source", tmp_path / "out"
    source.mkdir()
    rows = list(crawl(["mix-paint"], "train", CrawlConfig(levels=1, max_steps=2)))
    write(source / "train_changed.jsonl.gz", (raw(case, "train") for case in rows if case.changed))
    write(source / "train_unchanged.jsonl.gz", (raw(case, "train") for case in rows if not case.changed))
    write(source / "test.jsonl.gz", (raw(case, "test") for case in rows[:5]))
    write(source / "examples.jsonl.gz", (raw(case, "example") for case in rows[:1]))
    write(source / "rules.json.gz", [own_rules()])
    done = oneiro("data", "bytesized32", "--from", source, "--out", out, "--json", tmp_path / "counts.json")
    assert done.returncode == 0, done.stderr
    assert splits(out) == {"example": 1, "test": 5, "train": len(rows)}
    counts = {row["split"]: row["rows"] for row in json.loads((tmp_path / "counts.json").read_text())["rows"]}
    assert counts == splits(out)
    assert [case.action for case in open_dataset(out, "test")] == [case.action for case in rows[:5]]


def raw(case: Transition, split: str) -> dict[str, Any]:
    """A transition in the form of the public files."""
    return {
        "id": case.id,
        "split": split,
        "game": case.game,
        "task": case.task,
        "state": case.state,
        "score": case.score,
        "action": case.action,
        "uuid_base": case.uuid_base,
        "state_after_action": case.after_action,
        "state_after_tick": case.after,
        "score_after": case.score_after,
    }


def write(path: Path, rows: Iterable[dict[str, Any]]) -> None:
    with gzip.open(path, "wt", encoding="utf-8") as handle:
        handle.writelines(json.dumps(row) + "\n" for row in rows)
