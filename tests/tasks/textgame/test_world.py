"""A predictor behind the World interface."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from oneiro.runtime.seeds import generator
from oneiro.tasks.textgame.model import LearnedTextGame
from oneiro.tasks.textgame.predictor import TextGamePredictor, TextGamePredictorConfig
from oneiro.tasks.textgame.rollout import possible, search_in_model, true_predictor
from oneiro.worlds.textgame import world as true_world
from oneiro.worlds.textgame.crawl import record
from oneiro.worlds.textgame.games import GAMES
from oneiro.worlds.textgame.scene import Scene
from oneiro.worlds.textgame.state import Situation

task = TextGamePredictor(TextGamePredictorConfig(rules="none"))


def truth(situations: Sequence[Situation]) -> list[str]:
    """A predictor that knows the games by heart."""
    answers = []
    for situation in situations:
        scene = Scene.from_state(situation.state, situation.score, situation.uuid_base)
        assert scene is not None
        answers.append(task.perfect(record(GAMES[situation.game], scene, situation.action, "x/1", "train")))
    return answers


def worlds(game: str, predict: object = truth) -> tuple[true_world.TextGame, LearnedTextGame]:
    config = true_world.TextGameConfig(game=game, view="json")
    return true_world.TextGame(config), LearnedTextGame(task, predict, config)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["brew-tea", "grow-beans", "open-chest", "roast-marshmallow"])
def test_inside_a_perfect_predictor_nobody_can_tell_the_difference(name: str) -> None:
    true, imagined = worlds(name)
    rng = generator("imagined", name)
    assert true.reset(seed=1) == imagined.reset(seed=1)
    while not true.over:
        command = (true.oracle() if rng.random() < 0.6 else None) or true.random_action(rng)
        shown, reward, terminated, truncated, info = true.step(command)
        told = imagined.step(command)
        assert told[:4] == (shown, reward, terminated, truncated)
        assert all(told[4][key] == info[key] for key in ("valid", "effective", "success"))


@pytest.mark.parametrize("answer", ["nonsense", '{"modified": [], "removed": [0, 1], "score": {}}'])
def test_an_answer_that_makes_no_sense_changes_nothing_and_is_counted(answer: str) -> None:
    _, imagined = worlds("mix-paint", lambda situations: [answer] * len(situations))
    before, _ = imagined.reset(seed=0)
    after, reward, terminated, truncated, info = imagined.step("wait")
    assert (after, reward, terminated, truncated) == (before, 0.0, False, False)
    assert info["malformed"] and info["valid"] and not info["effective"]


def test_a_predicted_score_pays_no_more_than_everything() -> None:
    boast = '{"modified": [], "removed": [], "score": {"score": 1000, "gameOver": true, "gameWon": true}}'
    _, imagined = worlds("mix-paint", lambda situations: [boast])
    imagined.reset(seed=0)
    assert imagined.step("wait")[1:3] == (1.0, True)


def told(score: Any) -> str:
    return json.dumps({"modified": [], "removed": [], "score": {"score": score, "gameOver": False, "gameWon": False}})


def test_a_score_that_falls_and_rises_again_is_paid_once() -> None:
    _, imagined = worlds("mix-paint", lambda situations: [told(0 if situations[0].score["score"] else 1)])
    imagined.reset(seed=0)
    assert [imagined.step("wait")[1] for _ in range(6)] == [0.5, 0.0, 0.0, 0.0, 0.0, 0.0]
    imagined.reset(seed=0)
    assert imagined.step("wait")[1] == 0.5


@pytest.mark.parametrize("score", ["1", None, [1], True, 10**30])
def test_a_score_that_is_no_number_is_no_prediction(score: Any) -> None:
    _, imagined = worlds("mix-paint", lambda situations: [told(score)])
    imagined.reset(seed=0)
    _, reward, *_, info = imagined.step("wait")
    assert reward == 0.0 and info["malformed"]
    endless = told(0).replace('"score": 0', '"score": 1e999')
    _, imagined = worlds("mix-paint", lambda situations: [endless])
    imagined.reset(seed=0)
    assert imagined.step("wait")[4]["malformed"]


@pytest.mark.parametrize("value", [[1, 2], {"a": 1}, None, ["x"]])
def test_any_value_of_a_property_can_be_shown(value: Any) -> None:
    def odd(situations: Sequence[Situation]) -> list[str]:
        (room,) = (thing for thing in situations[0].state if thing["uuid"] == 1)
        changed = {**room, "properties": {**room["properties"], "mood": value}}
        return [json.dumps({"modified": [changed], "removed": [], "score": {}})]

    _, imagined = worlds("mix-paint", odd)
    imagined.reset(seed=0)
    assert not imagined.step("wait")[4]["malformed"] and "mood" in imagined.render("text")


def test_what_is_no_command_is_not_even_predicted() -> None:
    def never(situations: Sequence[Situation]) -> list[str]:
        raise AssertionError("asked")

    _, imagined = worlds("mix-paint", never)
    imagined.reset(seed=0)
    assert not imagined.step("sing")[4]["valid"]
    assert imagined.oracle() is None and imagined.ceiling() is None


# Hostile predictions --------------------------------------------------------------------------------------------------

NASTY: list[Any] = [None, -1, 10**40, 10**4000, 1e308, "hot", "", [], ["x"], {"a": 1}, {"isOpen": [1]}, True, 0.5]
FIELDS = ("name", "uuid", "type", "properties", "contains")


def mutated(state: list[Any], rng: np.random.Generator) -> dict[str, Any]:
    """A state with one to three slips such as a model makes: a value of another kind, a thing gone, another type."""
    removed: list[Any] = []
    state = json.loads(json.dumps(state))
    for _ in range(int(rng.integers(1, 4))):
        thing = state[int(rng.integers(len(state)))]
        value = NASTY[int(rng.integers(len(NASTY)))]
        kind = int(rng.integers(8))
        if kind == 0 and len(state) > 2:
            state.remove(thing)
            removed.append(thing["uuid"])
            for other in state:  # gone for good, so that the rest may still be a tree
                if isinstance(other["contains"], list):
                    other["contains"] = [name for name in other["contains"] if name != thing["name"]]
        elif kind == 1:
            thing[FIELDS[int(rng.integers(len(FIELDS)))]] = value
        elif kind == 2 and isinstance(thing.get("type"), str):
            thing["type"] = state[int(rng.integers(len(state)))].get("type")
        elif isinstance(thing.get("properties"), dict) and thing["properties"]:
            keys = sorted(thing["properties"])
            key = keys[int(rng.integers(len(keys)))]
            if kind == 3:
                del thing["properties"][key]
            else:
                thing["properties"][key] = value
    return {"modified": state, "removed": removed}


@pytest.mark.parametrize("name", sorted(GAMES))
def test_a_learned_world_is_total_whatever_is_predicted(name: str) -> None:
    """Play, look, plan and go on with the true rules inside of mutated predictions: nothing raises."""
    rng = generator("mutated", name)
    taken = 0

    def predict(situations: Sequence[Situation]) -> list[str]:
        return [json.dumps({**mutated(now.state, rng), "score": now.score}) for now in situations]

    _, imagined = worlds(name, predict)
    for seed in range(4):
        imagined.reset(seed=seed)
        for _ in range(4):
            shown, _, _, _, info = imagined.step(imagined.random_action(rng))
            assert isinstance(shown, str) and imagined.render("text") and imagined.scene.key()
            assert isinstance(imagined.commands(), list) and imagined.plan() is None
            taken += not info["malformed"]
        situation = imagined.situation("wait")
        assert len(true_predictor(task)([replace(situation, action=c) for c in imagined.commands()[:20]])) > 0
        search_in_model(task, predict, imagined.game.situation(imagined.scene), possible(imagined.game), depth=2)
    assert taken > 1  # many of them are taken for true: the world goes on in them
