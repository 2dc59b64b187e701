"""What `oneiro eval video` does: a model in a folder, episodes in a folder, the tables of a run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

from oneiro import seeds
from oneiro.errors import OneiroError
from oneiro.models.language import LanguageModel
from oneiro.predictors.video.task import VideoPredictor
from oneiro.predictors.video.dataset import Footage
from oneiro.report.table import Table
from oneiro.sampling.engine import Engine
from oneiro.systems.rlvr.video.data import test_windows
from oneiro.systems.rlvr.video.evaluate import Exam, Measured, tables
from oneiro.systems.rlvr.video.model import PRETRAIN, VideoHabits, open_model
from oneiro.worlds.robot.episodes import Episodes, open_episodes

Split = Literal["test", "all"]
Subjects = dict[str, tuple[LanguageModel, VideoPredictor, VideoHabits]]


def evaluate_video(
    subjects: Subjects,
    data: str | Path,
    split: Split = "test",
    segments: int = 200,
    runs: int = 3,
    networks: Sequence[str] = ("alex", "vgg"),
    seed: int = 0,
    advance: Callable[[int], None] = lambda done: None,
    say: Callable[[str], None] = lambda line: None,
) -> list[Table]:
    """Tables of the models (`open_subjects`) on the test episodes of a folder, or on all of it.

    `say` hears of every file that is left out.
    """
    _, task, habits = next(iter(subjects.values()))
    episodes = chosen(data, split, habits, say)
    footage = Footage(episodes, task.layout.frames, (task.tokenizer.settings.height, task.tokenizer.settings.width))
    exam = Exam(task, footage, test_windows(footage, segments), networks)
    rows: dict[str, Measured] = exam.baselines()
    for name, (language, _, how) in subjects.items():
        sampling = seeds.derive(seed, "evaluate")
        rows[name] = exam.model(Engine(language), how.limits, runs, sampling, advance)
    return tables(rows, exam.episodes)


def open_subjects(model: str | Path) -> Subjects:
    """The models to measure: of a run, before and after RL as far as it has come."""
    stages = {"base": PRETRAIN, "RLVR": "rl"}
    there = {
        name: stage for name, stage in stages.items() if any(Path(model).glob(f"checkpoints/{stage}/step-*/model"))
    }
    if not there:
        return {Path(model).name: open_model(model)}
    return {name: open_model(model, stage) for name, stage in there.items()}


def chosen(data: str | Path, split: Split, habits: VideoHabits, say: Callable[[str], None]) -> Episodes:
    """The episodes of a folder that count: its test split, cut as the model's training cut it, or all."""
    episodes = open_episodes(data, every=habits.test_every)
    for _, reason in episodes.damaged:
        say(f"left out: {reason}")
    found = episodes.test if split == "test" else episodes
    if not len(found):
        raise OneiroError(f"{data} has no test episodes")
    entries = len(next(found.actions())[0])
    if entries != len(habits.bins["low"]):
        raise OneiroError(f"actions in {data} have {entries} numbers, the model knows {len(habits.bins['low'])}")
    return found
