"""`oneiro score`: anyone's predictions beside no change and lookups. Numbers worked by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from oneiro.cli import main
from oneiro.runtime.errors import OneiroError
from oneiro.tasks import scorer
from oneiro.tasks.scorer import difference, facts, transplant
from oneiro.tasks.video import scorer as video


def lines(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def rows_of(table: Any) -> dict[str, dict[str, Any]]:
    return {row["predictions"]: row for row in table.data()["rows"]}


def value(cell: Any) -> Any:
    return cell["value"] if isinstance(cell, dict) else cell


STEPS = [
    # The door opens, and the model says so.
    {"episode": "a", "state": "door closed\nlamp off", "action": "open door", "next": "door open\nlamp off",
     "prediction": "door open\nlamp off"},
    # It is right about the lamp and invents a cat: of 3 claims 2 are true, of 2 true ones it has both.
    {"episode": "b", "state": "door open\nlamp off", "action": "light lamp", "next": "door open\nlamp on",
     "prediction": "door open\nlamp on\ncat"},
    # Nothing happens, and the model says so.
    {"episode": "c", "state": "door open\nlamp on", "action": "sing", "next": "door open\nlamp on",
     "prediction": "door open\nlamp on"},
]  # fmt: skip
TRAIN = [
    {"state": "door closed\nlamp on", "action": "open door", "next": "door open\nlamp on"},
    {"state": "door open\nlamp off", "action": "light lamp", "next": "door open\nlamp on"},
]


def test_predictions_stand_beside_no_change_and_two_lookups(tmp_path: Path) -> None:
    pairs, train = lines(tmp_path / "pairs.jsonl", STEPS), lines(tmp_path / "train.jsonl", TRAIN)
    changed, every, clean = scorer.score("text", pairs, train)
    found = rows_of(changed)
    assert list(found) == ["no change", "lookup: its next state", "lookup: its change", "prediction"]
    mine = found["prediction"]
    assert [value(mine[name]) for name in ("exact", "precision", "recall")] == pytest.approx([1 / 2, 5 / 6, 1])
    assert value(mine["f1"]) == pytest.approx((1 + 0.8) / 2)
    assert value(found["no change"]["f1"]) == 0 and value(found["lookup: its change"]["exact"]) == 1
    # The training step's whole next state has a lamp that is on: its 1 claim too many costs the first step.
    assert value(found["lookup: its next state"]["f1"]) == pytest.approx((2 * 2 / 4 * 1 / (2 / 4 + 1) + 1) / 2)
    assert found["lookup: its change"]["over floor"] == "best"
    assert value(mine["over floor"]) == pytest.approx(0.9 - 1)
    assert value(rows_of(every)["no change"]["exact"]) == pytest.approx(1 / 3)
    # The second question is in train, letter for letter.
    assert clean.title.endswith("not in train") and value(rows_of(clean)["prediction"]["exact"]) == 1.0


def test_a_step_that_stands_twice_counts_once_and_steps_of_one_state_belong_together(tmp_path: Path) -> None:
    other = {**STEPS[0], "action": "kick door", "prediction": "x"}
    rows = [{key: row[key] for key in row if key != "episode"} for row in (STEPS[0], STEPS[0], other)]
    table = scorer.score("text", lines(tmp_path / "pairs.jsonl", rows))[0]
    exact = rows_of(table)["prediction"]["exact"]
    assert exact == {"value": 0.5, "low": None, "high": None, "n": 2}, "two steps, and one start state: no interval"


def test_several_models_are_rows_and_what_cannot_be_read_scores_nothing(tmp_path: Path) -> None:
    state, after = (
        {"things": [{"uuid": 1, "open": False}, {"uuid": 2}]},
        {"things": [{"uuid": 2}, {"uuid": 1, "open": True}]},
    )
    rows = [
        {"episode": n, "state": state, "action": "open", "next": after,
         "predictions": {"as JSON": after, "as text": json.dumps(after), "prose": "The door is open."}}
        for n in range(2)
    ]  # fmt: skip
    rows[1]["state"] = {**state, "n": 1}
    rows[1]["predictions"]["as JSON"] = rows[1]["next"] = {**after, "n": 1}
    found = rows_of(scorer.score("text", lines(tmp_path / "pairs.jsonl", rows))[0])
    assert value(found["as JSON"]["exact"]) == 1 and value(found["as text"]["exact"]) == 0.5
    assert value(found["prose"]["f1"]) == 0
    assert facts("text", [[[0]]], like=[]) == ("/0/0/0 = 0",)


def test_ids_and_indents_of_pages_count_for_nothing() -> None:
    assert facts("page", "[1] main\n\t[12] link 'Home'\n") == ("main", "link 'Home'")
    assert facts("page", {"a": 1}) is None
    assert difference(("a", "a", "b"), ("a", "c")) == {("-", "a"): 1, ("-", "b"): 1, ("+", "c"): 1}


def test_a_change_is_made_to_another_state_where_its_old_lines_are_found() -> None:
    assert transplant(("x", "off", "y"), ("x", "on", "y"), ("a", "off", "b")) == ("a", "on", "b")
    assert transplant(("x", "y"), ("x", "new", "y"), ("a", "x", "b")) == ("a", "x", "new", "b")
    assert transplant(("off", "y"), ("on", "y"), ("a", "b")) == ("a", "b")
    # Of two equal lines the nearer one changes.
    assert transplant(("p", "q", "off"), ("p", "q", "on"), ("off", "p", "off")) == ("off", "p", "on")


def test_frames_stand_beside_the_last_one_and_the_nearest_segment(tmp_path: Path) -> None:
    def frames(*values: int) -> np.ndarray:
        return np.stack([np.full((12, 12, 3), value, np.uint8) for value in values])

    for name, values in {
        "true": (0, 0, 51, 51),
        "mine": (51, 102),
        "near": (0, 0, 51, 102),
        "far": (255, 255, 0),
    }.items():
        np.save(tmp_path / f"{name}.npy", frames(*values))
    pairs = lines(
        tmp_path / "pairs.jsonl",
        [{"episode": "a", "frames": "true.npy", "given": 2, "prediction": "mine.npy", "actions": [[0.7]]}],
    )
    train = lines(
        tmp_path / "train.jsonl",
        [
            {"episode": "b", "frames": "far.npy", "given": 2, "actions": [[1.0]]},
            {"episode": "c", "frames": "near.npy", "given": 2, "actions": [[0.5]]},
        ],
    )
    # Frames and actions both count in their spread over train: the far one is 2 + 1.2 away, the near one 0 + 0.8.
    found = rows_of(video.score(pairs, train)[0])
    assert value(found["copy of the last frame"]["mae"]) == pytest.approx(0.2)
    assert value(found["lookup: the nearest segment"]["mae"]) == pytest.approx(0.1)
    assert value(found["prediction"]["mae"]) == pytest.approx(0.1)
    assert value(found["prediction"]["over floor"]) == pytest.approx(0)
    np.save(tmp_path / "mine.npy", frames(1))
    with pytest.raises(OneiroError, match=r"line 1: prediction is \[1, 12, 12, 3\], the future \[2, 12, 12, 3\]"):
        video.score(pairs)
    np.save(tmp_path / "mine.npy", np.array([{}], object), allow_pickle=True)
    with pytest.raises(OneiroError, match=r"cannot read .*mine.npy"):
        video.score(pairs)


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("", "is empty"),
        ("{", "line 1 is not JSON"),
        ("[" * 100_000, "line 1 is not JSON"),
        ("3", "line 1 is not an object"),
        ('{"state": "a", "next": "b"}', "line 1 has no 'action'"),
        ('{"state": "a", "action": "b", "next": "c"}', "line 1 has neither 'prediction' nor 'predictions'"),
        ('{"state": "a", "action": 1, "next": "c", "prediction": "d"}', "'action' is not a text"),
    ],
)
def test_a_wrong_file_is_one_line(text: str, wrong: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "pairs.jsonl").write_text(text)
    assert main(["score", "text", "--pairs", str(tmp_path / "pairs.jsonl")]) == 2
    error = capsys.readouterr().err
    assert wrong in error and error.count("\n") == 2, "the warning about lookups, and the mistake"


def test_the_command_writes_its_tables(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pairs, out = lines(tmp_path / "pairs.jsonl", STEPS), tmp_path / "scores.json"
    assert (
        main(["score", "page", "--pairs", str(pairs), "--train", str(lines(tmp_path / "t", TRAIN)), "--json", str(out)])
        == 0
    )
    assert len(json.loads(out.read_text())["tables"]) == 3
    assert "no change" in capsys.readouterr().out


def segment(folder: Path, actions: list[list[float]], *values: int, side: int = 12) -> video.ScoredSegment:
    """Frames of one value each; the first is given."""
    path = folder / f"{len(list(folder.iterdir()))}.npy"
    np.save(path, np.stack([np.full((side, side, 3), value, np.uint8) for value in values]))
    return video.ScoredSegment("a", "line 1", path, 1, np.array(actions or np.zeros((0, 0)), float), {})


@pytest.mark.parametrize(
    ("pixel", "actions", "nearest"),
    [
        # In spreads of train, A is 5 |p - 0.2| + |a - 1| + |b - 10| / 10 away,
        # and B 5 |p - 0.6| + |a - 2| + |b - 20| / 10.
        (102, [[1.3, 10.0]], "A"),  # 1 + 0.3, 1 + 1.7
        (102, [[0.5, 10.0]], "A"),  # 1 + 0.5, 1 + 2.5
        (102, [[1.9, 14.0]], "B"),  # 1 + 1.3, 1 + 0.7
        (102, [[1.5, 15.02]], "B"),  # 1 + 1.002, 1 + 0.998
        (102, [[1.5, 14.98]], "A"),
        (128, [[1.0, 10.0]], "A"),  # 1.51 + 0, 0.49 + 2
        (153, [[1.3, 10.0]], "B"),  # 2 + 0.3, 0 + 1.7
        (115, [[1.0, 10.0], [1.0, 10.0]], "B"),  # 1.25, 0.75: actions of another length are not compared
    ],
)
def test_the_nearest_segment_is_that_of_frame_and_actions(
    pixel: int, actions: list[list[float]], nearest: str, tmp_path: Path
) -> None:
    lookup = video.FrameLookup([segment(tmp_path, [[1, 10]], 51, 10), segment(tmp_path, [[2, 20]], 153, 20, 30)])
    asked = segment(tmp_path, actions, pixel, 7, 7, 7)
    # One that is shorter than what is asked for stands still at its end.
    expected = {"A": [10, 10, 10], "B": [20, 30, 30]}[nearest]
    assert lookup(asked, *asked.true())[:, 0, 0, 0].tolist() == expected


def test_segments_without_actions_are_compared_by_their_frames_and_other_sizes_not_at_all(tmp_path: Path) -> None:
    lookup = video.FrameLookup([segment(tmp_path, [], 0, 10), segment(tmp_path, [], 102, 20)])
    asked, larger = segment(tmp_path, [], 102, 7), segment(tmp_path, [], 102, 7, side=16)
    assert lookup(asked, *asked.true())[:, 0, 0, 0].tolist() == [20]
    with pytest.raises(OneiroError, match="line 1: frames are"):
        lookup(larger, *larger.true())
    with pytest.raises(OneiroError, match="actions of train have 1 and 2 numbers"):
        video.FrameLookup([segment(tmp_path, [[0.0]], 0, 10), segment(tmp_path, [[0.0, 1.0]], 0, 10)])


@pytest.mark.parametrize("shape", [(1, 4, 12, 3), (1, 12, 4, 3)])
def test_frames_that_are_too_small_in_either_direction_are_one_line(shape: tuple[int, ...], tmp_path: Path) -> None:
    np.save(tmp_path / "small.npy", np.zeros(shape, np.uint8))
    with pytest.raises(OneiroError, match="SSIM needs"):
        video.read_frames(tmp_path / "small.npy", "line 1")
