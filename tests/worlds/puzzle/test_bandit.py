"""Bandit: the same prompt for a group, honest odds, names that do not leak."""

from __future__ import annotations

import numpy as np
import pytest

from oneiro.worlds import make
from oneiro.worlds.puzzle.bandit import RISKY, STEADY


def test_arms_pay_as_stated() -> None:
    world = make("bandit")
    paid = {"better": [], "worse": []}
    for member in range(1500):
        world.reset(seed=4, options={"member": member})
        better = world.oracle()
        worse = next(name for name in world.actions if name != better)
        kind, name = ("better", better) if member % 3 else ("worse", worse)
        _, reward, done, _, info = world.step(name.upper())
        paid[kind].append(reward)
        assert done and info["success"] == (kind == "better")
    assert set(paid["worse"]) == {0.1}
    # Four standard errors of a thousand draws.
    assert set(paid["better"]) == {0.0, 1.0} and np.mean(paid["better"]) == pytest.approx(0.25, abs=0.055)


def test_a_group_sees_one_prompt_and_other_groups_others() -> None:
    world = make("bandit")
    prompts = [{world.reset(seed=seed, options={"member": m})[0] for m in range(6)} for seed in range(20)]
    assert all(len(seen) == 1 for seen in prompts)
    assert len(set().union(*prompts)) > 10


def test_no_name_is_in_both_splits() -> None:
    world = make("bandit")
    seen = {split: set() for split in ("train", "eval")}
    for split, names in seen.items():
        for seed in range(300):
            world.reset(seed=seed, options={"split": split})
            names.update(world.actions)
    assert not seen["train"] & seen["eval"] and len(seen["eval"]) >= 10
    assert not set(STEADY) & set(RISKY)


def test_reversed_names_mislead() -> None:
    world = make("bandit:reversed")
    world.reset(seed=0)
    assert world.oracle() in STEADY
    world = make("bandit")
    world.reset(seed=0)
    assert world.oracle() in RISKY


def test_an_unknown_arm_is_no_pull() -> None:
    world = make("bandit", max_actions=2)
    world.reset(seed=0)
    assert world.step("both")[1:4] == (0.0, False, False)
    assert world.step("neither")[1:4] == (0.0, False, True)
