"""The episodes of a video run: recorded or opened, split, and their actions cut into bins."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from oneiro.rundir.run import Run
from oneiro.runtime.errors import OneiroError
from oneiro.tasks.video.dataset import VideoDataset, Windows
from oneiro.tasks.video.recipe import VideoRecipe
from oneiro.worlds.robot import puck as video_toy
from oneiro.worlds.robot.collect import CollectSettings, collect
from oneiro.worlds.robot.episodes import ActionBins, Episodes, number_of, open_episodes
from oneiro.worlds.robot.simulator import ACTION_REPEAT

BINS = "actions.json"
TEST_PER_VALIDATION = 8
"""For so many test episodes one training episode is set apart: never learned from, looked at during training."""


@dataclass
class VideoData:
    """Train, validation and test episodes, as segments of the recipe's length and size."""

    recipe: VideoRecipe
    episodes: Episodes
    action_repeat: int = ACTION_REPEAT
    """Simulator steps that an action of the robot lasts."""

    @property
    def size(self) -> tuple[int, int]:
        return self.recipe.tokenizer.height, self.recipe.tokenizer.width

    @cached_property
    def validated(self) -> Collection[Path]:
        """The files of validation, by their numbers alone; of a few short episodes the last."""
        train = self.episodes.train
        long = [path for path, count in zip(train.paths, train.lengths, strict=True) if count >= self._frames]
        return {path for path in long if number_of(path) % (TEST_PER_VALIDATION * train.every) == 1} or {*long[-1:]}

    @cached_property
    def train(self) -> VideoDataset:
        return self._segments(self.episodes.train.where(lambda path: path not in self.validated))

    @cached_property
    def validation(self) -> VideoDataset:
        return self._segments(self.episodes.train.where(lambda path: path in self.validated))

    @cached_property
    def test(self) -> VideoDataset:
        return self._segments(self.episodes.test)

    @property
    def _frames(self) -> int:
        return self.recipe.layout.frames

    def _segments(self, episodes: Episodes) -> VideoDataset:
        return VideoDataset(episodes, self._frames, self.size)

    def validation_windows(self, segments: int) -> Windows:
        return fixed_windows(self.validation, segments)

    @cached_property
    def test_windows(self) -> Windows:
        return fixed_windows(self.test, self.recipe.evaluation.segments)


def fixed_windows(dataset: VideoDataset, segments: int) -> Windows:
    """So many fixed segments, evenly over the episodes: one of each, then another of each, none of them twice."""
    windows: dict[tuple[int, int], None] = {}
    for seed in range(segments):  # an episode has only so many segments: later rounds may bring nothing new
        windows |= dict.fromkeys((int(e), int(s)) for e, s in dataset.episodes.fixed_windows(dataset.length, seed))
        if len(windows) >= segments or len(windows) == len(dataset.windows):
            break
    return np.array(sorted(list(windows)[:segments]), np.int64).reshape(-1, 2)


def data_stage(recipe: VideoRecipe, run: Run) -> dict[str, Any]:
    """Record episodes, or look whether the folder has what is asked for."""
    if recipe.data.own:
        record(recipe, run)
    episodes = open_episodes(folder_of(recipe, run), every=recipe.data.test_every)
    for _, reason in episodes.damaged:
        run.say(f"left out: {reason}")
    if len(episodes.train) < 2 or not len(episodes.test):
        raise OneiroError(f"{len(episodes)} episodes cannot be split: lower data.test_every or record more")
    data = VideoData(recipe, episodes, action_repeat_of(episodes))
    ActionBins.fit(data.train.episodes, recipe.layout.bins, recipe.layout.quantiles).save(run.path / BINS)
    sizes = {
        "train episodes": len(data.train.episodes),
        "train segments": len(data.train.windows),
        "validation episodes": len(data.validation.episodes),
        "test episodes": len(episodes.test),
        "test segments": len(data.test_windows),
    }
    run.say(f"data: {', '.join(f'{count:,} {name}' for name, count in sizes.items())}")
    return sizes | {"action_repeat": data.action_repeat, "left_out": [path.name for path, _ in episodes.damaged]}


def action_repeat_of(episodes: Episodes) -> int:
    """How long an action lasts in all of them: a model learns one length."""
    stated = [info.get("action_repeat") for info in episodes.infos()]
    repeats = {action_repeat if isinstance(action_repeat, int) else ACTION_REPEAT for action_repeat in stated}
    if len(repeats) > 1:
        lengths = " and ".join(str(action_repeat) for action_repeat in sorted(repeats))
        raise OneiroError(
            f"actions in {episodes.paths[0].parent} are held for {lengths} simulator steps; keep one kind in a folder"
        )
    return repeats.pop()


def record(recipe: VideoRecipe, run: Run) -> None:
    """Our own episodes into the run; those that are there already stay."""
    settings, size, folder = recipe.data, recipe.tokenizer.height, run.path / "data"
    with run.progress("episodes", settings.episodes) as bar:
        if settings.name == video_toy.NAME:
            video_toy.record(folder, settings.episodes, settings.frames, size, recipe.seed, bar.advance)
            return
        for task, share in zip(
            settings.tasks, np.array_split(range(settings.episodes), len(settings.tasks)), strict=True
        ):
            how = CollectSettings(
                task=task, policies=settings.policies, size=size, frames=settings.frames, seed=recipe.seed
            )
            collect(how, len(share), folder, settings.workers, bar.advance)


def folder_of(recipe: VideoRecipe, run: Run) -> Path:
    return run.path / "data" if recipe.data.own else Path(recipe.data.name).expanduser()


def open_data(recipe: VideoRecipe, run: Run, looked: Mapping[str, Any]) -> VideoData:
    """The episodes that the data stage found whole, by its result; each is checked again when it is read."""
    folder, without = folder_of(recipe, run), looked.get("left_out", ())
    episodes = open_episodes(folder, every=recipe.data.test_every, verify=False, without=without)
    return VideoData(recipe, episodes, looked.get("action_repeat", ACTION_REPEAT))
