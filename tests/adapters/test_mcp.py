"""The door to MCP, with the official library: a client plays a world by its tools."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from oneiro.worlds import make


@pytest.mark.thorough
def test_a_client_plays_a_world_by_its_tools(with_library: Callable[..., Any]) -> None:
    result = json.loads(with_library("mcp==2.*")("mcp_plays.py").split("RESULT ")[1])
    world = make("frozen-lake", view="spaced")
    for place in ("here", "there"):  # in its own process, and behind a pipe
        played = result[place]
        assert played["tools"] == {"reset": ["seed", "split"], "act": ["action", "episode"]}
        state, _ = world.reset(seed=3, options={"split": "eval"})
        first = played["first"]
        assert first["state"] == state and first["actions"] == list(world.actions or ())
        assert first["instruction"] == world.instruction and first["episode"] != played["other"]["episode"]
        for step in played["steps"]:
            state, reward, terminated, truncated, info = world.step("Down")
            over = terminated or truncated
            assert step == {"state": state, "reward": reward, "over": over, "success": info["success"]}
        assert played["steps"][-1]["success"] and "no episode 1 is open; reset begins one" in played["lost"]
        assert not played["beside"]["over"]
