"""The official ByteSized32 test rows: the figures everybody can check, and a hundred thousand mutated answers."""

from __future__ import annotations

import json
import time
from pathlib import Path

import numpy as np
import pytest

from oneiro.runtime.seeds import generator
from oneiro.tasks.textgame.accuracy import evaluate_answers
from oneiro.tasks.textgame.predictor import Scorer, TextGamePredictor, TextGamePredictorConfig
from oneiro.worlds.textgame.dataset import read_transitions
from oneiro.worlds.textgame.state import Kind, Transition

DATA = Path(__file__).parents[4] / "shared" / "data" / "bytesized32"
pytestmark = pytest.mark.skipif(not DATA.is_dir(), reason="the ByteSized32 transitions are not at hand")


@pytest.fixture(scope="module")
def official() -> list[Transition]:
    return list(read_transitions(DATA / "test.jsonl.gz"))


@pytest.mark.parametrize(
    ("scorer", "answers", "expected"),
    [
        ("official", "perfect", (100.0, 95.79, 98.27)),
        ("strict", "no change", (100.0, 0.0, 59.04)),
        pytest.param("strict", "perfect", (100.0, 100.0, 100.0), marks=pytest.mark.thorough),
        pytest.param("official", "no change", (100.0, 0.0, 59.04), marks=pytest.mark.thorough),
    ],
)
def test_every_official_row_scores_as_published(
    official: list[Transition], scorer: Scorer, answers: str, expected: tuple[float, float, float]
) -> None:
    task = TextGamePredictor(TextGamePredictorConfig(rules="none"))
    table = evaluate_answers(official, task.baselines()[answers], scorer)
    found = tuple(round(table["all"][name]["accuracy"], 2) for name in ("unchanged", "changed", "overall"))
    assert found == expected
    cases = tuple(table["all"][name]["cases"] for name in ("unchanged", "changed", "overall"))
    assert cases == (1744, 1210, 2954)
    assert table["clean"]["overall"]["cases"] == 2954 - 629
    assert table["clean"]["changed"]["cases"] == 1210 - 148
    assert table["creates"]["changed"]["cases"] == 51
    assert table["score_only"]["changed"]["cases"] == 74


@pytest.mark.parametrize(
    ("kind", "changed"),
    [
        ("tick", 482),
        ("score", 198),
        pytest.param("full", 1210, marks=pytest.mark.thorough),
        pytest.param("action", 801, marks=pytest.mark.thorough),
    ],
)
def test_rows_count_as_changed_by_the_part_that_is_asked(official: list[Transition], kind: Kind, changed: int) -> None:
    """The counts of the published labels: changed in anything, by the command, by time, in score."""
    task = TextGamePredictor(TextGamePredictorConfig(rules="none", transition=kind))
    table = evaluate_answers(official, task.no_change, task=task)
    assert [table["all"][part]["cases"] for part in ("changed", "unchanged")] == [changed, 2954 - changed]
    assert [table["all"][part]["accuracy"] for part in ("changed", "unchanged")] == [0.0, 100.0]


def test_official_rows_can_be_told_in_edits(official: list[Transition]) -> None:
    task, whole = (
        TextGamePredictor(TextGamePredictorConfig(rules="none", output="edits")),
        TextGamePredictor(TextGamePredictorConfig(rules="none")),
    )
    some = official[::4]
    assert all(task.exact(task.perfect(case), case) for case in some)
    assert all(task.exact(task.no_change(case), case) == (not case.changed) for case in some)
    changed = [case for case in some if case.changed]
    short, long = (sum(len(told.perfect(case)) for case in changed) for told in (task, whole))
    assert long > 3 * short


def test_the_perfect_answer_earns_the_most_and_the_rewards_keep_their_range(official: list[Transition]) -> None:
    for kind, best in (("binary", 1.0), ("shaped", 1.0)):
        task = TextGamePredictor(TextGamePredictorConfig(rules="none", reward=kind))
        assert all(task.reward(task.perfect(case), case).value == best for case in official[::10])
    task = TextGamePredictor(TextGamePredictorConfig(rules="none", reward="task"))
    paid = [(task.reward(task.no_change(case), case).value, case) for case in official]
    assert all(value == pytest.approx(0.3) for value, case in paid if not case.changed)
    lazy = [value for value, case in paid if case.gold and not case.creates() and case.score == case.score_after]
    assert min(lazy) > 0.07 and max(lazy) < 0.1


SCRAPS = ["{", "}", "[", "]", '"', "'", ",", ":", "\\", "True", "None", "NaN", "1e999", "null", '"uuid"', '"modified"']
SCRAPS += ["```", "The final answer is:", "</think>"]


def mutate(text: str, rng: np.random.Generator) -> str:
    """Up to twelve small accidents: deletions, foreign characters, scraps, cuts and copies."""
    for _ in range(int(rng.integers(1, 13))):
        place, accident = int(rng.integers(len(text) + 1)), rng.random()
        if accident < 0.25:
            text = text[:place] + text[place + int(rng.integers(1, 31)) :]
        elif accident < 0.5:
            text = text[:place] + chr(int(rng.integers(0x3000))) + text[place + 1 :]
        elif accident < 0.75:
            text = text[:place] + SCRAPS[int(rng.integers(len(SCRAPS)))] + text[place:]
        elif accident < 0.85:
            text = text[:place]
        else:
            start = int(rng.integers(len(text) + 1))
            text = text[:place] + text[start : start + 200] + text[place:]
    return text


def fuzz(official: list[Transition], count: int) -> float:
    """Reward `count` mutated answers under all rewards and forms; the longest time one took."""
    rng, longest = generator("fuzz", "textgame"), 0.0
    tasks = [
        TextGamePredictor(TextGamePredictorConfig(rules="none", reward="shaped")),
        TextGamePredictor(TextGamePredictorConfig(rules="none", reward="task")),
        TextGamePredictor(TextGamePredictorConfig(rules="none", output="full")),
        TextGamePredictor(TextGamePredictorConfig(rules="none", output="edits")),
        TextGamePredictor(TextGamePredictorConfig(rules="none", transition="score")),
    ]
    for number in range(count):
        case, task = official[int(rng.integers(len(official)))], tasks[number % len(tasks)]
        answer = task.perfect(case)
        if number % 3 == 1:
            answer = repr(json.loads(answer))
        elif number % 3 == 2:
            answer = f"First I think. The final answer is: {answer}"
        text = mutate(answer, rng)
        start = time.process_time()
        value = task.reward(text, case).value
        longest = max(longest, time.process_time() - start)
        low, high = task.reward_range
        assert low <= value <= high
    return longest


def test_mutated_answers_never_raise_and_are_scored_in_time(official: list[Transition]) -> None:
    assert fuzz(official, 1_000) < 2


@pytest.mark.thorough
def test_a_hundred_thousand_mutated_answers_never_raise_and_are_scored_in_time(official: list[Transition]) -> None:
    assert fuzz(official, 100_000) < 2
