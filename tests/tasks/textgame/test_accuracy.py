"""Evaluation tables, counted by hand on a handful of rows."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from oneiro.report.stats import wilson
from oneiro.runtime.errors import OneiroError
from oneiro.tasks.textgame.accuracy import (
    FORMS,
    PUBLISHED,
    SUBSETS,
    answers_named,
    compare,
    evaluate_answers,
    form_of,
    published_rows,
    read_answers,
    start_states,
)
from oneiro.tasks.textgame.evaluation import PARTS, accuracy_tables, subset_tables
from oneiro.tasks.textgame.parse import Output
from oneiro.tasks.textgame.predictor import TextGamePredictor, TextGamePredictorConfig
from oneiro.worlds.textgame.crawl import CrawlConfig, crawl
from oneiro.worlds.textgame.state import Kind, Transition

task = TextGamePredictor(TextGamePredictorConfig(rules="none"))


@pytest.fixture(scope="module")
def data() -> list[Transition]:
    """Four changed and two unchanged rows of one game, one changed and three unchanged rows of another."""
    rows = list(crawl(["brew-tea", "mix-paint"], "train", CrawlConfig(levels=1, still=6)))
    pick = {
        (game, changed): [row for row in rows if row.game == game and row.changed == changed]
        for game in ("brew-tea", "mix-paint")
        for changed in (True, False)
    }
    chosen = pick["brew-tea", True][:4] + pick["brew-tea", False][:2]
    chosen += pick["mix-paint", True][:1] + pick["mix-paint", False][:3]
    return [replace(row, id=f"row/{number}", duplicate=number in (0, 4)) for number, row in enumerate(chosen)]


@pytest.fixture(scope="module")
def answers(data: list[Transition]) -> dict[str, str]:
    """Right on rows 0 and 1 (changed), 4 (not), 6 (changed), 7 and 8 (not); the rest wrong in four ways."""
    found = {row.id: task.perfect(row) for row in data}
    found["row/2"] = task.no_change(data[2])
    found["row/3"] = "I do not know"
    found["row/5"] = json.dumps({"modified": [], "removed": [0], "score": {}})
    del found["row/9"]
    return found


def test_accuracies_are_counted_apart_for_changed_and_unchanged_steps(
    data: list[Transition], answers: dict[str, str]
) -> None:
    table = evaluate_answers(data, answers, held_out=["mix-paint"])
    figures = {
        name: [
            (table[name][part]["accuracy"], table[name][part]["cases"]) for part in ("unchanged", "changed", "overall")
        ]
        for name in ("all", "clean", "held_out")
    }
    assert figures["all"] == [(60.0, 5), (60.0, 5), (60.0, 10)]
    assert figures["clean"] == [(50.0, 4), (50.0, 4), (50.0, 8)]
    assert figures["held_out"][1] == (100.0, 1)
    assert figures["held_out"][0] == (pytest.approx(200 / 3), 3)


def test_games_are_listed_and_the_macro_average_counts_each_once(
    data: list[Transition], answers: dict[str, str]
) -> None:
    table = evaluate_answers(data, answers)
    assert table["games"]["brew-tea"]["changed"]["accuracy"] == 50.0
    assert table["games"]["mix-paint"]["changed"]["accuracy"] == 100.0
    assert table["macro"]["changed"] == {"accuracy": 75.0, "low": 50.0, "high": 100.0, "games": 2}
    assert table["macro"]["overall"]["accuracy"] == pytest.approx((50 + 75) / 2)


def test_errors_are_counted_by_kind(data: list[Transition], answers: dict[str, str]) -> None:
    errors = evaluate_answers(data, answers)["errors"]
    assert errors["wrong"] == 4 and errors["missing answers"] == 1 and errors["answers to nothing"] == 0
    assert errors["with"] == {"missed change": 1, "invented change": 1, "wrong value": 0, "malformed": 2}
    assert errors["only"] == errors["with"]
    assert errors["flaws"] == {"empty": 2}


def test_the_published_scorer_counts_wrong_answers_without_kinds(
    data: list[Transition], answers: dict[str, str]
) -> None:
    found = compare(data, {"mine": answers}, "official")
    assert set(found["rows"]["mine"]["errors"]) == {"wrong", "missing answers", "answers to nothing"}
    (*_, errors) = accuracy_tables(found)
    assert errors.columns == ["answers", "wrong", "missing"] and errors.title == "Wrong answers"
    assert [cell.value for cell in errors.rows[2]] == ["mine", 4, 1]


def test_what_is_not_known_to_be_clean_is_not_counted_as_clean(data: list[Transition]) -> None:
    found = evaluate_answers([replace(row, duplicate=None) for row in data], task.perfect)
    assert found["clean"]["overall"]["cases"] == 0 and found["clean"]["overall"]["accuracy"] is None


def test_the_result_is_plain_json(data: list[Transition], answers: dict[str, str]) -> None:
    table = evaluate_answers(data, answers, "official")
    assert json.loads(json.dumps(table)) == table and table["scorer"] == "official"


def test_the_trivial_and_the_perfect_rows_stand_beside_every_other(
    data: list[Transition], answers: dict[str, str]
) -> None:
    found = compare(data, {"mine": answers}, published=True)
    assert list(found["rows"]) == ["no change", "perfect", "mine"]
    assert found["rows"]["no change"]["all"]["changed"]["accuracy"] == 0.0
    assert found["rows"]["no change"]["all"]["unchanged"]["accuracy"] == 100.0
    assert found["rows"]["perfect"]["all"]["overall"]["accuracy"] == 100.0
    assert len(found["published"]) == len(PUBLISHED)


def ticking(data: list[Transition]) -> list[Transition]:
    """The first changed row as if the command alone, time alone, the score alone or nothing had moved it."""
    case, won = data[0], {**data[0].score, "score": 7}
    still = replace(case, after_action=case.state, after=case.state, score_after=case.score)
    moved = case.after if case.after != case.state else data[1].after
    return [
        replace(still, id="command", after_action=moved, after=moved),
        replace(still, id="time", after=moved),
        replace(still, id="score", score_after=won),
        replace(still, id="nothing"),
    ]


@pytest.mark.parametrize(
    ("kind", "changed", "title"),
    [
        ("full", ["command", "time", "score"], "Text games: exact next states"),
        ("action", ["command"], "Text games: exact states after the command alone"),
        ("tick", ["time"], "Text games: exact states after time alone"),
        ("score", ["score"], "Text games: exact scores"),
    ],
)
def test_changed_is_what_the_asked_part_of_a_step_changes(
    data: list[Transition], kind: Kind, changed: list[str], title: str
) -> None:
    rows, asks = ticking(data), TextGamePredictor(TextGamePredictorConfig(rules="none", transition=kind))
    assert [row.id for row in rows if asks.changes(row)] == changed
    found = compare(rows, {}, task=asks, published=True)
    assert found["rows"]["no change"]["all"]["changed"]["accuracy"] == 0.0
    assert found["rows"]["no change"]["all"]["unchanged"]["accuracy"] == 100.0
    assert found["rows"]["perfect"]["all"]["changed"]["cases"] == len(changed)
    assert found["rows"]["perfect"]["score_only"]["overall"]["cases"] == (kind in ("full", "score"))
    assert accuracy_tables(found)[0].title == title
    assert bool(found["published"]) == (kind == "full")


def test_the_published_scorer_is_refused_where_it_does_not_exist(data: list[Transition]) -> None:
    whole = TextGamePredictor(TextGamePredictorConfig(rules="none", output="full"))
    with pytest.raises(OneiroError, match="only for transition=full"):
        evaluate_answers(data, whole.perfect, "official", task=whole)
    edits = TextGamePredictor(TextGamePredictorConfig(rules="none", output="edits"))
    assert (
        evaluate_answers(data, edits.perfect, "official", task=edits)["all"]
        == evaluate_answers(data, task.perfect, "official", task=task)["all"]
    )


def test_published_parts_add_up_to_their_whole_as_far_as_they_do() -> None:
    """1,744 unchanged and 1,210 changed rows; the paper's own sums for two of the 7B rows are off by 0.04."""
    for name, unchanged, changed, overall in PUBLISHED:
        assert (1744 * unchanged + 1210 * changed) / 2954 == pytest.approx(overall, abs=0.05), name


def test_intervals_are_over_start_states_and_for_held_out_games_over_games(
    data: list[Transition], answers: dict[str, str]
) -> None:
    """Rows 0 to 5 start in one state of brew-tea, rows 6 to 9 in one of mix-paint: 3 of 6 and 3 of 4 are right.

    Drawn are both (6 of 10), the first alone (50 %) or the second alone (75 %).
    """
    assert start_states(data).tolist() == [0] * 6 + [1] * 4
    found = evaluate_answers(data, answers, held_out=["mix-paint", "brew-tea"])
    for subset in ("all", "held_out"):
        assert found[subset]["overall"] == {"accuracy": 60.0, "low": 50.0, "high": 75.0, "cases": 10, "clusters": 2}
    moved = [replace(row, state=row.state[::-1] if row.id in ("row/1", "row/2") else row.state) for row in data]
    apart = evaluate_answers(moved, answers, held_out=["mix-paint", "brew-tea"])
    assert apart["all"]["overall"]["clusters"] == 3 and apart["held_out"]["overall"]["clusters"] == 2
    nothing = evaluate_answers(data, task.no_change)["all"]["changed"]
    ends = wilson(0, 2)  # none right in either state
    assert (nothing["low"], nothing["high"]) == (0.0, pytest.approx(100 * float(ends.high or 0)))
    alone = evaluate_answers(data, answers, held_out=["mix-paint"])["held_out"]["overall"]
    assert alone == {"accuracy": 75.0, "low": None, "high": None, "cases": 4, "clusters": 1}


def test_the_tables_say_what_their_intervals_are_over(data: list[Transition], answers: dict[str, str]) -> None:
    found = compare(data, {"mine": answers}, held_out=["mix-paint"])
    accuracy, games, _ = accuracy_tables(found)
    clean, held_out = subset_tables(found)
    assert "over 2 start states" in accuracy.note and "over start states" in games.note
    assert "over 2 start states" in clean.note and "one game" in held_out.note
    both = subset_tables(compare(data, {"mine": answers}, held_out=["mix-paint", "brew-tea"]))[1]
    assert "over 2 games" in both.note


def test_rows_that_nobody_knows_to_be_clean_are_counted_and_named(data: list[Transition]) -> None:
    unsure = [replace(row, duplicate=None) if row.id in ("row/1", "row/2", "row/9") else row for row in data]
    found = compare(unsure, {})
    assert found["rows"]["perfect"]["unknown"] == 3
    assert found["rows"]["perfect"]["clean"]["overall"]["cases"] == 5  # of ten, two are duplicates and three unknown
    for table in (accuracy_tables(found)[0], *subset_tables(found)):
        assert "Of 3 rows it is not known" in table.note
    assert "not known" not in accuracy_tables(compare(data, {}))[0].note


def test_both_scorers_are_had_in_one_pass(data: list[Transition], answers: dict[str, str]) -> None:
    found = evaluate_answers(data, answers, both=True, held_out=["mix-paint"])
    apart = {name: evaluate_answers(data, answers, name, held_out=["mix-paint"]) for name in ("strict", "official")}
    assert (found["scorer"], found["other"]["scorer"]) == ("strict", "official")
    for subset in (*SUBSETS, "games", "macro"):
        assert found[subset] == apart["strict"][subset] and found["other"][subset] == apart["official"][subset]
    assert found["errors"] == apart["strict"]["errors"] and "other" not in apart["strict"]
    turned = evaluate_answers(data, answers, "official", both=True)
    assert turned["other"]["all"] == found["all"] and turned["errors"] == apart["official"]["errors"]
    assert json.loads(json.dumps(found)) == found


def test_the_other_scorer_is_left_out_where_it_does_not_exist(data: list[Transition]) -> None:
    for config in ({"output": "full"}, {"transition": "tick"}):
        asks = TextGamePredictor(TextGamePredictorConfig.model_validate({"rules": "none", **config}))
        assert "other" not in evaluate_answers(data, asks.perfect, task=asks, both=True)
        assert accuracy_tables(compare(data, {}, task=asks, both=True))[0].columns == ["answers", *PARTS]


def test_the_tables_show_every_row_with_its_cases(data: list[Transition], answers: dict[str, str]) -> None:
    accuracy, games, errors = accuracy_tables(compare(data, {"mine": answers}))
    assert [row[0].value for row in accuracy.rows] == ["no change", "perfect", "mine"]
    mine = dict(zip(accuracy.columns, accuracy.rows[2], strict=True))
    assert (mine["changed"].value, mine["changed"].n) == (pytest.approx(0.6), 5)
    assert [row[0].value for row in games.rows] == ["brew-tea", "mix-paint", "mean of games"]
    assert dict(zip(errors.columns, errors.rows[2], strict=True))["malformed"].value == 2


def test_published_rows_stand_under_the_scorer_they_were_scored_by(
    data: list[Transition], answers: dict[str, str]
) -> None:
    accuracy = accuracy_tables(compare(data, {"mine": answers}, published=True))[0]
    assert accuracy.columns == ["answers"] + [f"{part} ({name})" for name in ("strict", "official") for part in PARTS]
    assert len(accuracy.rows) == 3 + len(PUBLISHED)
    mine = dict(zip(accuracy.columns, accuracy.rows[2], strict=True))
    assert mine["overall (strict)"].value == pytest.approx(0.6) and mine["overall (official)"].n == 10
    theirs = dict(zip(accuracy.columns, accuracy.rows[3], strict=True))
    assert [theirs[f"{part} (strict)"].value for part in PARTS] == [None] * 3
    assert [theirs[f"{part} (official)"].value for part in PARTS] == pytest.approx([0.1198, 0.0008, 0.0711])
    assert accuracy.note.endswith("Published rows are scored by the official scorer.")
    bare = compare(data, {"mine": answers}) | {"published": published_rows("full")}
    assert accuracy_tables(bare)[0].note.endswith("by the official scorer, ours by the strict one.")


def test_answers_come_from_json_lines(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    path.write_text('{"id": "a/1", "answer": "x"}\n\n{"id": "a/2", "answer": "y", "model": "z"}\n')
    assert read_answers(path) == {"a/1": "x", "a/2": "y"}
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())  # as some editors begin a file
    assert read_answers(path) == {"a/1": "x", "a/2": "y"}


@pytest.mark.parametrize("line", ['{"id": "a", "answer": "b"}\n'.encode("utf-16"), b"\x80\x00", b"[" * 200_000])
def test_what_is_no_text_or_nested_beyond_reason_is_named_by_its_line(tmp_path: Path, line: bytes) -> None:
    path = tmp_path / "answers.jsonl"
    for number, before in ((1, b""), (2, b'{"id": "x", "answer": ""}\n')):
        path.write_bytes(before + line)
        with pytest.raises(OneiroError, match=f"line {number} is not "):
            read_answers(path)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("nonsense\n", "line 1"),
        ('{"id": "a", "answer": "b"}\n{"id": "c"}\n', "line 2"),
        ('{"id": 5, "answer": "b"}\n', "line 1 is not"),
        ("[1]\n", "line 1"),
        ('{"id": "a", "answer": "b"}\n{"id": "a", "answer": "c"}\n', "twice"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "answers.jsonl"
    path.write_text(text)
    with pytest.raises(OneiroError, match=said):
        read_answers(path)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("asked", FORMS)
def test_the_form_of_answers_is_recognised_where_it_is_not_the_asked_one(
    data: list[Transition], form: Output, asked: Output
) -> None:
    told = TextGamePredictor(TextGamePredictorConfig(rules="none", output=form))
    answers = {row.id: told.perfect(row) for row in data}
    task = TextGamePredictor(TextGamePredictorConfig(rules="none", output=asked))
    assert form_of(task, data, answers) == (None if form == asked else form)
    assert form_of(task, data, dict.fromkeys(answers, "I do not know")) is None and form_of(task, data, {}) is None


def test_answers_to_other_rows_are_a_mistake(data: list[Transition]) -> None:
    with pytest.raises(OneiroError, match="same split"):
        evaluate_answers(data, {"other/1": "x"})


def test_answers_are_named_by_a_word_or_a_file(data: list[Transition], tmp_path: Path) -> None:
    for name, expected in (("perfect", 100.0), ("no-change", 0.0)):
        table = evaluate_answers(data, answers_named(task.baselines(), name))
        assert table["all"]["changed"]["accuracy"] == expected
    with pytest.raises(OneiroError, match="does not exist"):
        answers_named(task.baselines(), str(tmp_path / "none.jsonl"))
