"""Validation cases are neither trained on nor part of the reported evaluation."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from oneiro import recipe as recipes
from oneiro.rundir.run import Run
from oneiro.runtime.errors import OneiroError
from oneiro.sampling.engine import Engine
from oneiro.tasks.task import Task
from oneiro.tasks.textgame.data import TextGameData, data_stage, record, with_validation
from oneiro.tasks.textgame.recipe import TextGameRecipe
from oneiro.tasks.textgame.task import TextGameTask
from oneiro.tasks.video.data import VideoData
from oneiro.tasks.video.data import data_stage as video_stage
from oneiro.tasks.video.recipe import VideoRecipe
from oneiro.tasks.video.task import VideoTask
from oneiro.worlds.robot import puck
from oneiro.worlds.robot.episodes import number_of, open_episodes
from oneiro.worlds.textgame.dataset import open_dataset

PARTS = ("train", "validation", "test")


def test_rows_of_text_games_leave_training_with_their_states(tmp_path: Path) -> None:
    recipe = cast(TextGameRecipe, recipes.load("rlvr/text-game", ["preset=smoke"]))
    record(recipe.data, tmp_path)
    train, test = open_dataset(tmp_path, "train"), open_dataset(tmp_path, "test")
    data = with_validation(TextGameData(train, test, None, ()), seed=0)
    left, apart = {str(row.state) for row in data.train}, {str(row.state) for row in data.validation}
    assert len(apart) == max(1, len(left | apart) // 20) and left and not left & apart and data.test is test
    assert [row.id for row in train if str(row.state) in apart] == [row.id for row in data.validation]
    assert [row.id for row in train if str(row.state) in left] == [row.id for row in data.train]
    again, other = (with_validation(TextGameData(train, test, None, ()), seed) for seed in (0, 1))
    assert list(again.validation) == list(data.validation) != list(other.validation)
    alone = replace(train, rows=[row for row in train.rows if row.state == train.rows[0].state])
    with pytest.raises(OneiroError, match="start from one state"):
        with_validation(TextGameData(alone, test, None, ()), seed=0)


class Sealed:
    """Test cases that nobody may look at."""

    def __getattr__(self, name: str) -> object:
        raise AssertionError(f"a test case was looked at: {name}")

    __len__ = __iter__ = __getitem__ = lambda self, *place: self.opened  # type: ignore[assignment]


def stages_of_training(task: Task) -> None:
    """All that comes before the final evaluation, and every look that RL takes."""
    task.prepare()
    rollout = task.rollout(Engine(task.model(task.supervise())))
    assert rollout.play(0) and rollout.evaluate(1) and rollout.validate is not None and rollout.validate()


def test_text_games_are_trained_without_a_look_at_test_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("oneiro.tasks.textgame.task.TEXTS", 100)  # for the tokenizer
    recipe = recipes.load("rlvr/text-game", ["preset=smoke", "rl.select.cases=4", "sft.epochs=1"], TextGameRecipe)
    with Run.open(tmp_path / "run", recipe) as run:
        data_stage(recipe, run)
        task = TextGameTask(recipe, run)
        task.data = replace(task.data, test=Sealed(), unseen=Sealed())
        stages_of_training(task)
        with pytest.raises(AssertionError, match="a test case was looked at"):
            task.evaluate(Engine(task.model(None)), "base")


def test_video_is_trained_without_a_look_at_test_segments(tmp_path: Path) -> None:
    settings = ["preset=toy", "rl.select.cases=4"]
    recipe = recipes.load("rlvr/video-multi", settings, VideoRecipe)
    with Run.open(tmp_path / "run", recipe) as run:
        run.stage("data", lambda: video_stage(recipe, run))
        task = VideoTask(recipe, run)
        task.data.test = task.data.test_windows = Sealed()  # type: ignore[assignment]
        stages_of_training(task)
        with pytest.raises(AssertionError, match="a test case was looked at"):
            task.evaluate(Engine(task.model(None)), "base")


def test_every_so_many_training_episodes_of_video_are_for_validation(tmp_path: Path) -> None:
    puck.record(tmp_path, episodes=52, frames=12, size=32, seed=0)
    recipe = recipes.load("rlvr/video-multi", ["preset=toy", "data.test_every=3"], VideoRecipe)
    data = VideoData(recipe, open_episodes(tmp_path, every=3))
    numbers = {part: [number_of(path) for path in getattr(data, part).episodes.paths] for part in PARTS}
    assert numbers["validation"] == [1, 25, 49] and numbers["test"] == list(range(0, 52, 3))
    assert sorted(number for part in numbers.values() for number in part) == list(range(52))
    few = VideoData(recipe, open_episodes(tmp_path, every=3).where(lambda path: number_of(path) in (0, 2, 4, 5)))
    assert [number_of(path) for path in few.validation.episodes.paths] == [5]


def test_video_refuses_what_it_cannot_do() -> None:
    with pytest.raises(OneiroError, match="ends at its token limit"):
        recipes.load("rlvr/video-single", ["rl.mask_truncated=true"])
