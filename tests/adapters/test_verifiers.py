"""The door to verifiers, with the library itself: its validation, and its evaluation against a server of ours."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from oneiro.worlds import make


@pytest.mark.thorough
def test_verifiers_validates_levels_and_plays_them_turn_by_turn(with_library: Callable[..., Any]) -> None:
    printed = with_library("verifiers==0.4.*", "uv")("verifiers_eval.py")
    result = json.loads(printed.split("RESULT ")[1])
    assert result["valid"] == [True] * 8, "the oracle solves every level"
    assert sorted(game["seed"] for game in result["played"]) == [0, 0, 1, 1, 2, 2, 3, 3]
    world = make("sokoban")
    for game in result["played"]:
        world.reset(seed=game["seed"], options={"split": "eval"})
        steps = [world.step(action) for action in ("Right", "Down", "Right", "Down")]
        assert game["ok"] and game["rewards"]["return"] == pytest.approx(sum(step[1] for step in steps))
        assert game["rewards"]["success"] == steps[-1][4]["success"]
