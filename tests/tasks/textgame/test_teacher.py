"""SFT examples from the truth and from a teacher whose wrong answers are thrown away."""

from __future__ import annotations

from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from oneiro.runtime.errors import OneiroError
from oneiro.sampling import server as server_module
from oneiro.tasks.textgame.predictor import TextGamePredictor, TextGamePredictorConfig
from oneiro.tasks.textgame.teacher import taught_examples
from oneiro.worlds.textgame.crawl import CrawlConfig, crawl, own_rules
from oneiro.worlds.textgame.state import Transition
from tests.sampling.test_server import Host, choice, send

task = TextGamePredictor(TextGamePredictorConfig(reasoning=True), rules=own_rules())


@pytest.fixture(scope="module")
def cases() -> list[Transition]:
    return list(crawl(["mix-paint"], "train", CrawlConfig(levels=1, still=2)))[:10]


def test_true_answers_are_right_and_carry_their_reasons(cases: list[Transition]) -> None:
    for case in cases:
        assert task.judge(task.target(case), case).exact and task.target(case).startswith("The command is: ")


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> Iterator[Host]:
    monkeypatch.setattr(server_module, "FIRST_WAIT_S", 0.01)
    with Host() as host:
        yield host


class Pupil:
    """Answers over HTTP: wrong `tries`, then the truth as far as it is known; to questions in `broken` an error."""

    def __init__(
        self,
        cases: list[Transition],
        broken: tuple[int, ...] = (),
        status: int = 500,
        tries: tuple[str, ...] = ("no", "The final answer is: {}", ""),
    ) -> None:
        self.known = {question(case): task.perfect(case) for case in cases}
        self.broken = {question(cases[number]) for number in broken}
        self.status, self.tries = status, tries

    def __call__(self, body: dict[str, Any], handler: BaseHTTPRequestHandler) -> None:
        asked = body["messages"][-1]["content"]
        if asked in self.broken:
            send(handler, {"error": "out of memory"}, status=self.status)
            return
        told = [choice(text) for text in self.tries]
        told.append(choice(self.known.get(asked, "I do not know")))
        told[-1]["message"]["reasoning_content"] = "Hm. {"
        send(handler, {"choices": told[: body["n"]]})


def question(case: Transition) -> str:
    return str(task.prompt(case)[0]["content"])


def asked_in(host: Host) -> list[str]:
    return [body["messages"][-1]["content"] for body in host.bodies]


def thought(case: Transition) -> str:
    """The pupil's right answer."""
    return f"<think>\nHm. {{\n</think>\n\n{task.perfect(case)}"


def test_only_right_answers_become_examples(host: Host, cases: list[Transition], tmp_path: Path) -> None:
    host.answer = Pupil(cases[:4], tries=("no",))
    found = list(taught_examples(task, cases, host.client().config, tmp_path, samples=2, batch=3))
    assert [example.id for example in found] == [case.id for case in cases[:4]]
    assert found[0].answer == thought(cases[0])
    assert len(host.bodies) == 10


def test_nothing_is_asked_twice(host: Host, cases: list[Transition], tmp_path: Path) -> None:
    host.answer, teacher = Pupil(cases, tries=("no",)), host.client().config
    first = list(taught_examples(task, cases[:5], teacher, tmp_path, samples=2))
    again = list(taught_examples(task, cases, teacher, tmp_path, samples=2))
    assert again[:5] == first and len(again) == 10
    assert len(asked_in(host)) == len(set(asked_in(host))) == 10


def test_a_question_that_was_drawn_twice_is_asked_once(host: Host, cases: list[Transition], tmp_path: Path) -> None:
    host.answer = Pupil(cases, tries=())
    found = list(taught_examples(task, [*cases[:3], *cases[:3]], host.client().config, tmp_path, samples=2))
    assert [example.id for example in found] == [case.id for case in cases[:3]] * 2 and len(set(asked_in(host))) == 3


def test_only_the_samples_that_are_missing_are_asked_for_and_with_another_seed(
    host: Host, cases: list[Transition], tmp_path: Path
) -> None:
    host.answer, teacher = Pupil(cases), host.client().config
    assert list(taught_examples(task, cases[:1], teacher, tmp_path, samples=2)) == []
    host.answer = Pupil(cases, tries=())
    assert len(list(taught_examples(task, cases[:1], teacher, tmp_path, samples=3))) == 1
    assert [body["n"] for body in host.bodies] == [2, 1] and host.bodies[0]["seed"] != host.bodies[1]["seed"]
    assert list(taught_examples(task, cases[:1], teacher, tmp_path, samples=2)) == []  # the third is none of two


def test_another_teacher_or_other_sampling_is_asked_anew(host: Host, cases: list[Transition], tmp_path: Path) -> None:
    host.answer = Pupil(cases, tries=())
    for settings in ({}, {"model": "other"}, {"temperature": 0.5}, {"max_tokens": 7}, {"concurrency": 2}):
        list(taught_examples(task, cases[:1], host.client(**settings).config, tmp_path, samples=1))
    assert [body["model"] for body in host.bodies] == ["m", "other", "m", "m"]  # how many at once does not matter


@pytest.mark.parametrize("damage", ["{", "[]", '{"answers": [1]}', '{"id": "x"}', ""])
def test_a_damaged_file_is_asked_again(host: Host, cases: list[Transition], tmp_path: Path, damage: str) -> None:
    host.answer, teacher = Pupil(cases, tries=()), host.client().config
    first = list(taught_examples(task, cases[:1], teacher, tmp_path, samples=1))
    (kept,) = tmp_path.iterdir()
    kept.write_text(damage)
    assert list(taught_examples(task, cases[:1], teacher, tmp_path, samples=1)) == first and len(host.bodies) == 2


@pytest.mark.parametrize("status", [400, 413, 422])
def test_a_refused_question_is_skipped_and_told_of(
    host: Host, cases: list[Transition], tmp_path: Path, status: int
) -> None:
    host.answer, told = Pupil(cases, broken=(1,), status=status, tries=()), list[str]()
    found = list(taught_examples(task, cases[:3], host.client().config, tmp_path, samples=1, refuse=told.append))
    assert [example.id for example in found] == [cases[0].id, cases[2].id]
    assert len(told) == 1 and f"HTTP {status}: out of memory" in told[0]
    with pytest.raises(OneiroError, match="takes no question"):
        list(taught_examples(task, cases[1:2], host.client().config, tmp_path, samples=1, batch=1))


def test_answers_are_kept_though_another_question_ends_it_all(
    host: Host, cases: list[Transition], tmp_path: Path
) -> None:
    host.answer, teacher = Pupil(cases, broken=(3,), status=401, tries=()), host.client(concurrency=1).config
    with pytest.raises(OneiroError, match="HTTP 401"):
        list(taught_examples(task, cases[:6], teacher, tmp_path, samples=1))
    host.answer, asked = Pupil(cases, tries=()), len(host.bodies)
    assert len(list(taught_examples(task, cases[:6], teacher, tmp_path, samples=1))) == 6
    again = asked_in(host)[asked:]
    assert question(cases[3]) in again and not {question(case) for case in cases[:3]} & set(again)


def test_each_question_has_its_tries_and_the_first_right_one_is_kept(
    host: Host, cases: list[Transition], tmp_path: Path
) -> None:
    host.answer, told = Pupil(cases), list[int]()
    found = list(taught_examples(task, cases, host.client().config, tmp_path, batch=4, advance=told.append))
    assert [example.answer for example in found] == [thought(case) for case in cases]
    assert [body["n"] for body in host.bodies] == [4] * 10 and told == [4, 4, 2]
    few = list(taught_examples(task, cases, host.client().config, tmp_path / "few", samples=3))
    assert few == []


def test_questions_without_any_reply_are_asked_again_next_time(
    host: Host, cases: list[Transition], tmp_path: Path
) -> None:
    host.answer = Pupil(cases, broken=(2, 5))
    first = list(taught_examples(task, cases, host.client(retries=1).config, tmp_path))
    assert [example.id for example in first] == [case.id for case in cases if case not in (cases[2], cases[5])]
    host.answer = Pupil(cases)
    asked = len(host.bodies)
    assert len(list(taught_examples(task, cases, host.client().config, tmp_path))) == 10
    assert len(host.bodies) - asked == 2


def test_a_server_that_cannot_be_reached_is_named_as_the_trouble(
    host: Host, cases: list[Transition], tmp_path: Path
) -> None:
    host.answer = Pupil(cases)
    kept = list(taught_examples(task, cases[:4], host.client().config, tmp_path))
    host.http.shutdown()
    host.http.server_close()
    teacher = host.client(retries=1).config
    with pytest.raises(OneiroError, match=r"the teacher does not reply: connection failed: .*refused"):
        list(taught_examples(task, cases[4:], teacher, tmp_path))
    assert list(taught_examples(task, cases[:4], teacher, tmp_path)) == kept  # what it answered is still there


def test_overlong_answers_count_as_wrong(host: Host, cases: list[Transition], tmp_path: Path) -> None:
    host.answer, teacher = Pupil(cases, tries=()), host.client().config
    assert list(taught_examples(task, cases[:2], teacher, tmp_path, samples=1, max_characters=20)) == []
    assert len(list(taught_examples(task, cases[:2], teacher, tmp_path, samples=1))) == 2
