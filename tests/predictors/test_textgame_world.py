"""A predictor behind the World interface."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from oneiro.predictors.textgame import TextGame, TextGameConfig
from oneiro.predictors.textgame_world import ImaginedGame
from oneiro.seeds import generator
from oneiro.worlds.textgame import world as true_world
from oneiro.worlds.textgame.crawl import record
from oneiro.worlds.textgame.games import GAMES
from oneiro.worlds.textgame.scene import Scene
from oneiro.worlds.textgame.state import Situation

task = TextGame(TextGameConfig(rules="none"))


def truth(situations: Sequence[Situation]) -> list[str]:
    """A predictor that knows the games by heart."""
    answers = []
    for situation in situations:
        scene = Scene.from_state(situation.state, situation.score, situation.uuid_base)
        assert scene is not None
        answers.append(task.perfect(record(GAMES[situation.game], scene, situation.action, "x/1", "train")))
    return answers


def worlds(game: str, predict: object = truth) -> tuple[true_world.TextGame, ImaginedGame]:
    config = true_world.TextGameConfig(game=game, view="json")
    return true_world.TextGame(config), ImaginedGame(task, predict, config)  # type: ignore[arg-type]


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


def test_what_is_no_command_is_not_even_predicted() -> None:
    def never(situations: Sequence[Situation]) -> list[str]:
        raise AssertionError("asked")

    _, imagined = worlds("mix-paint", never)
    imagined.reset(seed=0)
    assert not imagined.step("sing")[4]["valid"]
    assert imagined.oracle() is None and imagined.ceiling() is None
