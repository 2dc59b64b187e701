"""Math questions: numbers compared as numbers, rewards halved by retries, files of both kinds."""

from __future__ import annotations

import gzip
import json
import re
from fractions import Fraction
from pathlib import Path

import pytest

from oneiro.runtime.errors import OneiroError
from oneiro.worlds import make
from oneiro.worlds.puzzle.math_qa import last_number, number, questions_in, right

GSM8K = Path(__file__).parents[4] / "shared" / "data" / "gsm8k"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1,000", 1000),
        ("-3.50", Fraction(-7, 2)),
        ("$18", 18),
        ("3/4", Fraction(3, 4)),
        (r"\frac{3}{4}", Fraction(3, 4)),
        ("50%", 50),
        (" 7 ", 7),
        (".5", Fraction(1, 2)),
        ("1 1/2", Fraction(3, 2)),
        ("-2 3/4", Fraction(-11, 4)),
        ("$1,000 1/4", Fraction(4001, 4)),
        (r"2\frac{1}{2}", Fraction(5, 2)),
        (r"-3 \dfrac{1}{3}", Fraction(-10, 3)),
        ("- 7", -7),
    ],
)
def test_numbers_are_read_in_every_spelling(text: str, value: Fraction) -> None:
    assert number(text) == value


@pytest.mark.parametrize(
    "text", ["", "x", "1e5", "1/0", "1 1/0", "1 3/2", "1 2", "15 - 7", "12 apples", "1,00", "٣", "--5", "9" * 30]
)
def test_other_texts_are_no_number(text: str) -> None:
    assert number(text) is None


@pytest.mark.parametrize(
    ("reply", "label", "equal"),
    [
        ("18.0", "18", True),
        ("$1,200", "1200", True),
        ("So the total is 3 + 4 = 7.", "7", True),
        ("The answer is: 0.5", "1/2", True),
        (r"It is \boxed{\frac{1}{2}}", "0.5", True),
        ("The answer is 7, not 8. The answer is: 8", "7", False),
        ("7 or 8", "7", False),
        ("x + 1", "X+1", True),
        ("x + 2", "x + 1", False),
        ("", "7", False),
    ],
)
def test_replies_are_compared_by_what_they_mean(reply: str, label: str, equal: bool) -> None:
    assert right(reply, label) is equal


def test_the_last_number_counts_where_the_answer_is_not_one() -> None:
    assert last_number("5 apples and 6 pears") == 6
    assert last_number("none") is None


@pytest.mark.parametrize(
    ("reply", "value"),
    [
        ("15 - 7", 7),
        ("15 -7", 7),
        ("(3 + 4) - 7", 7),
        ("10-15", 15),
        ("50% - 7", 7),
        ("x-7", 7),
        ("apples - 7", 7),
        ("it is -7", -7),
        ("x = -7 apples", -7),
        ("x = - 7 apples", -7),
        ("(-7)", -7),
        ("between -9 and −7 degrees", -7),
        ("so 15 - 7 = 8 apples", 8),
        ("15 - 7 = -8 apples", -8),
        ("about 2 1/2 cups", Fraction(5, 2)),
        ("12 15/3 apples", 5),
        (r"It is \boxed{1\frac{1}{4}}", Fraction(5, 4)),
    ],
)
def test_a_minus_between_numbers_is_no_sign_and_mixed_numbers_are_one_number(reply: str, value: Fraction) -> None:
    assert last_number(reply) == value


def test_each_wrong_try_halves_the_reward() -> None:
    world = make("math", max_actions=4)
    world.reset(seed=0)
    answer = world.oracle()
    shown, reward, done, truncated, info = world.step("-1")
    assert (reward, done, truncated, info["valid"]) == (0.0, False, False, True) and "Think again" in shown
    assert world.step("no idea")[4]["valid"] is False
    _, reward, done, _, info = world.step(f"The answer is {answer}.")
    assert (reward, done, info["success"]) == (0.25, True, True)
    world.reset(seed=0)
    assert [world.step("-1")[3] for _ in range(4)] == [False, False, False, True]


def test_made_up_questions_are_answered_by_their_own_numbers() -> None:
    world = make("math")
    for seed in range(50):
        shown, _ = world.reset(seed=seed)
        numbers = [int(word) for word in re.findall("[0-9]+", shown)]
        a, b, c = (*numbers, 0, 0)[:3]
        possible = {a + b, a - b, a * b, a * b + c, a + b + c, a // b if b else 0}
        assert int(world.oracle()) in possible


def test_both_kinds_of_file_are_read_and_rephrasings_stay_together(tmp_path: Path) -> None:
    gsm = tmp_path / "gsm.jsonl.gz"
    gsm.write_bytes(gzip.compress(json.dumps({"question": "How many?", "answer": "We add.\n#### 1,234"}).encode()))
    assert [(q.text, q.label) for q in questions_in(gsm)] == [("How many?", "1,234")]
    rows = [
        {"query": f"Q{n} in other words {k}", "response": f"So.\nThe answer is: {n}", "original_question": f"Q{n}"}
        for n in range(40)
        for k in range(3)
    ]
    meta = tmp_path / "meta.json"
    meta.write_text(json.dumps([*rows, {"query": "no answer", "response": "well"}]))
    world = make("math", path=str(meta))
    origins = {
        split: {world.reset(seed=s, options={"split": split}) and world.question.origin for s in range(120)}
        for split in ("train", "eval")
    }
    assert origins["train"] and origins["eval"] and not origins["train"] & origins["eval"]
    empty = tmp_path / "empty.jsonl"
    empty.write_text('{"text": "nothing"}\n')
    with pytest.raises(OneiroError, match="holds no question"):
        make("math", path=str(empty)).reset(seed=0)
    (tmp_path / "cut.jsonl.gz").write_bytes(gsm.read_bytes()[:20])
    with pytest.raises(OneiroError, match="cut short"):
        make("math", path=str(tmp_path / "cut.jsonl.gz")).reset(seed=0)


def test_a_held_out_file_is_the_evaluation(tmp_path: Path) -> None:
    for name in ("train", "test"):
        rows = [{"question": f"{name} {n}?", "answer": f"#### {n}"} for n in range(30)]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    world = make("math", path=str(tmp_path / "train.jsonl"), eval_path=str(tmp_path / "test.jsonl"))
    assert world.reset(seed=1, options={"split": "eval"})[0].startswith("test")
    assert world.reset(seed=1, options={"split": "train"})[0].startswith("train")


@pytest.mark.skipif(not GSM8K.exists(), reason="the GSM8K files are not beside the project")
def test_every_real_question_has_a_number_for_an_answer() -> None:
    for name, count in (("train", 7473), ("test", 1319)):
        questions = questions_in(GSM8K / f"{name}.jsonl.gz")
        assert len(questions) == count
        assert all(right(f"#### {question.label}", question.label) for question in questions)
        assert all(number(question.label) is not None for question in questions)
