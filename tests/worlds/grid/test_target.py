"""Another goal on the same lake: who can reach it, by a search of the test's own."""

from __future__ import annotations

from collections import deque

from oneiro.worlds.grid.frozen_lake.target import TargetLake, best_possible, has_target
from oneiro.worlds.grid.frozen_lake.world import FrozenLake, FrozenLakeConfig, neighbours


def reachable(world: TargetLake) -> bool:
    """Whether the target can be reached within the budget, past no hole and not over the old goal."""
    lake, front, seen = world.lake, deque([(world.lake.player, 0)]), {world.lake.player}
    while front:
        cell, length = front.popleft()
        if cell == world.target:
            return length <= world.config.max_actions
        for there in neighbours(lake.size)[cell].tolist():
            if there not in seen and there not in lake.holes and there != lake.goal:
                seen.add(there)
                front.append((there, length + 1))
    return False


def test_every_target_can_be_reached_and_is_new() -> None:
    world = TargetLake(FrozenLakeConfig())
    for seed in range(30):
        _, info = world.reset(seed=seed, options={"split": "eval"})
        if has_target(world, seed):
            assert world.target not in (world.lake.player, world.lake.goal) and reachable(world)
            assert best_possible(world, [seed]) == [1.0]
        assert info["target"] == world.target


def test_only_the_target_is_a_success_and_the_old_goal_ends_the_episode_in_vain() -> None:
    world = TargetLake(FrozenLakeConfig())
    seed = next(seed for seed in range(100) if has_target(world, seed))
    true = FrozenLake(world.config)
    for goal in ("goal", "target"):
        world.reset(seed=seed, options={"split": "eval"})
        true.reset(seed=seed, options={"split": "eval"})
        cell = world.lake.goal if goal == "goal" else world.target
        for lake in (world, true):  # one move away from it
            beside = next(n for n in neighbours(4)[cell].tolist() if n != cell)
            lake.lake = lake.lake._replace(player=beside, holes=frozenset())
        move = next(a for a in world.actions if neighbours(4)[beside, world.actions.index(a)] == cell)
        state, reward, terminated, truncated, info = world.step(move)
        assert (terminated, truncated, info["success"], reward) == (
            True,
            False,
            goal == "target",
            float(goal == "target"),
        )
        assert state == true.step(move)[0]  # the dynamics are the old ones
        assert world.step("Left")[1] == 0
