"""Ids counted from what is shown: read back exactly, so that scores do not depend on how lines are named."""

from __future__ import annotations

from dataclasses import replace

import pytest

from oneiro.runtime.errors import OneiroError
from oneiro.tasks.base import Malformed
from oneiro.tasks.webpage.parse import MAX_CHARACTERS
from oneiro.tasks.webpage.predictor import WebPagePredictor, WebPagePredictorConfig
from oneiro.tasks.webpage.prompt import Numbers
from oneiro.tasks.webpage.state import window_before
from tests.tasks.webpage.cases import recorded, state, step

OWN = WebPagePredictorConfig(lines=14, brief=True, deletions="ids")
COUNTED = OWN.model_copy(update={"numbers": "window"})
PAGE = state("RootWebArea 'x'", "link 'Home'", "main ''", *(f"link 'row {n}'" for n in range(20)))


def test_lines_count_from_the_pages_own_part_and_further_down_from_the_first_that_is_shown() -> None:
    top, down = step(PAGE, "click [5]", PAGE), step(PAGE, "click [12]", PAGE)
    assert [Numbers.of(top, 4).write(number) for number in (3, 6, 7, 1)] == ["[1]", "[4]", "[5]", "[-1]"]
    assert [Numbers.of(down, 4).write(number) for number in (10, 13, 14, 3, 1)] == [
        "[.1]",
        "[.4]",
        "[12]",
        "[1]",
        "[-1]",
    ]


@pytest.mark.parametrize("lines", [0, 4, 14])
def test_every_id_reads_back(lines: int) -> None:
    for action in ("click [2]", "click [5]", "click [12]", "click [23]", "click [99]", "scroll [down]"):
        numbers = Numbers.of(step(PAGE, action, PAGE), lines)
        text = "\n".join(f"[{number}] link '[{number}]'" for number in range(1, 200))
        assert numbers.read(numbers.from_here(text)) == text


def test_a_prompt_names_lines_as_its_answer_does() -> None:
    down = step(PAGE, "click [12]", state("main ''", "heading 'Row'", url="http://reddit.com/row"))
    task = WebPagePredictor(COUNTED.model_copy(update={"lines": 4}))
    assert task.prompt(down)[0]["content"].split("\n")[1:] == [
        "[.1] link 'row 6'",
        "[.2] link 'row 7'",
        "[.3] link 'row 8'",
        "[.4] link 'row 9'",
        "click",
        "[.3] link 'row 8'",
    ]
    page = replace(down, matched=(-1, -1))
    # The next page has no frame, so its first line stands two lines above the place of this page's own part.
    assert task.target(page).split("\n")[:3] == ["New items:", "[-1] main ''", "[0] heading 'Row'"]
    assert task.target(page).split("\n")[4:9] == ["Deleted items:", "[.1]", "[.2]", "[.3]", "[.4]"]
    assert task.judge(task.target(page), page).f1 == 1.0


def test_a_retrieved_step_names_its_own_lines_in_the_same_way() -> None:
    there = step(PAGE, "click [12]", state(*(item.line for item in PAGE.items[:-1])), episode="there")
    here = step(state("main ''", *(f"link 'row {n}'" for n in range(20))), "click [10]", PAGE, episode="here")
    task = WebPagePredictor(COUNTED.model_copy(update={"lines": 4, "retrieve": 1}), examples=[there])
    assert task.prompt(here)[0]["content"].startswith("A similar step: click\n[.3] link 'row 8'\nNew items:\nNone\n")


@pytest.mark.parametrize("scorer", ["strict", "official"])
def test_scores_do_not_depend_on_how_lines_are_named(scorer: str) -> None:
    own = WebPagePredictor(OWN.model_copy(update={"scorer": scorer}))
    counted = WebPagePredictor(COUNTED.model_copy(update={"scorer": scorer}))
    train, test = recorded(), recorded("eval", 3)
    assert any(window_before(case, 14).top > case.state.main for case in test)
    one, two = own.baselines(train), counted.baselines(train)
    for case in test:
        for name, answers in one.items():
            assert two[name](case) == counted.write(own.parse(answers(case), case).change, case)  # type: ignore[union-attr]
            assert counted.metrics(two[name](case), case) == own.metrics(answers(case), case), name
        assert counted.metrics("[.99999999999] x\n[--3]", case)["f1"] == 0.0


def test_numbers_that_no_line_has_are_false_items_and_long_texts_stay_unread() -> None:
    case, task = step(PAGE, "click [12]", PAGE), WebPagePredictor(COUNTED)
    read = task.parse("New items:\n[-50] link 'x'\n\nDeleted items:\n[.999]\n\nUpdated items:\nNone", case)
    assert not isinstance(read, Malformed) and read.false == (1, 1, 0)
    assert isinstance(task.parse("[.1]\n" * MAX_CHARACTERS, case), Malformed)


def test_instructions_name_a_pages_own_ids() -> None:
    with pytest.raises(OneiroError, match="needs task"):
        WebPagePredictorConfig(numbers="window")
