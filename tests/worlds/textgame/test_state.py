"""States, differences and edits, by hand and by random states."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oneiro.worlds.textgame.state import (
    GONE,
    Difference,
    State,
    Transition,
    difference,
    edits,
    same,
    same_state,
    score_edits,
)


def thing(uuid: int, noun: str = "cup", contains: tuple[str, ...] = (), **properties: Any) -> dict[str, Any]:
    return {
        "name": f"{noun} (ID: {uuid})",
        "uuid": uuid,
        "type": noun.title(),
        "properties": properties,
        "contains": list(contains),
    }


ROOM = thing(1, "room", ("cup (ID: 2)", "pot (ID: 3)"))
CUP, POT = thing(2, full=False, heat=20), thing(3, "pot", lid=True)
STATE = [ROOM, CUP, POT]


@pytest.mark.parametrize(
    ("a", "b", "equal"),
    [
        (True, 1, False),
        (0, False, False),
        (1, 1.0, True),
        (0.1 + 0.2, 0.3, True),
        (0.3, 0.31, False),
        (None, False, False),
        ("1", 1, False),
        ([1, 2], [2, 1], False),
        ((1, 2), [1, 2], True),
        ({"a": [True]}, {"a": [1]}, False),
        ({"a": 1}, {"a": 1, "b": None}, False),
        (10**400, 1.5, False),
    ],
)
def test_values_are_the_same_only_if_their_kind_is(a: Any, b: Any, equal: bool) -> None:
    assert same(a, b) is equal
    assert same(b, a) is equal


def test_order_of_objects_and_contents_means_nothing() -> None:
    turned = [POT, CUP, thing(1, "room", ("pot (ID: 3)", "cup (ID: 2)"))]
    assert same_state(STATE, turned)
    assert edits(STATE, turned) == {}


def test_a_move_is_two_edits_and_a_new_value_one() -> None:
    after = [
        thing(1, "room", ("pot (ID: 3)",)),
        thing(2, full=False, heat=40),
        thing(3, "pot", ("cup (ID: 2)",), lid=True),
    ]
    assert edits(STATE, after) == {
        (1, "contains", "cup (ID: 2)"): -1,
        (3, "contains", "cup (ID: 2)"): 1,
        (2, "properties", "heat"): 40,
    }


def test_lost_and_new_properties_renames_and_retypes_are_edits() -> None:
    changed = {**thing(2, "mug", full=False, clean=True), "type": "Mug"}
    assert edits(STATE, [ROOM, changed, POT]) == {
        (2, "name"): "mug (ID: 2)",
        (2, "type"): "Mug",
        (2, "properties", "heat"): GONE,
        (2, "properties", "clean"): True,
    }


def test_a_vanished_object_is_one_edit_and_a_new_one_an_edit_for_all_that_is_known_of_it() -> None:
    assert edits(STATE, [ROOM, CUP]) == {(3, "removed"): True}
    found = edits(STATE, [*STATE, thing(9, "tea", hot=True)])
    assert found == {
        (9, "created"): True,
        (9, "uuid"): 9,
        (9, "name"): "tea (ID: 9)",
        (9, "type"): "Tea",
        (9, "properties", "hot"): True,
    }


def test_score_edits_name_changed_lost_and_new_entries() -> None:
    before = {"score": 0, "gameOver": False, "gameWon": False}
    assert score_edits(before, {**before, "score": 1}) == {("score", "score"): 1}
    assert score_edits(before, {}) == {("score", key): GONE for key in before}


def test_a_difference_lists_whole_new_versions_and_gone_uuids() -> None:
    after = [thing(1, "room", ("cup (ID: 2)", "tea (ID: 4)")), thing(2, full=True, heat=20), thing(4, "tea")]
    found = difference(STATE, after)
    assert found == Difference(modified=after, removed=[3])
    assert same_state(found.apply(STATE), after)


values = st.one_of(st.booleans(), st.integers(-3, 3), st.sampled_from(["a", "b"]), st.none(), st.floats(-1, 1))


@st.composite
def states(draw: st.DrawFn) -> State:
    uuids = draw(st.lists(st.integers(0, 6), unique=True, max_size=6))
    names = [f"cup (ID: {uuid})" for uuid in uuids]
    found = []
    for uuid in uuids:
        properties = draw(st.dictionaries(st.sampled_from("pqr"), values, max_size=3))
        inside = draw(st.lists(st.sampled_from(names), max_size=2))
        found.append({**thing(uuid, contains=tuple(inside)), "properties": properties})
    return found


@settings(max_examples=40, deadline=None)
@given(states(), states())
def test_applying_the_difference_of_two_states_gives_the_second(before: State, after: State) -> None:
    assert same_state(difference(before, after).apply(before), after)


@settings(max_examples=40, deadline=None)
@given(states(), states())
def test_two_states_are_the_same_exactly_when_nothing_is_edited_either_way(before: State, after: State) -> None:
    assert (edits(before, after) == {}) == (edits(after, before) == {}) == same_state(before, after)


def transition(after: State, score_after: dict[str, Any] | None = None) -> Transition:
    score = {"score": 0, "gameOver": False, "gameWon": False}
    return Transition(
        id="x/1", split="train", game="x", task="", state=STATE, score=score, action="wait", uuid_base=4,
        after_action=STATE, after=after, score_after=score_after or score,
    )  # fmt: skip


def test_a_change_of_the_score_alone_is_a_change_but_not_gold() -> None:
    case = transition(STATE, {"score": 1, "gameOver": False, "gameWon": False})
    assert case.changed and not case.gold and not case.creates() and not case.removes()


def test_gold_looks_only_at_objects_that_stay() -> None:
    assert not transition([*STATE, thing(4, "tea")]).gold
    assert transition([*STATE, thing(4, "tea")]).creates()
    assert not transition([ROOM, CUP]).gold
    assert transition([ROOM, CUP]).removes()
    assert transition([ROOM, thing(2, full=True, heat=20), POT]).gold
