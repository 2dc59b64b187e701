"""The player that tries what it has not tried: its first choices, its ways to what is left, and how much it sees."""

from __future__ import annotations

from itertools import product

import numpy as np

from oneiro import worlds
from oneiro.agents.exploration import Explorer
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
