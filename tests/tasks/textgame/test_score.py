"""The sound scorer and its shaped reward, on cases worked by hand."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oneiro.tasks.textgame import prompt as textgame_prompt
from oneiro.tasks.textgame.parse import Output
from oneiro.tasks.textgame.predictor import TextGamePredictor, TextGamePredictorConfig
from oneiro.tasks.textgame.score import AskedStep, Error, judge
from oneiro.worlds.textgame.crawl import CrawlConfig, crawl
from oneiro.worlds.textgame.games import GAMES
from oneiro.worlds.textgame.state import Score, Situation, State, Transition

SCORE = {"score": 0, "gameOver": False, "gameWon": False}
WON = {"score": 1, "gameOver": True, "gameWon": True}


def thing(uuid: int, noun: str, contains: tuple[str, ...] = (), **properties: Any) -> dict[str, Any]:
    name = f"{noun} (ID: {uuid})"
    return {"name": name, "uuid": uuid, "type": noun.title(), "properties": properties, "contains": list(contains)}


ROOM = thing(1, "room", ("cup (ID: 2)", "egg (ID: 3)"))
CUP, EGG = thing(2, "cup", full=False, heat=20), thing(3, "egg", raw=True)
STATE = [ROOM, CUP, EGG]


def case(after: State, score_after: dict[str, Any] = SCORE, middle: State | None = None) -> Transition:
    return Transition(
        id="x/1", split="test", game="x", task="Cook.", state=STATE, score=SCORE, action="cook", uuid_base=4,
        after_action=middle if middle is not None else after, after=after, score_after=score_after,
    )  # fmt: skip


# The egg vanishes out of the room, a meal appears there, the cup gets hot, and the game is won.
MEAL = thing(4, "meal", tasty=True)
COOKED = case([thing(1, "room", ("cup (ID: 2)", "meal (ID: 4)")), thing(2, "cup", full=False, heat=90), MEAL], WON)
TRUE_EDITS = 1 + 1 + 2 + 4 + 1 + 3
"""Egg gone; cup hot; room loses egg and gains meal; meal's uuid, name, type, property; meal exists; score entries."""

task = TextGamePredictor(TextGamePredictorConfig(rules="none", reward="shaped"))


def told(modified: list[dict[str, Any]], removed: list[int], score: dict[str, Any] | None = None) -> str:
    return json.dumps({"modified": modified, "removed": removed} | ({"score": score} if score is not None else {}))


def full(**changes: Any) -> str:
    """The right answer to COOKED, with some objects exchanged."""
    parts: dict[str, Any] = {"room": COOKED.after[0], "cup": COOKED.after[1], "meal": MEAL} | changes
    return told([parts["room"], parts["cup"], parts["meal"]], [3], changes.get("score", WON))


def test_the_right_answer_is_exact_and_worth_one() -> None:
    outcome = task.judge(full(), COOKED)
    assert (outcome.true, outcome.claimed, outcome.right) == (TRUE_EDITS, TRUE_EDITS, TRUE_EDITS)
    assert outcome.exact and outcome.overlap == 1.0 and outcome.shaped == 1.0
    assert task.target(COOKED) == json.dumps(json.loads(full()), separators=(",", ":"))


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (told([COOKED.after[0], COOKED.after[1], MEAL], [], WON), Error.MISSED),  # the egg is still there
        (told([COOKED.after[0], COOKED.after[1]], [3], WON), Error.MISSED),  # no meal
        (full(score=SCORE), Error.MISSED),
        (full(score={"score": 1, "gameOver": True}), Error.VALUE),  # an entry is gone: not true, but not there
        (told([COOKED.after[0], COOKED.after[1], MEAL], [3]), Error.VALUE),  # no score at all
        (full(cup=thing(2, "cup", full=False, heat=91)), Error.VALUE),
        (full(cup=thing(2, "cup", full=False, heat=True)), Error.VALUE),
        (full(cup=thing(2, "cup", full=0, heat=90)), Error.INVENTED),
        (full(cup=thing(2, "cup", full=False, heat=90, new=1)), Error.INVENTED),
        (full(cup={**COOKED.after[1], "colour": "red"}), Error.INVENTED),
        (full(cup={**COOKED.after[1], "name": "mug (ID: 2)"}), Error.INVENTED),
        (full(cup={**COOKED.after[1], "type": "Mug"}), Error.INVENTED),
        (full(cup={key: value for key, value in COOKED.after[1].items() if key != "type"}), Error.INVENTED),
        (full(cup={key: value for key, value in COOKED.after[1].items() if key != "contains"}), Error.INVENTED),
        (full(meal={key: value for key, value in MEAL.items() if key != "contains"}), Error.INVENTED),
        (full(room={key: value for key, value in COOKED.after[0].items() if key != "properties"}), Error.INVENTED),
        (full(meal={**MEAL, "name": "soup (ID: 4)"}), Error.VALUE),
        (full(meal={**MEAL, "type": "Soup"}), Error.VALUE),
        (full(meal={**MEAL, "uuid": 5}), Error.MISSED),
        (told([*COOKED.after, thing(8, "pan")], [3], WON), Error.INVENTED),
        (told(COOKED.after, [3, 2], WON), Error.MALFORMED),  # the cup is modified and removed
        (told(COOKED.after, [3, 99], WON), Error.INVENTED),
        ("no idea", Error.MALFORMED),
    ],
)
def test_everything_that_differs_from_the_truth_counts_and_has_its_kind(answer: str, kind: Error) -> None:
    outcome = task.judge(answer, COOKED)
    assert not outcome.exact and outcome.shaped < 1.0
    assert kind in outcome.errors


def test_order_is_free_and_unchanged_objects_may_be_repeated() -> None:
    room = thing(1, "room", ("meal (ID: 4)", "cup (ID: 2)"))
    assert task.judge(told([MEAL, room, COOKED.after[1]], [3], WON), COOKED).exact
    still = case(STATE)
    assert task.judge(told([CUP, EGG], [], SCORE), still).exact
    assert task.judge(told([], [], {}), still).exact


def test_the_shaped_reward_is_half_the_overlap_until_the_answer_is_exact() -> None:
    # Only the cup is right: 1 of 12 true edits, nothing else claimed.
    assert task.judge(told([COOKED.after[1]], [], {}), COOKED).shaped == pytest.approx(0.5 * 1 / TRUE_EDITS)
    # The cup right and one invented property: the union grows by one.
    cup = thing(2, "cup", full=True, heat=90)
    assert task.judge(told([cup], [], {}), COOKED).shaped == pytest.approx(0.5 * 1 / (TRUE_EDITS + 1))
    # A wrong value for the cup earns nothing.
    assert task.judge(told([thing(2, "cup", full=False, heat=50)], [], {}), COOKED).shaped == 0.0


def test_no_change_earns_nothing_where_something_changes_and_all_where_nothing_does() -> None:
    assert task.reward(task.no_change(COOKED), COOKED).value == 0.0
    assert task.reward(task.no_change(case(STATE)), case(STATE)).value == 1.0
    assert task.reward(told([thing(2, "cup", full=True, heat=20)], [], SCORE), case(STATE)).value == 0.0


def test_the_terms_of_a_reward_sum_to_it() -> None:
    for kind in ("binary", "task", "shaped"):
        paid = TextGamePredictor(TextGamePredictorConfig(rules="none", reward=kind))
        for answer in (full(), full(score=SCORE), "?"):
            reward = paid.reward(answer, COOKED)
            assert sum(reward.terms.values()) == pytest.approx(reward.value)
            low, high = paid.reward_range
            assert low <= reward.value <= high


def everything_true(found: Transition) -> str:
    """Every yes-or-no property becomes true."""
    flipped = [
        {**o, "properties": {k: True if isinstance(v, bool) else v for k, v in o["properties"].items()}}
        for o in found.state
    ]
    return told(flipped, [], found.score)


def all_flipped(found: Transition) -> str:
    flipped = [
        {**o, "properties": {k: not v if isinstance(v, bool) else v for k, v in o["properties"].items()}}
        for o in found.state
    ]
    return told(flipped, [], found.score)


def always_won(found: Transition) -> str:
    return told([], [], {"score": 1, "gameOver": True, "gameWon": True})


def numbers_up(found: Transition) -> str:
    up = [
        {**o, "properties": {k: v + 1 if type(v) is int else v for k, v in o["properties"].items()}}
        for o in found.state
    ]
    return told(up, [], found.score)


DEGENERATE: dict[str, Callable[[Transition], str]] = {
    "no change": task.no_change,
    "repeat the state": lambda found: told(found.state, [], found.score),
    "remove everything": lambda found: told([], [thing["uuid"] for thing in found.state], found.score),
    "empty objects": lambda found: told([{"uuid": thing["uuid"]} for thing in found.state], [], found.score),
    "everything true": everything_true,
    "all flipped": all_flipped,
    "always won": always_won,
    "numbers up": numbers_up,
    "a new object": lambda found: told([thing(found.uuid_base, "thing")], [], found.score),
    "no score": lambda found: told([], []),
    "empty lists": lambda found: '{"modified": [], "removed": []}',
    "the prompt": lambda found: task.prompt(found)[0]["content"],
    "nothing": lambda found: "",
}


def test_no_degenerate_answer_can_farm_the_shaped_reward() -> None:
    """On steps that change something each earns next to nothing; the published reward pays some of them well."""
    rows = [found for found in crawl(GAMES, "train", CrawlConfig(levels=1, max_steps=4)) if found.changed]
    published = TextGamePredictor(TextGamePredictorConfig(rules="none", reward="task"))
    mean = {name: sum(task.reward(f(c), c).value for c in rows) / len(rows) for name, f in DEGENERATE.items()}
    assert len(rows) > 100
    assert max(mean.values()) < 0.05, mean
    assert mean["no change"] == mean["repeat the state"] == mean["nothing"] == 0.0
    farmed = sum(published.reward(task.no_change(c), c).value for c in rows) / len(rows)
    assert farmed > 0.08


def test_each_kind_of_transition_compares_its_own_states() -> None:
    middle = [ROOM, thing(2, "cup", full=True, heat=20), EGG]
    after = [ROOM, thing(2, "cup", full=True, heat=30), EGG]
    found = case(after, WON, middle)
    right = {
        "action": told([middle[1]], []),
        "tick": told([after[1]], []),
        "full": told([after[1]], [], WON),
        "score": json.dumps(WON),
    }
    for kind, answer in right.items():
        asked = TextGamePredictor(TextGamePredictorConfig(rules="none", transition=kind))
        assert asked.target(found) == json.dumps(json.loads(answer), separators=(",", ":"))
        assert asked.judge(answer, found).exact
        for other in {"action", "tick"} - {kind}:
            assert not asked.judge(right[other], found).exact, (kind, other)
        assert not asked.judge(asked.no_change(found), found).exact


def test_whole_states_are_judged_like_differences() -> None:
    asked = TextGamePredictor(TextGamePredictorConfig(rules="none", output="full"))
    assert asked.judge(asked.target(COOKED), COOKED).exact
    short = json.dumps({"game_state": [*COOKED.after[:2], WON]})
    assert asked.judge(short, COOKED).errors == {Error.MISSED: 6 - 1}  # the meal: existence and 4 entries
    assert asked.judge(asked.no_change(COOKED), COOKED).overlap == 0.0


def test_an_edit_that_takes_a_thing_from_the_wrong_place_is_invented_and_the_rest_still_counts() -> None:
    asked = TextGamePredictor(TextGamePredictorConfig(rules="none", output="edits"))
    found = case([thing(1, "room", ("egg (ID: 3)",)), thing(2, "cup", full=False, heat=20), thing(3, "egg", raw=True)])
    for holder, errors, overlap in ((1, {}, 1.0), (3, {Error.MISSED: 1, Error.INVENTED: 1}, 0.0)):
        entry = {"uuid": holder, "dropped": ["cup (ID: 2)"]}
        outcome = asked.judge(json.dumps({"edited": [entry], "removed": [], "score": {}}), found)
        assert (outcome.errors, outcome.overlap) == (errors, overlap)
    moved = case([thing(1, "room", ("egg (ID: 3)",)), CUP, thing(3, "egg", ("cup (ID: 2)",), raw=True)])
    entries = [{"uuid": 3, "added": ["cup (ID: 2)"]}, {"uuid": 2, "dropped": ["cup (ID: 2)"]}]
    outcome = asked.judge(json.dumps({"edited": entries, "removed": [], "score": {}}), moved)
    assert (outcome.true, outcome.claimed, outcome.right, outcome.overlap) == (2, 2, 1, 1 / 3)


def test_metrics_do_not_depend_on_the_training_reward() -> None:
    answers = (full(), full(score=SCORE), "?")
    tables = [
        [
            TextGamePredictor(TextGamePredictorConfig(rules="none", reward=kind)).metrics(answer, COOKED)
            for answer in answers
        ]
        for kind in ("binary", "task", "shaped")
    ]
    assert tables[0] == tables[1] == tables[2]
    assert [row["exact"] for row in tables[0]] == [1.0, 0.0, 0.0]
    assert [row["parsed"] for row in tables[0]] == [1.0, 1.0, 0.0]


VALUES = st.sampled_from([None, True, False, 0, 1, 1.5, "x", [1, 2], {"a": True}])
THINGS = st.fixed_dictionaries(
    {
        "name": st.sampled_from(["cup", "mug"]),
        "type": st.sampled_from(["Cup", "Mug"]),
        "properties": st.dictionaries(st.sampled_from("ab"), VALUES),
        "contains": st.lists(st.sampled_from(["egg", "tea"]), max_size=3),
    }
)
STATES = st.dictionaries(st.integers(0, 2), THINGS).map(
    lambda found: [{"uuid": uuid, **entries} for uuid, entries in found.items()]
)
SCORES = st.fixed_dictionaries({"score": st.sampled_from([0, 1]), "gameOver": st.booleans(), "gameWon": st.just(False)})


@pytest.mark.parametrize("output", ["difference", "edits", "full"])
@given(before=STATES, after=STATES, other=STATES, scores=st.tuples(SCORES, SCORES, SCORES))
def test_the_answer_of_any_form_is_exact_just_for_the_state_it_tells_of(
    output: Output, before: State, after: State, other: State, scores: tuple[Score, Score, Score]
) -> None:
    true, told = AskedStep(before, after, *scores[:2]), AskedStep(before, other, scores[0], scores[2])
    asked = TextGamePredictor(TextGamePredictorConfig(rules="none", output=output))
    situation = Situation(game="x", task="", state=before, score=scores[0], action="", uuid_base=3)
    agree = canonical(after, scores[1]) == canonical(other, scores[2])
    assert judge(true, asked.parse(textgame_prompt.answer(true, "full", output), situation)).exact
    assert judge(true, asked.parse(textgame_prompt.answer(told, "full", output), situation)).exact == agree


def canonical(state: State, score: Score) -> str:
    """Equal texts for equal states: by uuid, contents sorted; JSON tells true from 1."""
    things = [{**thing, "contains": sorted(thing["contains"])} for thing in sorted(state, key=lambda t: t["uuid"])]
    return json.dumps([things, score], sort_keys=True)
