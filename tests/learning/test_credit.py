"""How well algorithms find out which turn was to blame, against exact advantages by dynamic programming."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from oneiro.learning.algorithms import Algorithm, Grpo, StateGrpo, Trajectory
from oneiro.worlds.grid.frozen_lake import level_for, neighbours, slipped
from oneiro.worlds.grid.lake_views import Lake

SIZE, ACTIONS, MEMBERS, LEVELS = 4, 10, 16, 96


def arrivals(success_rate: float) -> NDArray[np.float64]:
    """[cell, move, cell]: the chance to come to a cell by a move."""
    chances = np.zeros((SIZE**2, 4, SIZE**2))
    luck = (np.arange(300) + 0.5) / 300
    for move in range(4):
        taken = np.bincount([slipped(move, x, success_rate) for x in luck], minlength=4) / len(luck)
        for way in range(4):
            np.add.at(chances, (np.arange(SIZE**2), move, neighbours(SIZE)[:, way]), taken[way])
    return chances


def exact(lake: Lake, chances: NDArray[np.float64]) -> NDArray[np.float64]:
    """[turn, cell, move]: advantages of a uniform player's moves, in chances to reach the goal in time."""
    over = np.isin(np.arange(SIZE**2), [*lake.holes, lake.goal])
    value, found = np.zeros(SIZE**2), np.zeros((ACTIONS, SIZE**2, 4))
    for turn in reversed(range(ACTIONS)):
        worth = chances @ np.where(over, np.arange(SIZE**2) == lake.goal, value)
        value = worth.mean(axis=1)
        found[turn] = worth - value[:, None]
    return found


def likeness(algorithm: Algorithm, success_rate: float) -> float:
    """The cosine between estimated and exact advantages over many turns of a uniform player."""
    random, chances = np.random.default_rng(0), arrivals(success_rate)
    estimated, true = [], []
    for seed in range(LEVELS):
        lake = level_for(SIZE, 0.8, seed, "train").lake
        advantages, group = exact(lake, chances), []
        for _ in range(MEMBERS):
            cell, told, reward = lake.player, [], 0.0
            for turn in range(ACTIONS):
                move = int(random.integers(4))
                told.append(bytes([cell]))
                true.append(advantages[turn, cell, move])
                cell = int(random.choice(SIZE**2, p=chances[cell, move]))
                if cell == lake.goal or cell in lake.holes:
                    reward = float(cell == lake.goal)
                    break
            rewards = np.zeros(len(told), np.float32)
            rewards[-1] = reward
            group.append(Trajectory(rewards, np.ones(len(told), bool), seed, reward, states=tuple(told)))
        estimated += algorithm.estimate(group).advantages
    found, expected = np.concatenate(estimated), np.array(true)
    return float(found @ expected / np.linalg.norm(found) / np.linalg.norm(expected))


@pytest.mark.parametrize("success_rate", [1.0, 1 / 3])
def test_states_met_again_tell_which_turn_was_to_blame(success_rate: float) -> None:
    by_episode, by_outcome = likeness(Grpo(), success_rate), likeness(StateGrpo(lam=1.0), success_rate)
    by_state = likeness(StateGrpo(), success_rate)
    print(f"success rate {success_rate:.2f}: {by_episode:.3f}, {by_outcome:.3f}, {by_state:.3f}")
    assert by_episode < by_outcome < by_state
    assert by_state > 1.5 * by_episode  # the same likeness from less than half as many episodes
