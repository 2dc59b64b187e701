"""The player that tries what it has not tried: its first choices, its ways to what is left, and how much it sees."""

from __future__ import annotations

from itertools import product

import numpy as np

from oneiro import worlds
from oneiro.agents.policies import ExplorationPolicy, Explorer
from oneiro.worlds.base import World
from oneiro.worlds.baselines import Policy, random_policy


def steps_seen(policy: Policy, name: str, attempts: int) -> set[tuple[str, str]]:
    """Different steps, state and action, in attempts at eight levels."""
    seen = set()
    world = worlds.make(name)
    for level, member in product(range(8), range(attempts)):
        world.reset(seed=level, options={"split": "train", "member": member})
        while not world.over:
            state, action = world.render(), policy(world, np.random.default_rng([level, member, world.taken]))
            seen.add((state, action))
            world.step(action)
    return seen


def test_everything_is_tried_in_a_state_before_anything_is_tried_again() -> None:
    world, explore, rng = worlds.make("frozen-lake"), Explorer(), np.random.default_rng(0)
    tried = set()
    for member in range(4):
        world.reset(seed=3, options={"split": "train", "member": member})
        tried.add(explore(world, rng))
    assert tried == set(world.actions or ())


def test_where_nothing_is_left_it_goes_the_shortest_way_to_where_something_is() -> None:
    explore, actions = Explorer(), ("up", "down", "left", "right")
    here = {"up": "a", "down": "b", "left": "start", "right": None}
    explore.leads = {
        "start": here,
        "a": dict.fromkeys(actions, "a") | {"up": "far"},
        "b": {"up": "start"},  # three actions are left to try, one step away; "far" is two away
    }
    assert explore._towards_untried("start", actions) == ["down"]
    explore.leads["b"] = dict.fromkeys(actions, "start")
    assert explore._towards_untried("start", actions) == ["up"]
    explore.leads["far"] = dict.fromkeys(actions)
    assert explore._towards_untried("start", actions) == []


def test_it_sees_more_of_a_level_than_chance_does() -> None:
    for name in ("frozen-lake", "sokoban"):
        assert len(steps_seen(Explorer(), name, 12)) > 1.2 * len(steps_seen(random_policy, name, 12)), name


def test_actions_of_free_text_are_drawn_at_random() -> None:
    world: World = worlds.make("sudoku")
    world.reset(seed=0, options={"split": "train"})
    assert Explorer()(world, np.random.default_rng(0)) == world.random_action(np.random.default_rng(0))


def test_a_turn_of_several_actions_follows_known_outcomes_to_one_that_is_new() -> None:
    world, policy = worlds.make("frozen-lake"), ExplorationPolicy(most=5)
    explorer, rng = policy.explorer, np.random.default_rng(0)
    lengths = []
    for member in range(40):
        world.reset(seed=3, options={"split": "train", "member": member})
        while not world.over:
            planned = policy.actions_of(world, rng)
            lengths.append(len(planned))
            assert 1 <= len(planned) <= 5
            state = world.render()
            for number, action in enumerate(planned, start=1):
                known = explorer.leads[state][action]
                world.step(action)
                assert number == len(planned) or world.render() == known, "it led elsewhere than remembered"
                state = world.render()
                if world.over:  # the actions are used up
                    break
    assert lengths[0] == 1 and max(lengths) > 1


def test_in_a_stochastic_world_a_turn_has_one_action() -> None:
    world, policy, rng = (
        worlds.make("frozen-lake", success_rate=0.5),
        ExplorationPolicy(most=5),
        np.random.default_rng(0),
    )
    for member in range(10):
        world.reset(seed=3, options={"split": "train", "member": member})
        while not world.over:
            planned = policy.actions_of(world, rng)
            assert len(planned) == 1
            world.step(planned[0])
