"""Worlds by name, with settings that explain themselves when they are wrong."""

from __future__ import annotations

import subprocess
import sys
import warnings
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv, VectorEnv

from oneiro.runtime.errors import OneiroError
from oneiro.worlds import World, make, names
from oneiro.worlds.base import ResetNeeded
from oneiro.worlds.grid.frozen_lake.world import FrozenLake
from oneiro.worlds.grid.vector import make_batch
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


SHIPPED = sorted(WORLDS)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.thorough) if name == "miniwob" else name for name in names()]
)
def test_gymnasiums_checker_finds_nothing_in_any_world(name: str, request: pytest.FixtureRequest) -> None:
    if name == "robot" and find_spec("metaworld") is None:  # an import would choose MuJoCo's renderer before we do
        pytest.skip("needs Meta-World (pip install oneiro[robot])")
    if name == "miniwob":
        request.getfixturevalue("chromium")
    if name == "webarena-infinity":
        pytest.skip("needs a clone of the project")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        world = gymnasium.make(f"oneiro/{name}-v0").unwrapped
        check_env(world)
    assert isinstance(world, World) and world.spec is not None and world.spec.id == f"oneiro/{name}-v0"


def test_a_step_before_reset_is_refused_by_every_world() -> None:
    for name in SHIPPED:
        if name == "robot":
            continue  # asks the same base class, and starts a simulator
        with pytest.raises(ResetNeeded, match=f"world '{name}' has no episode yet: call reset before step"):
            make(name).step("Up")
    assert issubclass(ResetNeeded, OneiroError)


def test_gymnasium_takes_variants_settings_and_the_text_render_mode() -> None:
    env = gymnasium.make("oneiro/sokoban-v0", variant="two-boxes", max_actions=3, render_mode="ansi")
    world = env.unwrapped
    assert (world.config.boxes, world.config.max_actions, env.render_mode) == (2, 3, "ansi")
    first, info = env.reset(seed=7, options={"split": "eval"})
    alone = make("sokoban:two-boxes", max_actions=3)
    assert (first, info) == alone.reset(seed=7, options={"split": "eval"})
    assert env.render() == first and [env.step("Up")[:4] for _ in range(3)] == [alone.step("Up")[:4] for _ in range(3)]
    with pytest.raises(OneiroError, match="has no render mode 'human'; known: ansi"):
        gymnasium.make("oneiro/sokoban-v0", render_mode="human")
    with pytest.raises(OneiroError, match="did you mean 'size'"):
        gymnasium.make("oneiro/frozen-lake-v0", sise=5)


def test_a_sampled_action_is_a_word_of_the_world_and_follows_its_seed() -> None:
    world = make("frozen-lake")
    drawn = []
    for _ in range(2):
        world.action_space.seed(3)
        drawn.append([world.action_space.sample() for _ in range(20)])
    assert drawn[0] == drawn[1] and set(drawn[0]) == set(FrozenLake.actions)
    arms = make("bandit")
    for seed in range(3):
        arms.reset(seed=seed)
        assert arms.action_space.sample() in arms.actions
    assert "☃" in world.action_space and "" in world.action_space and 3 not in world.action_space


@pytest.mark.parametrize(
    "vector",
    [
        SyncVectorEnv,
        pytest.param(
            partial(AsyncVectorEnv, shared_memory=False, context="spawn"), id="processes", marks=pytest.mark.thorough
        ),
    ],
)
def test_a_vector_of_worlds_plays_as_each_alone(vector: Callable[..., VectorEnv]) -> None:
    envs = vector([partial(make, "frozen-lake", max_actions=4)] * 3)
    try:
        shown, infos = envs.reset(seed=10)
        batch = make_batch("frozen-lake", max_actions=4)
        assert list(shown) == batch.reset([10, 11, 12])
        assert infos["key"].tolist() == [make("frozen-lake").reset(seed=10 + row)[1]["key"] for row in range(3)]
        over = np.zeros(3, bool)
        for word in ("Right", "Down", "Right", "Down"):
            actions = tuple([word] * 3)
            assert actions in envs.action_space
            shown, rewards, terminated, truncated, _ = envs.step(actions)
            expected = batch.step(actions)
            going = ~over  # one that has ended begins anew here, and stays as it is in the batch
            assert [shown[row] for row in np.flatnonzero(going)] == [
                expected.observations[row] for row in np.flatnonzero(going)
            ]
            for found, wanted in (
                (rewards, expected.rewards),
                (terminated, expected.terminated),
                (truncated, expected.truncated),
            ):
                assert found[going].tolist() == wanted[going].tolist()
            over |= terminated | truncated
        assert over.all()
    finally:
        envs.close()


def test_gymnasium_makes_a_vector_by_name() -> None:
    envs = gymnasium.make_vec("oneiro/bandit-v0", num_envs=2, vectorization_mode="sync", variant="reversed")
    shown, _ = envs.reset(seed=4)
    assert list(shown) == [make("bandit:reversed").reset(seed=seed)[0] for seed in (4, 5)]


@pytest.mark.parametrize("name", ["frozen-lake", "sokoban"])
def test_texts_of_worlds_can_be_flattened_and_read_back(name: str) -> None:
    world = make(name, max_actions=50)
    shown, _ = world.reset(seed=0)
    while not world.over:
        shown = world.step(world.oracle())[0]
    assert "√" in shown
    space = world.observation_space
    assert gymnasium.spaces.unflatten(space, gymnasium.spaces.flatten(space, shown)) == shown


def test_one_action_is_the_end_and_no_time_limit() -> None:
    for world in (make("countdown"), make("bandit"), make("frozen-lake", max_actions=1)):
        world.reset(seed=0)
        assert world.step("nonsense")[2:4] == (True, False) and world.over
    batch = make_batch("frozen-lake", max_actions=1)
    batch.reset([0, 1])
    step = batch.step(["nonsense", "Up"])
    assert step.terminated.all() and not step.truncated.any()
    world = make("frozen-lake", max_actions=2)
    world.reset(seed=0)
    assert [world.step("nonsense")[2:4] for _ in range(2)] == [(False, False), (False, True)]


def test_a_registered_world_is_known_to_gymnasium(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("oneiro.worlds.registry.WORLDS", dict(WORLDS))
    register("pond", FrozenLake)
    try:
        assert isinstance(gymnasium.make("oneiro/pond-v0").unwrapped, FrozenLake)
    finally:
        del gymnasium.registry["oneiro/pond-v0"]


def test_one_string_makes_a_world_without_an_import_before_it() -> None:
    code = "import gymnasium; print(gymnasium.make('oneiro.worlds:oneiro/bandit-v0').unwrapped.name)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "bandit", done.stderr


def test_worlds_play_without_gymnasium_and_oneiro_does_not_import_it() -> None:
    code = """
import sys
import oneiro, oneiro.cli
assert "gymnasium" not in sys.modules, "imported for nothing"
sys.modules["gymnasium"] = None
from oneiro.worlds import make, check
world = make("frozen-lake")
world.reset(seed=1)
print(world.step("Up")[4]["valid"])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "True", done.stderr
