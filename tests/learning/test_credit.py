"""How well algorithms find out which turn was to blame, against exact advantages by dynamic programming."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from oneiro.learning.algorithms import Algorithm, Grpo, StateGrpo, Trajectory
from oneiro.worlds.grid.frozen_lake.views import Lake
from oneiro.worlds.grid.frozen_lake.world import level_for, move_values, neighbours, slip

SIZE, ACTIONS, MEMBERS, LEVELS = 4, 10, 16, 192


def exact(lake: Lake, success_rate: float) -> NDArray[np.float64]:
    """[turn, cell, move]: advantages of a uniform player's moves, in chances to reach the goal in time."""
    cells = np.arange(SIZE**2)
    over, value, found = np.isin(cells, [*lake.holes, lake.goal]), np.zeros(SIZE**2), np.zeros((ACTIONS, SIZE**2, 4))
    for turn in reversed(range(ACTIONS)):
        worth = move_values(np.where(over, cells == lake.goal, value), SIZE, success_rate)
        value = worth.mean(axis=1)
        found[turn] = worth - value[:, None]
    return found


Group = list[tuple[list[int], NDArray[np.float64], float]]
"""Of each member the cells its turns began in, the exact advantages of its moves, and whether it arrived."""


def played(success_rate: float) -> list[Group]:
    """Many groups of a uniform player's crossings."""
    random, groups = np.random.default_rng(0), []
    for seed in range(LEVELS):
        lake = level_for(SIZE, 0.8, seed, "train").lake
        advantages, group = exact(lake, success_rate), []
        for _ in range(MEMBERS):
            cell, cells, true = lake.player, [], []
            while len(cells) < ACTIONS and cell != lake.goal and cell not in lake.holes:
                move = int(random.integers(4))
                true.append(advantages[len(cells), cell, move])
                cells.append(cell)
                cell = int(neighbours(SIZE)[cell, slip(move, random.random(), success_rate)])
            group.append((cells, np.array(true), float(cell == lake.goal)))
        groups.append(group)
    return groups


def likeness(algorithm: Algorithm, groups: list[Group], apart: bool = False) -> float:
    """The cosine between estimated and exact advantages. Last turns are left out: who is to blame for those is plain.

    `apart` makes every state a state of its own.
    """
    estimated, expected = [], []
    for number, group in enumerate(groups):
        trajectories = []
        for member, (cells, _, reward) in enumerate(group):
            rewards = np.zeros(len(cells), np.float32)
            rewards[-1] = reward
            states = tuple(bytes([cell, member * apart, turn * apart]) for turn, cell in enumerate(cells))
            trajectories.append(Trajectory(rewards, np.ones(len(cells), bool), number, reward, states=states))
        estimated += [found[:-1] for found in algorithm.estimate(trajectories)]
        expected += [true[:-1] for _, true, _ in group]
    found, true = np.concatenate(estimated), np.concatenate(expected)
    return float(found @ true / np.linalg.norm(found) / np.linalg.norm(true))


@pytest.mark.parametrize("success_rate", [1.0, 1 / 3])
def test_states_met_again_tell_which_turn_was_to_blame(success_rate: float) -> None:
    groups = played(success_rate)
    by_episode, by_state = likeness(Grpo(), groups), likeness(StateGrpo(), groups)
    assert by_state > 1.8 * by_episode
    assert by_state > 1.3 * likeness(StateGrpo(), groups, apart=True)  # and it is the meeting that tells
