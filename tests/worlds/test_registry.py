"""Worlds by name, with settings that explain themselves when they are wrong."""

from __future__ import annotations

import subprocess
import sys

import pytest

from oneiro.runtime.errors import OneiroError
from oneiro.worlds import make, names
from oneiro.worlds.registry import WORLDS, config_for, register, world_class


def test_settings_override_the_variant_and_the_variant_the_defaults() -> None:
    config = config_for("frozen-lake:6x6-slippery", {"success_rate": 0.5})
    assert (config.size, config.success_rate, config.frozen_probability) == (6, 0.5, 0.8)


def test_unknown_names_and_settings_say_what_was_meant() -> None:
    with pytest.raises(OneiroError, match="did you mean 'frozen-lake'"):
        make("frozenlake")
    with pytest.raises(OneiroError, match="did you mean 'slippery'"):
        make("frozen-lake:slipery")
    with pytest.raises(OneiroError, match="no setting 'sise'; did you mean 'size'"):
        make("frozen-lake", sise=5)
    with pytest.raises(OneiroError, match="size: Input should be greater than or equal to 2"):
        make("frozen-lake", size=1)
    with pytest.raises(OneiroError, match="has no view 'coords'; did you mean 'coordinates'"):
        make("frozen-lake", view="coords")


def test_every_registered_world_and_variant_can_be_made_and_shown() -> None:
    """The tests of Chromium and of webarena-infinity show what needs them."""
    for name in names(variants=True):
        if name.partition(":")[0] in ("miniwob", "webarena-infinity") or name == "web:chromium":
            continue
        world = make(name)
        observation, info = world.reset(seed=1)
        assert observation == world.render() and info["key"] and world.instruction
        assert world.name == name.partition(":")[0]


def test_a_world_can_be_registered_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("oneiro.worlds.registry.WORLDS", dict(WORLDS))
    register("pond", "oneiro.worlds.grid.frozen_lake.world:FrozenLake")
    assert world_class("pond") is world_class("frozen-lake") and "pond" in names()
    register("swamp", "oneiro.worlds.grid.frozen_lake.world:Swamp")
    with pytest.raises(OneiroError, match="'swamp' cannot be loaded"):
        make("swamp")
    with pytest.raises(OneiroError, match="colon"):
        register("pond:deep", "oneiro.worlds.grid.frozen_lake.world:FrozenLake")


def test_a_class_can_be_registered_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("oneiro.worlds.registry.WORLDS", dict(WORLDS))
    lake = world_class("frozen-lake")
    register("pool", lake)
    assert world_class("pool") is lake and make("pool:6x6").config.size == 6
    for wrong in (make("frozen-lake"), str, 3, None):
        with pytest.raises(OneiroError, match=r"world 'puddle': .* is not a World class"):
            register("puddle", wrong)
    assert "puddle" not in names()


def test_worlds_load_without_torch_and_without_each_other() -> None:
    lazy = "torch", "oneiro.worlds.grid.frozen_lake"
    code = f"import sys, oneiro.worlds; sys.exit(any(module in sys.modules for module in {lazy}))"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
