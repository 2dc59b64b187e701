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


Group = list[tuple[list[int], NDArray[np.float64], float]]
"""Of each member the cells its turns began in, the exact advantages of its moves, and whether it arrived."""


def played(success_rate: float) -> list[Group]:
    """Many groups of a uniform player's crossings."""
    random, chances, groups = np.random.default_rng(0), arrivals(success_rate), []
    for seed in range(LEVELS):
        lake = level_for(SIZE, 0.8, seed, "train").lake
        advantages, group = exact(lake, chances), []
        for _ in range(MEMBERS):
            cell, cells, true = lake.player, [], []
            while len(cells) < ACTIONS and cell != lake.goal and cell not in lake.holes:
                move = int(random.integers(4))
                true.append(advantages[len(cells), cell, move])
                cells.append(cell)
                cell = int(random.choice(SIZE**2, p=chances[cell, move]))
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
        estimated += [found[:-1] for found in algorithm.estimate(trajectories).advantages]
        expected += [true[:-1] for _, true, _ in group]
    found, true = np.concatenate(estimated), np.concatenate(expected)
    return float(found @ true / np.linalg.norm(found) / np.linalg.norm(true))


@pytest.mark.parametrize("success_rate", [1.0, 1 / 3])
def test_states_met_again_tell_which_turn_was_to_blame(success_rate: float) -> None:
    groups = played(success_rate)
    by_episode, by_state = likeness(Grpo(), groups), likeness(StateGrpo(), groups)
    assert by_state > 1.8 * by_episode
    assert by_state > 1.5 * likeness(StateGrpo(), groups, apart=True)  # and it is the meeting that tells
