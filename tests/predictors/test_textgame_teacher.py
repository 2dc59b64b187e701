"""SFT examples from the truth and from a teacher whose wrong answers are thrown away."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from oneiro.errors import OneiroError
from oneiro.predictors.base import Messages
from oneiro.predictors.textgame import TextGame, TextGameConfig
from oneiro.predictors.textgame_teacher import taught_examples, true_examples
from oneiro.sampling import server as server_module
from oneiro.sampling.server import Reply
from oneiro.worlds.textgame.crawl import CrawlConfig, crawl, own_rules
from oneiro.worlds.textgame.state import Transition
from tests.sampling.test_server import Host, choice, send

task = TextGame(TextGameConfig(reasoning=True), rules=own_rules())


@pytest.fixture(scope="module")
def cases() -> list[Transition]:
    return list(crawl(["mix-paint"], "train", CrawlConfig(levels=1, still=2)))[:10]


class Teacher:
    """Knows some answers, and gives a wrong one first."""

    def __init__(self, known: list[Transition]) -> None:
        self.known = {task.prompt(case)[0]["content"]: task.perfect(case) for case in known}
        self.asked: list[str] = []

    def chat(self, conversations: Sequence[Messages], n: int) -> list[list[Reply]]:
        groups = []
        for (message,) in conversations:
            self.asked.append(message["content"])
            right = self.known.get(message["content"], "I do not know")
            group = [Reply(text="The final answer is: {}"), Reply(text=right, reasoning="Hm. {")][:n]
            groups.append(group)
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


def test_a_question_that_was_drawn_twice_is_asked_once(cases: list[Transition], tmp_path: Path) -> None:
    teacher = Teacher(cases)
    found = list(taught_examples(task, [*cases[:3], *cases[:3]], teacher.chat, tmp_path, samples=2))
    assert [example.id for example in found] == [case.id for case in cases[:3]] * 2 and len(teacher.asked) == 3


# Against a real server ------------------------------------------------------------------------------------------------


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> Iterator[Host]:
    monkeypatch.setattr(server_module, "FIRST_WAIT_S", 0.01)
    with Host() as host:
        yield host


class Pupil:
    """Answers over HTTP: three wrong tries, then the truth; questions in `broken` get no reply."""

    def __init__(self, cases: list[Transition], broken: tuple[int, ...] = ()) -> None:
        self.known = {task.prompt(case)[0]["content"]: task.perfect(case) for case in cases}
        self.broken = {task.prompt(cases[number])[0]["content"] for number in broken}

    def __call__(self, body: dict[str, Any], handler: BaseHTTPRequestHandler) -> None:
        asked = body["messages"][-1]["content"]
        if asked in self.broken:
            send(handler, {"error": "out of memory"}, status=500)
            return
        tries = ["no", "The final answer is: {}", "", self.known[asked]]
        send(handler, {"choices": [choice(text) for text in tries[: body["n"]]]})


def test_each_question_has_its_tries_and_the_first_right_one_is_kept(
    host: Host, cases: list[Transition], tmp_path: Path
) -> None:
    host.answer, told = Pupil(cases), list[int]()
    found = list(taught_examples(task, cases, host.client().chat, tmp_path, batch=4, advance=told.append))
    assert [example.answer for example in found] == [task.perfect(case) for case in cases]
    assert [body["n"] for body in host.bodies] == [4] * 10 and told == [4, 4, 2]
    few = list(taught_examples(task, cases, host.client().chat, tmp_path / "few", samples=3))
    assert few == []


def test_questions_without_any_reply_are_asked_again_next_time(
    host: Host, cases: list[Transition], tmp_path: Path
) -> None:
    host.answer = Pupil(cases, broken=(2, 5))
    first = list(taught_examples(task, cases, host.client(retries=1).chat, tmp_path))
    assert [example.id for example in first] == [case.id for case in cases if case not in (cases[2], cases[5])]
    host.answer = Pupil(cases)
    asked = len(host.bodies)
    assert len(list(taught_examples(task, cases, host.client().chat, tmp_path))) == 10
    assert len(host.bodies) - asked == 2


def test_a_server_that_cannot_be_reached_is_named_as_the_trouble(
    host: Host, cases: list[Transition], tmp_path: Path
) -> None:
    host.answer = Pupil(cases)
    kept = list(taught_examples(task, cases[:4], host.client().chat, tmp_path))
    host.http.shutdown()
    host.http.server_close()
    ask = host.client(retries=1).chat
    with pytest.raises(OneiroError, match=r"the teacher does not reply: connection failed: .*refused"):
        list(taught_examples(task, cases[4:], ask, tmp_path))
    assert list(taught_examples(task, cases[:4], ask, tmp_path)) == kept  # what it answered is still there


def test_overlong_answers_count_as_wrong(cases: list[Transition], tmp_path: Path) -> None:
    teacher = Teacher(cases)
    assert list(taught_examples(task, cases, teacher.chat, tmp_path, samples=2, max_characters=20)) == []
