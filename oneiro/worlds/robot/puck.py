"""A video world that needs nothing but numpy: a hand pushes a puck over a table.

It stands in for a robot where none can be simulated: frames and actions of the same kind, written to the same files. A
hand is moved by a two-dimensional action; a puck it touches is pushed away, and neither leaves the table. Colours of
puck and table differ from episode to episode, so a model has to look at the frames it is given.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from oneiro.runtime.seeds import generator
from oneiro.worlds.robot.episodes import RobotEpisode, write_episode

NAME = "puck"
HAND, PUCK = 0.09, 0.13
"""Radii, as parts of the table's side."""
REACH = 0.09
"""How far an action of 1 moves the hand."""

Floats = NDArray[np.float64]


def advance(hand: Floats, puck: Floats, action: Floats) -> tuple[Floats, Floats]:
    """Where hand and puck [2] are after an action [2] in [-1, 1]."""
    hand = np.clip(hand + REACH * np.clip(action, -1, 1), HAND, 1 - HAND)
    apart = puck - hand
    distance = float(np.hypot(*apart))
    if distance < HAND + PUCK:
        way = apart / distance if distance > 1e-9 else np.array([1.0, 0.0])
        puck = np.clip(hand + way * (HAND + PUCK), PUCK, 1 - PUCK)
    return hand, puck


def render(hand: Floats, puck: Floats, colours: Floats, size: int) -> NDArray[np.uint8]:
    """A frame [size, size, 3] with soft edges; `colours` [2, 3] are the table's and the puck's."""
    grid = (np.arange(size) + 0.5) / size
    shade = 0.85 + 0.15 * grid[:, None, None]  # the far side of the table lies in shadow
    frame = np.broadcast_to(colours[0] * shade, (size, size, 3)).copy()
    for place, radius, colour in ((puck, PUCK, colours[1]), (hand, HAND, np.array([0.95, 0.95, 0.9]))):
        distance = np.hypot(grid[None, :] - place[0], grid[:, None] - place[1])
        cover = np.clip((radius - distance) * size + 0.5, 0, 1)[..., None]
        frame = frame * (1 - cover) + colour * cover
    return np.round(frame * 255).astype(np.uint8)


def play(seed: int, frames: int = 20, size: int = 32) -> RobotEpisode:
    """One episode: a hand that now goes for the puck, now wanders."""
    random = generator("video toy", seed)
    hand, puck = random.uniform(HAND, 1 - HAND, 2), random.uniform(PUCK, 1 - PUCK, 2)
    colours = np.stack([random.uniform(0.15, 0.4, 3), random.uniform(0.4, 1.0, 3) * [1.0, 0.7, 0.5]])
    keen, drift = random.uniform(0.2, 1.0), np.zeros(2)
    images, actions = [], []
    for _ in range(frames):
        drift = 0.7 * drift + 0.5 * random.normal(size=2)
        towards = (puck - hand) / (np.hypot(*(puck - hand)) + 1e-9)
        action = np.clip(keen * towards + drift, -1, 1)
        images.append(render(hand, puck, colours, size))
        actions.append(action)
        hand, puck = advance(hand, puck, action)
    actions[-1] = np.zeros(2)
    info = {"task": NAME, "seed": seed}
    return RobotEpisode(np.stack(images), np.stack(actions).astype(np.float32), info)


def record(
    folder: Path, episodes: int, frames: int, size: int, seed: int, tell: Callable[[int], None] = lambda done: None
) -> None:
    """Write so many episodes; files that are there already stay."""
    for number in range(episodes):
        path = folder / f"{NAME}_eps_{number:08d}.npz"
        if not path.exists():
            write_episode(path, play(seed * 1_000_003 + number, frames, size))
        tell(1)
