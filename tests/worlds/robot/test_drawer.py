"""The robot as a world: actions in words, a state that reads back, one clear line without its packages."""

from __future__ import annotations

import importlib

import numpy as np
import pytest

from oneiro import worlds
from oneiro.runtime.errors import OneiroError
from oneiro.worlds.registry import world_class
from oneiro.worlds.robot import simulator
from oneiro.worlds.robot.drawer import Robot, read_action, write_action


@pytest.fixture(scope="module")
def world() -> Robot:
    try:
        made = worlds.make("robot:drawer-open", max_actions=30)
    except OneiroError as error:
        pytest.skip(str(error))
    assert isinstance(made, Robot)
    return made


def test_the_oracle_reaches_the_ceiling_and_the_episode_ends(world: Robot) -> None:
    world.reset(seed=3, options={"split": "eval"})
    assert world.ceiling() == 1.0
    before = world.render()
    while not world.over:
        _, reward, terminated, truncated, info = world.step(world.oracle() or "")
        assert info["valid"] and info["effective"]
    assert before != world.render() and reward == 1 and terminated and not truncated and info["success"]
    assert world.taken < 30 and world.oracle() is None and world.ceiling() == 1.0
    assert world.step("0 0 0 0")[1] == 0


def test_what_is_not_an_action_costs_one_and_changes_nothing(world: Robot) -> None:
    shown, _ = world.reset(seed=0)
    for text in ("", "up", "1 2 3", "1 2 3 nan", "1 2 3 inf", "1 2 3 4 5", "9" * 100_000, "0 0 0 __import__('os')"):
        observed, reward, _, _, info = world.step(text)
        assert observed == shown and reward == 0 and not info["valid"] and not info["effective"]
    assert world.taken == 8
    assert world.step("0.5, 0, 99, -1")[4]["valid"]


def test_numbers_are_clipped_and_read_back() -> None:
    action = read_action("2 -3 0.25 1e-1")
    assert action is not None and action.tolist() == [1, -1, 0.25, 0.1]
    again = read_action(write_action(np.array([0.1234, -1, 0, 1])))
    assert again is not None and again.tolist() == [0.123, -1, 0, 1]


def test_the_state_in_words_reads_back_and_the_frame_is_the_same_state(world: Robot) -> None:
    shown, info = world.reset(seed=5)
    assert world.parse(shown) == world.state and world.parse("hand up") is None and world.parse("x" * 10_000) is None
    assert f"{info['side']:.3f}" in shown
    assert world.frame().shape == (64, 64, 3)


def test_tasks_are_variants_and_settings_have_bounds() -> None:
    assert world_class("robot:drawer-close").variants["drawer-close"] == {"task": "drawer-close"}
    with pytest.raises(OneiroError, match="did you mean 'drawer-open'"):
        worlds.make("robot:drawer-opn")
    with pytest.raises(OneiroError, match="action_repeat"):
        worlds.make("robot", action_repeat=0)


def test_without_its_packages_the_check_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulator, "find_spec", lambda name: None)
    with pytest.raises(OneiroError, match=r"robot worlds need the package mujoco; run: pip install"):
        worlds.check("robot:drawer-open")


@pytest.mark.thorough
def test_the_robot_keeps_every_promise_of_a_world(world: Robot, monkeypatch: pytest.MonkeyPatch) -> None:
    module = importlib.import_module("oneiro.worlds.check")
    monkeypatch.setattr(module, "LEVELS", 6)
    monkeypatch.setattr(module, "MEMBERS", 2)
    findings = worlds.check("robot:drawer-close")
    assert [finding.message for finding in findings if finding.status == "error"] == []
