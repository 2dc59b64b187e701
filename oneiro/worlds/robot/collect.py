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
from oneiro.runtime.errors import OneiroError, nearest
from oneiro.runtime.processes import each_done
from oneiro.runtime.seeds import generator
from oneiro.worlds.robot.drawer import draw_start
from oneiro.worlds.robot.episodes import RobotEpisode, is_whole, refuse_others, write_episode
from oneiro.worlds.robot.simulator import ACTION, ACTION_REPEAT, DrawerSimulator, TaskName, choose_renderer, require

# Perturbed experts: the scripted expert's action, changed in a named way ----------------------------------------------

# A perturbation is made for each episode, from its generator, and turns the expert's action into the one taken. So the
# same perturbations apply to the scripted expert, which sees the state, and to a network, which sees frames.

Perturbation = Callable[[np.ndarray], np.ndarray]
"""The expert's action `[4]` -> the action taken, float32 within [-1, 1]."""
Grade = Callable[[np.random.Generator], Perturbation]

TREMOR, STRONG_TREMOR = 0.4, 0.9
PULL = 0.9


def expert(rng: np.random.Generator) -> Perturbation:
    """As the expert does."""
    return _within


def noisy(rng: np.random.Generator) -> Perturbation:
    """With a trembling hand: Gaussian noise on every number."""
    return lambda action: _within(action + TREMOR * rng.normal(size=ACTION))


def very_noisy(rng: np.random.Generator) -> Perturbation:
    """With a hand that trembles about as much as it moves."""
    return lambda action: _within(action + STRONG_TREMOR * rng.normal(size=ACTION))


def biased(rng: np.random.Generator) -> Perturbation:
    """With a constant pull, each episode in a direction and with a strength of its own."""
    direction = rng.normal(size=3)
    pull = np.append(rng.uniform(0.0, PULL) * direction / np.linalg.norm(direction), 0.0)
    return lambda action: _within(action + pull)


def half_random(rng: np.random.Generator) -> Perturbation:
    """The expert every other time, on average; else anything."""

    def perturb(action: np.ndarray) -> np.ndarray:
        drawn, heeds = _anything(rng), rng.random() < 0.5
        return _within(action) if heeds else drawn

    return perturb


def random(rng: np.random.Generator) -> Perturbation:
    """Anything: each number uniform in [-1, 1]."""
    return lambda action: _anything(rng)


PERTURBATIONS: dict[str, Grade] = {
    "expert": expert,
    "noisy": noisy,
    "very-noisy": very_noisy,
    "biased": biased,
    "half-random": half_random,
    "random": random,
}


def perturbation(name: str) -> Grade:
    """A perturbation by name."""
    if name not in PERTURBATIONS:
        raise OneiroError(f"no policy is called '{name}'{nearest(name, PERTURBATIONS)}")
    return PERTURBATIONS[name]


def _within(action: np.ndarray) -> np.ndarray:
    return np.clip(action, -1.0, 1.0).astype(np.float32)


def _anything(rng: np.random.Generator) -> np.ndarray:
    return rng.uniform(-1.0, 1.0, ACTION).astype(np.float32)


# Episodes -------------------------------------------------------------------------------------------------------------


class CollectSettings(Settings):
    """What episodes are made of."""

    task: TaskName = "drawer-open"
    """What the policies try to do."""
    policies: tuple[str, ...] = Field(default=tuple(PERTURBATIONS), min_length=1)
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
        perturbation(name)
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
    perturb = perturbation(name)(rng)
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
