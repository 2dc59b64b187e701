"""The published scorer: its figures worked by hand, and where it departs from the strict one."""

from __future__ import annotations

import json
from typing import Any

import pytest

from oneiro.runtime.errors import OneiroError
from oneiro.tasks.textgame.predictor import TextGamePredictor, TextGamePredictorConfig
from oneiro.tasks.textgame.score import official_score
from oneiro.worlds.textgame.state import State, Transition

SCORE = {"score": 0, "gameOver": False, "gameWon": False}
ONE = {"score": 1, "gameOver": False, "gameWon": False}


def thing(uuid: int, noun: str, contains: tuple[str, ...] = (), **properties: Any) -> dict[str, Any]:
    name = f"{noun} (ID: {uuid})"
    return {"name": name, "uuid": uuid, "type": noun.title(), "properties": properties, "contains": list(contains)}


ROOM, CUP = thing(1, "room", ("cup (ID: 2)",), lit=True), thing(2, "cup", full=False, heat=20)
STATE = [ROOM, CUP]
HOT = [ROOM, thing(2, "cup", full=False, heat=90)]
# Items of a next state with the room and the cup: lit, room's contents, full, heat, cup's contents.
ITEMS = 5
plain = TextGamePredictor(TextGamePredictorConfig(rules="none"))


def case(after: State, score_after: dict[str, Any] = SCORE) -> Transition:
    return Transition(
        id="x/1", split="test", game="x", task="", state=STATE, score=SCORE, action="heat", uuid_base=3,
        after_action=after, after=after, score_after=score_after,
    )  # fmt: skip


def told(modified: Any, removed: Any = (), score: Any = SCORE) -> str:
    return json.dumps({"modified": modified, "removed": removed, "score": score})


def test_a_right_answer_is_exact_and_pays_the_published_sums() -> None:
    assert official_score(told([HOT[1]]), case(HOT)).task_specific == pytest.approx(0.09 + 0.01 + 0.2 + 1.0)
    assert official_score(told([]), case(STATE)).task_specific == pytest.approx(0.3)
    assert official_score(told([], score=ONE), case(STATE, ONE)).task_specific == pytest.approx(0.3)


def test_no_change_on_a_changed_step_pays_for_all_that_stayed() -> None:
    found = official_score(told([]), case(HOT))
    assert (found.items, found.score, found.changed) == ((ITEMS - 1) / ITEMS, 1.0, 0.0)
    assert found.task_specific == pytest.approx(0.09 * 4 / 5 + 0.01)
    assert not found.exact


def test_an_invented_property_is_exact_yet_voids_the_task_specific_reward() -> None:
    found = official_score(told([{**HOT[1], "properties": {"full": False, "heat": 90, "new": 1}}]), case(HOT))
    assert found.exact and found.task_specific == 0.0


def test_names_types_leftovers_and_inventions_are_never_looked_at() -> None:
    odd = [{**HOT[1], "name": "mug", "type": "Mug"}, thing(77, "ghost")]
    assert official_score(told(odd), case(HOT)).exact
    gone = case([thing(1, "room", (), lit=True)])
    assert official_score(told([thing(1, "room", (), lit=True)], []), gone).exact  # the cup is still there
    assert official_score(told([{**CUP, "properties": {"full": 0, "heat": 90}}]), case(HOT)).exact  # 0 for false


def test_a_step_that_creates_an_object_can_never_be_exact() -> None:
    made = case([thing(1, "room", ("cup (ID: 2)", "tea (ID: 3)"), lit=True), CUP, thing(3, "tea")])
    task = TextGamePredictor(TextGamePredictorConfig(rules="none"))
    assert task.judge(task.target(made), made).exact
    assert not official_score(task.target(made), made).exact


def test_a_lost_property_counts_only_where_the_answer_keeps_it() -> None:
    lost = case([ROOM, thing(2, "cup", full=True)])
    assert official_score(told([thing(2, "cup", full=True)]), lost).changed == 1.0
    kept = official_score(told([thing(2, "cup", full=True, heat=20)]), lost)
    assert kept.exact and kept.changed == 0.5


def test_an_object_wrongly_removed_drops_out_of_the_changed_keys() -> None:
    found = official_score(told([], [2]), case(HOT))
    assert found.changed is None and found.items == 2 / 3


@pytest.mark.parametrize("removed", [2, "2", None, {"2": 1}, True])
def test_what_is_removed_must_stand_in_a_list(removed: Any) -> None:
    assert official_score(told([], removed), case(HOT)) == official_score(told([]), case(HOT))
    assert official_score(told([], [2]), case(HOT)) != official_score(told([]), case(HOT))


def test_properties_in_a_list_are_all_wrong_and_the_rest_is_paid() -> None:
    found = official_score(told([{**CUP, "properties": []}]), case(HOT))
    assert (found.items, found.changed) == (3 / ITEMS, 0.0)  # lit and the contents of both
    assert found.task_specific == pytest.approx(0.09 * 3 / 5 + 0.01)
    assert official_score(told([{**CUP, "properties": ["heat"]}]), case(HOT)).task_specific == 0.0


def test_a_score_with_a_uuid_passes_for_an_object() -> None:
    found = official_score(told([], score={"uuid": 2, **SCORE}), case(STATE))
    assert (found.items, found.score) == (2 / 4, 0.0)  # of the cup, properties and contents are missing


@pytest.mark.parametrize("around", ["%s %s", "[%s]", '{"answer": %s}', "[1] %s", "%s [x]"])
def test_only_a_lone_object_is_an_answer(around: str) -> None:
    text = around.replace("%s", told([]))
    assert official_score(text, case(STATE)).task_specific == 0.0
    assert plain.judge(text, case(STATE)).exact


def test_prose_around_the_answer_does_not_matter_however_long_it_is() -> None:
    for text in (
        "It heats. " * 9000 + told([]),
        f"a set {{1, 2}}: {told([])}, of course",
        f"\\boxed{{{told([])}}}",
        told([]) + " Done." * 9000,
    ):
        assert official_score(text, case(STATE)).exact


def test_edits_are_compared_as_the_state_they_lead_to() -> None:
    edits = TextGamePredictor(TextGamePredictorConfig(rules="none", output="edits", scorer="official", reward="task"))
    made = case([thing(1, "room", ("cup (ID: 2)", "tea (ID: 3)"), lit=True), CUP, thing(3, "tea")])
    for row in (case(HOT), case(STATE), case(STATE, ONE), made):
        assert edits.official(edits.perfect(row), row) == official_score(plain.perfect(row), row)
        assert edits.official(edits.no_change(row), row) == official_score(plain.no_change(row), row)
    assert edits.exact(edits.perfect(case(HOT)), case(HOT)) and not edits.exact(edits.perfect(made), made)
    assert edits.reward(edits.perfect(case(HOT)), case(HOT)).value == pytest.approx(1.3)
    assert edits.reward("?", case(HOT)).value == 0.0


@pytest.mark.parametrize(
    ("score", "right"),
    [({}, 3), (SCORE, 3), (5, 3), ({"score": 0}, 1), ({"gameOver": False}, 0), (ONE, 2)],
)
def test_odd_scores_count_as_the_published_code_counts_them(score: Any, right: int) -> None:
    assert official_score(told([], score=score), case(STATE)).score == pytest.approx(right / 3)


def test_a_missing_score_is_all_wrong_and_missing_lists_are_no_answer() -> None:
    assert official_score('{"modified": [], "removed": []}', case(STATE)).score == 0.0
    for text in ("", "no idea", '{"modified": []}', '{"removed": []}', "[1]"):
        assert official_score(text, case(STATE)).task_specific == 0.0


def test_markers_have_a_fixed_order_and_words_are_replaced_inside_names() -> None:
    assert official_score(f"The final answer is: {told([])}. The final state is: as before", case(STATE)).exact
    north = [{**ROOM, "properties": {"lit": "True"}}, CUP]
    answer = told([{**ROOM, "properties": {"lit": "True"}}])
    assert not official_score(answer, case(north)).exact
    assert TextGamePredictor(TextGamePredictorConfig(rules="none")).judge(answer, case(north)).exact


def test_the_last_fenced_block_counts_unless_it_is_tiny() -> None:
    right = f"```json\n{told([])}\n```"
    assert official_score(f"```json\n{told([HOT[1]])}\n``` {right}", case(STATE)).exact
    assert official_score(f"{told([])} ```json\nabove\n```", case(STATE)).exact


@pytest.mark.parametrize(
    "settings", [{"transition": "tick"}, {"output": "full"}, {"transition": "tick", "output": "edits"}]
)
@pytest.mark.parametrize("official", [{"scorer": "official"}, {"reward": "task"}])
def test_it_exists_only_for_differences_of_full_transitions(settings: dict[str, str], official: dict[str, str]) -> None:
    with pytest.raises(OneiroError, match="only for transition=full"):
        TextGamePredictorConfig(**settings, **official)


def test_a_property_that_comes_is_a_change_and_so_are_contents() -> None:
    new = case([thing(1, "room", (), lit=True), thing(2, "cup", full=False, heat=20, dirty=True)])
    right = [thing(1, "room", (), lit=True), thing(2, "cup", full=False, heat=20, dirty=True)]
    assert official_score(told(right), new).changed == 1.0
    assert official_score(told(right[1:]), new).changed == 0.5  # the cup still lies in the room
    assert official_score(told(right[:1]), new).changed == 0.5
    found = official_score(told([]), new)
    # lit, the room's contents, full, heat, dirty, the cup's contents: two of six are wrong.
    assert (found.changed, found.items) == (0.0, pytest.approx(4 / 6))


def test_scores_count_by_their_entries_and_a_missing_object_is_one_wrong_item() -> None:
    won = {"score": 1, "gameOver": True, "gameWon": True}
    assert official_score(told([], score={"score": 1, "gameOver": True}), case(STATE, won)).score == pytest.approx(
        2 / 3
    )
    gone = official_score(told([], removed=[2]), case(STATE))
    assert gone.items == pytest.approx(2 / 3)  # lit and the room's contents are right, the cup is missing
    bare = official_score(told([{"uuid": 2, "contains": []}]), case(STATE))
    assert bare.items == pytest.approx(3 / 4) and bare.changed is None and not bare.void
