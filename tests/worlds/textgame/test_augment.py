"""A step told otherwise: the same step, in other words."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from oneiro.tasks.textgame.predictor import TextGamePredictor, TextGamePredictorConfig
from oneiro.worlds.textgame.dataset import read_transitions
from oneiro.worlds.textgame.state import State, Transition, augment, edits, names_in

DATA = Path(__file__).parents[4] / "shared" / "data" / "bytesized32"


def thing(name: str, number: int, kind: str, *inside: str, **properties: Any) -> dict[str, Any]:
    called = f"{name} (ID: {number})"
    return {"name": called, "uuid": number, "type": kind, "properties": properties, "contains": list(inside)}


def step(action: str, before: State, after: State) -> Transition:
    return Transition(
        game="camp",
        task="",
        state=before,
        score={"score": 0},
        action=action,
        uuid_base=7,
        id="camp/1",
        split="train",
        after_action=after,
        after=after,
        score_after={"score": 0},
    )


FOREST = [
    thing("forest", 1, "World", "agent (ID: 0)", "tree (ID: 5)", "tree house (ID: 6)"),
    thing("agent", 0, "Agent", "axe (ID: 4)"),
    thing("axe", 4, "Axe", held="axe (ID: 4)"),
    thing("tree", 5, "Tree", tied={"tree house (ID: 6)": 2}),
    thing("tree house", 6, "House"),
]
FELLED = [
    FOREST[0] | {"contains": ["agent (ID: 0)", "felled tree (ID: 5)", "tree house (ID: 6)", "leaf (ID: 7)"]},
    *FOREST[1:3],
    thing("felled tree", 5, "Tree", tied={"tree house (ID: 6)": 2}),
    FOREST[4],
    thing("leaf", 7, "Leaf"),
]


def test_names_and_numbers_change_everywhere_alike() -> None:
    case = step("chop tree (ID: 5) with axe (ID: 4), not the tree house", FOREST, FELLED)
    told = augment(case, np.random.default_rng(3), ["lamp", "jug", "stool"])
    before = {thing["type"]: thing for thing in told.state}
    numbers = {kind: before[kind]["uuid"] for kind in ("Axe", "Tree", "House")}
    names = {kind: before[kind]["name"].partition(" (ID")[0] for kind in numbers}
    assert sorted(numbers.values()) == [4, 5, 6] and sorted(names.values()) == ["jug", "lamp", "stool"]
    called = {kind: f"{names[kind]} (ID: {numbers[kind]})" for kind in numbers}
    assert before["World"]["contains"] == ["agent (ID: 0)", called["Tree"], called["House"]]
    assert before["Agent"]["contains"] == [called["Axe"]] and before["Axe"]["properties"] == {"held": called["Axe"]}
    assert before["Tree"]["properties"] == {"tied": {called["House"]: 2}}
    assert told.action == f"chop {called['Tree']} with {called['Axe']}, not the {names['House']}"
    after = {thing["type"]: thing for thing in told.after}
    assert after["Tree"]["name"] == f"felled {called['Tree']}" and after["Leaf"] == thing("leaf", 7, "Leaf")
    assert FOREST[3]["name"] == "tree (ID: 5)"  # states are shared: none was changed in place


def test_a_new_name_that_holds_another_old_one_is_not_told_again() -> None:
    case = step("put axe (ID: 4) in tree house (ID: 6)", FOREST, FOREST)
    for seed in range(6):
        told = augment(case, np.random.default_rng(seed), ["tree fork", "axe handle", "old tree house"])
        called = {thing["type"]: thing["name"] for thing in told.state}
        assert told.action == f"put {called['Axe']} in {called['House']}"


def test_all_commands_in_a_state_are_told_alike() -> None:
    wait, chop = step("wait", FOREST, FOREST), step("chop tree (ID: 5)", FOREST, FELLED)
    told = [augment(case, np.random.default_rng(1), ["lamp", "jug", "stool"]) for case in (wait, chop)]
    assert told[0].state == told[1].state != FOREST


def test_objects_without_numbers_only_change_places() -> None:
    state = [{"name": name, "uuid": i, "type": "", "properties": {}, "contains": []} for i, name in enumerate("abcdef")]
    told = augment(step("take a", state, state), np.random.default_rng(0), ["lamp"])
    assert told.action == "take a" and told.state != state
    assert sorted(told.state, key=lambda thing: thing["uuid"]) == state


@pytest.mark.skipif(not DATA.exists(), reason="needs the ByteSized32 files in ../shared/data")
def test_real_steps_change_as_much_as_before_and_their_answers_stay_right() -> None:
    cases = [case for number, case in enumerate(read_transitions(DATA / "test.jsonl.gz")) if number % 15 == 0]
    names, task = (
        names_in([case.state for case in cases]),
        TextGamePredictor(TextGamePredictorConfig(output="edits", brief=True)),
    )
    assert len(names) > 50
    kept = 0
    for number, case in enumerate(cases):
        told = augment(case, np.random.default_rng(number), names)
        assert len(edits(told.state, told.after)) == len(edits(case.state, case.after)), case.id
        assert task.exact(task.target(told), told)
        kept += json.dumps(told.state) == json.dumps(case.state)
    assert kept == 0
