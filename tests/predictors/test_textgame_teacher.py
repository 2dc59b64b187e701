"""SFT examples from the truth and from a teacher whose wrong answers are thrown away."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from oneiro.predictors.base import Messages
from oneiro.predictors.textgame import TextGame, TextGameConfig
from oneiro.predictors.textgame_teacher import taught_examples, true_examples
from oneiro.sampling.server import Reply
from oneiro.worlds.textgame.crawl import CrawlConfig, crawl, own_rules
from oneiro.worlds.textgame.state import Transition

task = TextGame(TextGameConfig(reasoning=True), rules=own_rules())


@pytest.fixture(scope="module")
def cases() -> list[Transition]:
    return list(crawl(["mix-paint"], "train", CrawlConfig(levels=1, still=2)))[:10]


class Teacher:
    """Knows some answers, gives a wrong one first, and sometimes fails."""

    def __init__(self, known: list[Transition]) -> None:
        self.known = {task.prompt(case)[0]["content"]: task.perfect(case) for case in known}
        self.asked: list[str] = []
        self.down = False

    def chat(self, conversations: Sequence[Messages], n: int) -> list[list[Reply]]:
        groups = []
        for (message,) in conversations:
            self.asked.append(message["content"])
            right = self.known.get(message["content"], "I do not know")
            group = [Reply(text="The final answer is: {}"), Reply(text=right, reasoning="Hm. {")][:n]
            groups.append([Reply(error="down")] * n if self.down else group)
        return groups


def test_true_examples_are_right_and_carry_their_reasons(cases: list[Transition]) -> None:
    for case, example in zip(cases, true_examples(task, cases), strict=True):
        assert example.messages == task.prompt(case) and example.game == "mix-paint"
        assert task.judge(example.answer, case).exact
        assert example.answer.startswith("The command is: ")


def test_only_right_answers_become_examples(cases: list[Transition], tmp_path: Path) -> None:
    teacher = Teacher(cases[:4])
    found = list(taught_examples(task, cases, teacher.chat, tmp_path, samples=2, batch=3))
    assert [example.id for example in found] == [case.id for case in cases[:4]]
    assert found[0].answer == f"<think>\nHm. {{\n</think>\n\n{task.perfect(cases[0])}"
    assert len(teacher.asked) == 10


def test_nothing_is_asked_twice(cases: list[Transition], tmp_path: Path) -> None:
    teacher = Teacher(cases)
    first = list(taught_examples(task, cases[:5], teacher.chat, tmp_path, samples=2))
    again = list(taught_examples(task, cases, teacher.chat, tmp_path, samples=2))
    assert again[:5] == first and len(again) == 10
    assert len(teacher.asked) == len(set(teacher.asked)) == 10


def test_questions_without_any_reply_are_asked_again_next_time(cases: list[Transition], tmp_path: Path) -> None:
    teacher = Teacher(cases)
    teacher.down = True
    assert list(taught_examples(task, cases, teacher.chat, tmp_path, samples=2)) == []
    assert list(tmp_path.iterdir()) == []
    teacher.down = False
    assert len(list(taught_examples(task, cases, teacher.chat, tmp_path, samples=2))) == 10


def test_overlong_answers_count_as_wrong(cases: list[Transition], tmp_path: Path) -> None:
    teacher = Teacher(cases)
    assert list(taught_examples(task, cases, teacher.chat, tmp_path, samples=2, max_characters=20)) == []
