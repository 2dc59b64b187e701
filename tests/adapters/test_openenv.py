"""The door to OpenEnv, with the library itself: its validation, its client, and its servers as worlds."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from oneiro.worlds import make


@pytest.mark.thorough
def test_openenv_validates_a_served_world_and_a_served_world_plays_as_the_world_itself(
    with_library: Callable[..., Any],
) -> None:
    result = json.loads(with_library("openenv==0.10.*")("openenv_serves.py").split("RESULT ")[1])
    assert result["report"]["passed"] and result["report"]["summary"]["failed_criteria"] == []
    world = make("sokoban", max_actions=3)
    for index, word in enumerate(("Right", "Up")):  # two sessions at a time, each with its own world
        first, info = world.reset(seed=index, options={"split": "eval"})
        shown = result["firsts"][index]
        assert (shown["text"], shown["instruction"], shown["legal"]) == (first, world.instruction, list(world.actions))
        for _ in range(3):
            text, reward, terminated, truncated, _ = world.step(word)
        assert result["steps"][index] == {"text": text, "reward": reward, "done": terminated or truncated}
        if not index:
            assert result["state"]["episode_id"] == info["key"] and result["state"]["step_count"] == 3
    assert [task["index"] for task in result["tasks"]["tasks"]] == [4094, 4095]
    shown, _, actions, instruction, played = result["remote"]
    assert actions == list(world.actions) and instruction == world.instruction and "P" in shown
    assert [step[2] for step in played] == [False, False, True] and played[2][0] == played[1][0]
    assert result["again"], "the same seed draws the same level"
    assert "http://127.0.0.1:9 does not answer" in result["lost"]
    assert result["page"] == "<pre>&lt;script&gt;</pre>"
