"""Episodes of the simulator as files: perturbed experts at starts of their own, in several processes.

Episode i of a seed is the same whoever makes it and however often: perturbation, start and noise come from the seed
and i. Files that are there are kept, so a collection that was stopped goes on, and a larger one extends a smaller one;
one that cannot be read is made again.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import Field

from oneiro.recipe import Settings
from oneiro.runtime import files
from oneiro.runtime.processes import each_done
from oneiro.runtime.seeds import generator
from oneiro.worlds.robot import policies
from oneiro.worlds.robot.drawer import draw_start
from oneiro.worlds.robot.episodes import RobotEpisode, is_whole, refuse_others, write_episode
from oneiro.worlds.robot.simulator import ACTION, ACTION_REPEAT, DrawerSimulator, TaskName, choose_renderer, require


class CollectSettings(Settings):
    """What episodes are made of."""

    task: TaskName = "drawer-open"
    """What the policies try to do."""
    policies: tuple[str, ...] = Field(default=tuple(policies.PERTURBATIONS), min_length=1)
    """Perturbations; each episode draws one. Failures belong in the data: a model must know how they look."""
    size: int = Field(default=64, ge=16, le=1024)
    """Side of a frame, in pixels."""
    action_repeat: int = Field(default=ACTION_REPEAT, ge=1, le=50)
    """Simulator steps that an action lasts."""
    frames: int = Field(default=41, ge=2)
    """Frames of an episode, at most: the first, and one after each action."""
    after: int = Field(default=8, ge=0)
    """Frames that are still recorded once the task is done, so that a model sees how a finished drawer stays."""
    split: Literal["train", "eval"] = "train"
    """Which starts: those of the other split are left for evaluation."""
    seed: int = 0
    """Decides perturbations, starts and noise."""


@dataclass(frozen=True)
class Collected:
    """What a collection did."""

    written: int
    kept: int
    """Files that were there before, whole."""


def collect(
    settings: CollectSettings,
    episodes: int,
    out: str | Path,
    workers: int | str = 1,
    advance: Callable[[int], Any] = lambda count: None,
) -> Collected:
    """Write episodes 0 to `episodes` - 1 that `out` lacks or holds damaged; `advance` hears of each that is there."""
    require()
    for name in settings.policies:
        policies.perturbation(name)
    out = Path(out)
    note, made = out / f"{settings.task}.json", settings.model_dump(mode="json")
    refuse_others(note, made, f"{settings.task} episodes")
    files.write_json(note, made)
    wanted = {index: out / f"{settings.task}_{index:06d}.npz" for index in range(episodes)}
    missing = [(index, path) for index, path in wanted.items() if not is_whole(path)]
    advance(episodes - len(missing))
    if workers in (0, 1):
        for index, path in missing:
            write_episode(path, play(settings, index))
            advance(1)
    else:
        choose_renderer()
        # MuJoCo's software renderer would start a thread for every core in every process.
        os.environ.setdefault("LP_NUM_THREADS", "1")
        for _ in each_done(_make, ((settings, *item) for item in missing), workers):
            advance(1)
    return Collected(len(missing), episodes - len(missing))


def play(settings: CollectSettings, index: int) -> RobotEpisode:
    """Episode `index` of a collection."""
    simulator = _simulator(settings.task, settings.size, settings.action_repeat)
    rng = generator("robot", settings.task, settings.seed, index)
    name = settings.policies[int(rng.integers(len(settings.policies)))]
    side, key = draw_start(settings.task, int(rng.integers(1 << 62)), settings.split)
    perturb = policies.perturbation(name)(rng)
    simulator.reset(side)
    images, actions, experts, openings = [simulator.frame()], [], [], [simulator.opening]
    done_at: int | None = None
    while len(images) < settings.frames and (done_at is None or len(images) < done_at + settings.after):
        experts.append(simulator.expert())
        actions.append(perturb(experts[-1]))
        simulator.act(actions[-1])
        images.append(simulator.frame())
        openings.append(simulator.opening)
        if simulator.success and done_at is None:
            done_at = len(images)
    info = {
        "task": settings.task,
        "instruction": simulator.task.instruction,
        "policy": name,
        "seed": settings.seed,
        "index": index,
        "key": key,
        "side": side,
        "reached": done_at is not None,
        "action_repeat": settings.action_repeat,
    }
    placeholder = np.zeros((1, ACTION), np.float32)
    return RobotEpisode(
        np.stack(images),
        np.concatenate([np.stack(actions), placeholder]),
        info,
        {
            "opening": np.array(openings, np.float32),
            "expert": np.concatenate([np.stack(experts), simulator.expert()[None]]),
        },
    )


@cache
def _simulator(task: TaskName, size: int, action_repeat: int) -> DrawerSimulator:
    """One per process: making it takes as long as an episode."""
    return DrawerSimulator(task, size, action_repeat)


def _make(settings: CollectSettings, index: int, path: Path) -> None:
    write_episode(path, play(settings, index))
