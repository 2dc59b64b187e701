"""Reading answers: what counts as one, which one counts, and that no text whatever breaks the reader."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oneiro.tasks.base import Flaw, Malformed
from oneiro.tasks.textgame.parse import (
    Prediction,
    Unreadable,
    find_object,
    only_object,
    parse_difference,
    parse_edits,
    parse_full,
    parse_score,
)

SCORE = {"score": 0, "gameOver": False, "gameWon": False}
CUP = {"name": "cup (ID: 2)", "uuid": 2, "type": "Cup", "properties": {"full": False}, "contains": []}
POT = {"name": "pot (ID: 3)", "uuid": 3, "type": "Pot", "properties": {}, "contains": ["cup (ID: 2)"]}
STATE = [CUP, POT]
FULL_CUP = {**CUP, "properties": {"full": True}}


def answer(modified: Any = (), removed: Any = (), score: Any = None, **more: Any) -> dict[str, Any]:
    return {"modified": list(modified), "removed": list(removed), "score": score or SCORE, **more}


def read(text: str) -> Prediction | Malformed:
    return parse_difference(text, STATE, SCORE)


def flaw(text: str) -> Flaw | None:
    found = read(text)
    return found.flaw if isinstance(found, Malformed) else None


def test_modified_objects_take_the_place_of_the_old_and_removed_ones_go() -> None:
    assert read(json.dumps(answer([FULL_CUP], [3]))) == Prediction([FULL_CUP], SCORE)


def test_a_new_uuid_is_a_new_object() -> None:
    tea = {"name": "tea (ID: 9)", "uuid": 9, "type": "Tea", "properties": {}, "contains": []}
    assert read(json.dumps(answer([tea]))) == Prediction([*STATE, tea], SCORE)


def test_an_empty_score_means_it_stays_and_none_means_none() -> None:
    assert read('{"modified": [], "removed": [], "score": {}}') == Prediction(STATE, SCORE)
    assert read('{"modified": [], "removed": []}') == Prediction(STATE, None)


def test_one_removed_uuid_may_stand_without_a_list_and_in_quotes() -> None:
    assert read('{"modified": [], "removed": 3, "score": {}}') == Prediction([CUP], SCORE)
    assert read('{"modified": [], "removed": ["3"], "score": {}}') == Prediction([CUP], SCORE)


def test_removing_what_was_never_there_is_remembered() -> None:
    found = read(json.dumps(answer([], [3, 77])))
    assert isinstance(found, Prediction) and found.stray == ((77, "removed"),)


def test_python_s_way_of_printing_is_read_too() -> None:
    text = repr(answer([{**CUP, "properties": {"full": None, "it's": (1, -2.5), "x": 'a"b'}}]))
    found = read(text)
    assert isinstance(found, Prediction)
    assert found.state[0]["properties"] == {"full": None, "it's": [1, -2.5], "x": 'a"b'}
    assert flaw('{"modified": [1,], "removed": [],}') == Flaw.SHAPE
    assert flaw("{'modified': [], 'removed': [],}") is None


def test_words_inside_strings_stay_as_they_are() -> None:
    found = read(repr(answer([{**CUP, "name": "True North (ID: 2)"}])))
    assert isinstance(found, Prediction) and found.state[0]["name"] == "True North (ID: 2)"


RIGHT, WRONG = json.dumps(answer([FULL_CUP])), json.dumps(answer([], [2]))


@pytest.mark.parametrize(
    "text",
    [
        f"The final answer is: {RIGHT}",
        f"{WRONG} Let me think again. The final answer is:\n```json\n{RIGHT}\n```<|im_end|>",
        f"The final answer is: {WRONG} No. the final answer is: {RIGHT}",
        f"The final state is: {WRONG} The final answer is: {RIGHT} and {WRONG}",
        f"The final answer is: {WRONG}</think>{RIGHT}",
        f"I first thought {WRONG} but it is {RIGHT}.",
        f"a set {{1, 2}} and a state {{'a': 1}}; {RIGHT}",
        json.dumps({"score": SCORE, "removed": [], "modified": [FULL_CUP]}),
        f"```json\n{RIGHT}\n```",
        f'{RIGHT}\nThe "modified" list has what changes, "removed" what goes.',
        f'The final answer is: the "modified" list is as follows: {RIGHT}',
        f'The final answer is: {{"modified": [...], "removed": [...]}} with its lists filled in: {RIGHT}',
        f"The final answer is: {RIGHT} No, wait: {WRONG[:-9]}",
    ],
)
def test_the_answer_is_what_follows_the_last_marker_else_what_comes_last(text: str) -> None:
    assert read(text) == Prediction([FULL_CUP, POT], SCORE)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", Flaw.EMPTY),
        ("nothing changes", Flaw.EMPTY),
        ("{}", Flaw.SHAPE),
        ('{"answer": 5}', Flaw.SHAPE),
        ('{"modified": []}', Flaw.SHAPE),
        ('{"modified": {}, "removed": []}', Flaw.SHAPE),
        ('{"modified": [5], "removed": []}', Flaw.SHAPE),
        ('{"modified": [{"name": "cup"}], "removed": []}', Flaw.SHAPE),
        ('{"modified": [{"uuid": true}], "removed": []}', Flaw.SHAPE),
        ('{"modified": [{"uuid": 2.5}], "removed": []}', Flaw.SHAPE),
        ('{"modified": [{"uuid": 2, "properties": []}], "removed": []}', Flaw.SHAPE),
        ('{"modified": [{"uuid": 2, "contains": "pot"}], "removed": []}', Flaw.SHAPE),
        ('{"modified": [{"uuid": 2, "contains": [3]}], "removed": []}', Flaw.SHAPE),
        ('{"modified": [], "removed": ["pot"]}', Flaw.SHAPE),
        ('{"modified": [], "removed": [], "score": 1}', Flaw.SHAPE),
        ('{"modified": [], "removed": [NaN]}', Flaw.BROKEN),
        ('{"modified": [', Flaw.BROKEN),
        (RIGHT[:-20], Flaw.BROKEN),
        (f"{RIGHT} No, wait: {WRONG[:-1]}", Flaw.BROKEN),
        (f"{RIGHT} No, wait: {RIGHT[:40]}", Flaw.BROKEN),
        ('The "modified" list is empty, the "removed" one too.', Flaw.EMPTY),
        (json.dumps(answer([CUP, FULL_CUP])), Flaw.CONFLICT),
        (json.dumps(answer([CUP], [2])), Flaw.CONFLICT),
    ],
)
def test_what_is_no_answer_has_a_typed_flaw(text: str, expected: Flaw) -> None:
    assert flaw(text) == expected


def test_saying_the_same_twice_is_no_conflict() -> None:
    assert read(json.dumps(answer([FULL_CUP, FULL_CUP], [3, 3]))) == Prediction([FULL_CUP], SCORE)


def edited(*entries: Any, **more: Any) -> Prediction | Malformed:
    return parse_edits(json.dumps({"edited": entries, "removed": [], "score": {}, **more}), STATE, SCORE)


def test_edits_change_what_they_name_and_nothing_else() -> None:
    assert edited({"uuid": 2, "properties": {"full": True}}) == Prediction([FULL_CUP, POT], SCORE)
    assert edited({"uuid": 2, "lost": ["full"], "name": "mug (ID: 2)"}) == Prediction(
        [{**CUP, "name": "mug (ID: 2)", "properties": {}}, POT], SCORE
    )
    assert edited({"uuid": 3, "dropped": ["cup (ID: 2)"], "added": ["lid (ID: 5)", "lid (ID: 5)"]}) == Prediction(
        [CUP, {**POT, "contains": ["lid (ID: 5)", "lid (ID: 5)"]}], SCORE
    )
    assert edited(removed=[3], score={"score": 1}) == Prediction([CUP], {**SCORE, "score": 1})


def test_an_edit_of_what_is_not_there_makes_it() -> None:
    tea = {"name": "tea (ID: 9)", "uuid": 9, "type": "Tea", "properties": {"hot": 1}}
    assert edited({**tea, "added": ["leaf"]}) == Prediction([*STATE, {**tea, "contains": ["leaf"]}], SCORE)
    assert edited(tea) == Prediction([*STATE, {**tea, "contains": []}], SCORE)


@pytest.mark.parametrize(
    ("entry", "place"),
    [
        ({"uuid": 3, "dropped": ["lid (ID: 5)"]}, (3, "contains", "lid (ID: 5)")),
        ({"uuid": 3, "dropped": ["cup (ID: 2)", "cup (ID: 2)"]}, (3, "contains", "cup (ID: 2)")),
        ({"uuid": 2, "lost": ["empty"]}, (2, "properties", "empty")),
        ({"uuid": 9, "lost": ["full"]}, (9, "properties", "full")),
    ],
)
def test_taking_away_what_is_not_there_is_remembered(entry: dict[str, Any], place: tuple[Any, ...]) -> None:
    found = edited(entry)
    assert isinstance(found, Prediction) and found.stray == (place,)


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ({"uuid": 2, "lost": "full"}, Flaw.SHAPE),
        ({"uuid": 2, "added": [4]}, Flaw.SHAPE),
        ({"uuid": 2, "dropped": {"cup (ID: 2)": 1}}, Flaw.SHAPE),
        ({"properties": {"full": True}}, Flaw.SHAPE),
        ({"uuid": 2, "lost": ["full"], "properties": {"full": True}}, Flaw.CONFLICT),
        ({"uuid": 3, "dropped": ["cup (ID: 2)"], "added": ["cup (ID: 2)"]}, Flaw.CONFLICT),
        ({"uuid": 3, "contains": ["lid (ID: 5)"], "added": ["lid (ID: 5)"]}, Flaw.CONFLICT),
        ({"uuid": 3, "contains": ["cup (ID: 2)"], "dropped": ["cup (ID: 2)"]}, Flaw.CONFLICT),
    ],
)
def test_an_edit_that_cannot_be_made_has_a_typed_flaw(entry: dict[str, Any], expected: Flaw) -> None:
    found = edited(entry)
    assert isinstance(found, Malformed) and found.flaw == expected


def test_a_score_that_is_asked_for_must_be_told_in_edits_as_in_differences() -> None:
    silent = '{"edited": [], "modified": [], "removed": []}'
    for parse in (parse_edits, parse_difference):
        assert parse(silent, STATE, SCORE) == Prediction(STATE, None)
        assert parse(silent, STATE, None) == Prediction(STATE, None)
        assert parse(silent[:-1] + ', "score": 5}', STATE, None) == Prediction(STATE, None)


DEEP = "[" * 60 + "]" * 60
"""Fine for a reader of JSON; the next prompt, which prints it back, might not be."""


def test_a_score_nested_beyond_reason_is_refused_in_every_form() -> None:
    score = f'{{"score": {DEEP}, "gameOver": false, "gameWon": false}}'
    for found in (
        parse_difference(f'{{"modified": [], "removed": [], "score": {score}}}', STATE, SCORE),
        parse_edits(f'{{"edited": [], "removed": [], "score": {score}}}', STATE, SCORE),
        parse_full(f'{{"game_state": [{score}]}}'),
        parse_score(score, STATE),
    ):
        assert isinstance(found, Malformed) and found.flaw == Flaw.SHAPE


def test_a_uuid_that_could_not_be_printed_is_none() -> None:
    assert isinstance(edited({"uuid": 10**17}), Prediction)
    for uuid in (10**18, -(10**18), int("9" * 4300)):
        found = edited({"uuid": uuid})
        assert isinstance(found, Malformed) and found.flaw == Flaw.SHAPE


def test_a_whole_state_carries_its_score_among_the_objects() -> None:
    text = json.dumps({"game_state": [POT, FULL_CUP, SCORE]})
    assert parse_full(text) == Prediction([POT, FULL_CUP], SCORE)
    assert parse_full(json.dumps({"game_state": STATE})) == Prediction(STATE, None)
    assert parse_full(json.dumps({"game_state": [SCORE, SCORE]})) == Malformed(Flaw.CONFLICT, "two scores")


def test_a_score_alone_leaves_the_state() -> None:
    assert parse_score(json.dumps(SCORE), STATE) == Prediction(STATE, SCORE)


def test_containers_left_open_are_closed_only_in_repair() -> None:
    cut = 'So: {"modified": [], "removed": [1, 2'
    assert only_object(cut) == {"modified": [], "removed": [1, 2]}
    with pytest.raises(Unreadable):
        find_object(cut, "modified", last=False)


def test_a_quoted_key_in_prose_costs_no_right_answer_of_any_form() -> None:
    whole = json.dumps({"game_state": [CUP, POT, SCORE]})
    assert parse_full(f'{whole}\nThe "game_state" list has what changes.') == Prediction([CUP, POT], SCORE)


@given(st.text())
def test_any_text_is_read_or_refused(text: str) -> None:
    assert isinstance(read(text), Prediction | Malformed)
    assert isinstance(parse_full(text), Prediction | Malformed)
    assert isinstance(parse_edits(text, STATE, SCORE), Prediction | Malformed)


SCRAPS = [
    '"modified"',
    "'modified'",
    '"removed"',
    '"edited"',
    '"dropped"',
    "{",
    "}",
    "[",
    "]",
    ":",
    ",",
    '"uuid"',
    "2",
    "True",
    "null",
    '"',
    " ",
]
SCRAPS += ["\\", RIGHT, WRONG, "The final answer is:", "</think>", "```json", "NaN", "1e999", "\ud800", "(", ")"]
scraps = st.lists(st.sampled_from(SCRAPS), max_size=60).map("".join)


@given(scraps)
def test_any_heap_of_scraps_is_read_or_refused(text: str) -> None:
    assert isinstance(read(text), Prediction | Malformed)
    assert isinstance(parse_edits(text, STATE, SCORE), Prediction | Malformed)


HOSTILE = {
    "nested objects": '{"modified":' * 3000,
    "nested lists": '{"modified":[' * 5000,
    "keys": '"modified"' * 6000,
    "half keys": '{"modified"' * 6000,
    "open strings": "{'modified':'" * 3000,
    "backslashes": '{"modified": [{"x":' + '"\\' * 8000,
    "braces": "{" * 60000 + '"modified"',
    "brackets": "{'modified':" + "(" * 60000,
    "numbers": '{"modified": [' + "1," * 32000,
    "python numbers": "{'modified': [" + "1," * 32000,
    "a long number": '{"modified":[{"uuid":' + "9" * 5000 + '}],"removed":[]}',
    "dashes": '{ "modified": ' + "-" * 60000,
    "many objects": '{"modified":[' + ",".join(f'{{"uuid":{i}}}' for i in range(2000)) + '],"removed":[]}',
    "deep property": '{"modified":[{"uuid":2,"properties":' + '{"a":' * 400 + "1" + "}" * 400 + '}],"removed":[]}',
    "markers": "The final answer is:" * 3000,
    "fences": "```json" * 9000,
    "thoughts": "</think>" * 100_000,
    "spaces": '{"modified":[],"removed":[]}' + " " * 2_000_000,
    "letters": "x" * 3_000_000,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_text_is_refused_in_time(name: str) -> None:
    start = time.process_time()
    found = read(HOSTILE[name])
    assert time.process_time() - start < 2
    assert isinstance(found, Malformed)
    start = time.process_time()
    found = parse_edits(HOSTILE[name].replace("modified", "edited"), STATE, SCORE)
    assert time.process_time() - start < 2
    assert isinstance(found, Malformed)
