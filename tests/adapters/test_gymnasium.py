"""The door to gymnasium: vectors of grid worlds by name, and its own environments as worlds."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Text
from gymnasium.vector import AutoresetMode

from oneiro.runtime.errors import OneiroError
from oneiro.worlds import check, make
from oneiro.worlds.check import worst


@pytest.mark.parametrize("name", ["frozen-lake", "sokoban", "sudoku"])
def test_a_vector_by_name_plays_each_row_as_the_world_alone_and_goes_on_to_new_levels(name: str) -> None:
    count = 3
    envs = gymnasium.make_vec(f"oneiro.worlds:oneiro/{name}-v0", num_envs=count, max_actions=4)
    assert envs.metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP and envs.spec.id == f"oneiro/{name}-v0"
    worlds = [make(name, max_actions=4) for _ in range(count)]
    shown, _ = envs.reset(seed=10, options={"split": "train"})
    seeds = [10, 11, 12]
    assert shown == tuple(w.reset(seed=s, options={"split": "train"})[0] for w, s in zip(worlds, seeds, strict=True))
    rng, restarted = np.random.default_rng(0), 0
    for _ in range(14):
        actions = tuple(world.random_action(rng) for world in worlds)
        assert actions in envs.action_space
        shown, rewards, terminated, truncated, infos = envs.step(actions)
        for row, world in enumerate(worlds):
            if world.over:  # the step after the end begins the level three seeds further
                seeds[row] += count
                restarted += 1
                wanted = world.reset(seed=seeds[row], options={"split": "train"})[0], 0.0, False, False
                assert not infos["valid"][row]
            else:
                *wanted, info = world.step(actions[row])
                assert {key: infos[key][row] for key in info} == info
            assert (shown[row], rewards[row], terminated[row], truncated[row]) == pytest.approx(tuple(wanted))
    assert restarted >= 6 and max(seeds) >= 16
    envs.reset()
    assert envs.seeds.tolist() == [seed + count for seed in seeds]
    with pytest.raises(OneiroError, match="2 seeds for 3 episodes"):
        envs.reset(seed=[1, 2])


def test_a_discrete_environment_is_a_world_that_keeps_every_promise() -> None:
    assert worst(check("gymnasium:blackjack")) != "error"
    world, env = make("gymnasium:blackjack"), gymnasium.make("Blackjack-v1")
    shown, info = world.reset(seed=3, options={"split": "eval"})
    assert info["key"][-1] == info["canonical"][-1], "the start decides the split"
    true = next(o for o in (env.reset(seed=s)[0] for s in range(3000)) if str(o) == shown)
    assert shown == str(true) and world.actions == ("Stick", "Hit") and "Actions: Stick, Hit." in world.instruction
    assert world.step("pass")[:4] == (shown, 0.0, False, False)
    _, reward, terminated, truncated, step = world.step(" stick")
    assert terminated and not truncated and step["success"] == (reward == 1.0)


def test_colours_of_a_text_view_become_words_because_they_say_where_the_player_is() -> None:
    lake = make("gymnasium", env="FrozenLake-v1", env_options={"is_slippery": False}, split_by="seed")
    first, _ = lake.reset(seed=0)
    assert first.splitlines()[0] == "{red: S}FFF"
    moved = lake.step("2")[0]
    assert moved.splitlines()[:2] == ["(Right)", "S{red: F}FF"]
    taxi = make("gymnasium", env="Taxi-v4")
    starts = {taxi.reset(seed=seed)[0] for seed in range(40)}
    assert len(starts) > 30 and not any("\x1b" in start for start in starts)
    assert all("blue" in start and "magenta" in start for start in starts)


class Echo(gymnasium.Env):
    """Text in, text out; says its word again, and is content with "yes"; cut off after three words."""

    observation_space, action_space = Text(40), Text(8)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.said = 0
        return f"word {self.np_random.integers(10**6)}", {}

    def step(self, action):
        self.said += 1
        return f"you said {action}", float(action == "yes"), action == "yes", self.said == 3, {}


def test_a_text_environment_is_a_world_and_its_own_time_limit_counts() -> None:
    gymnasium.register("tests/Echo-v0", Echo)
    try:
        world = make("gymnasium", env="tests/Echo-v0", goal="Say yes.")
        assert world.actions is None and world.instruction == "Say yes."
        world.reset(seed=1)
        assert world.step("a sentence that is too long")[4]["valid"] is False
        assert [world.step("no")[2:4] for _ in range(3)] == [(False, False), (False, False), (False, True)]
        assert world.over and world.step("yes")[:2] == ("you said no", 0.0)
        world.reset(seed=1)
        assert world.step("yes")[1:3] == (1.0, True) and world.step("yes")[4]["success"]
        assert worst(check("gymnasium", env="tests/Echo-v0", success_return=0.5)) != "error"
    finally:
        del gymnasium.registry["tests/Echo-v0"]


def test_mistakes_are_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("oneiro.worlds.base.DRAWS", 20)
    with pytest.raises(OneiroError, match="gymnasium cannot make 'CartPool-v1'"):
        make("gymnasium", env="CartPool-v1")
    with pytest.raises(OneiroError, match="Taxi-v4 has 6 actions; give as many words"):
        make("gymnasium", env="Taxi-v4", words=("Up",))
    with pytest.raises(OneiroError, match="only Discrete and Text will do"):
        make("gymnasium", env="Pendulum-v1")
    lake = make("gymnasium", env="FrozenLake-v1")  # which always starts alike: one split is empty
    with pytest.raises(OneiroError, match="no level in split"):
        for split in ("train", "eval"):
            lake.reset(seed=0, options={"split": split})
