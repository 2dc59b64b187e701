"""What `oneiro eval video` does: a model in a folder, episodes in a folder, the tables of a run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

from oneiro.report.table import Table
from oneiro.runtime import seeds
from oneiro.runtime.errors import OneiroError
from oneiro.sampling.engine import Engine
from oneiro.tasks.video.data import fixed_windows
from oneiro.tasks.video.dataset import VideoDataset
from oneiro.tasks.video.evaluation import Measured, SegmentEvaluation, tables
from oneiro.tasks.video.model import PRETRAIN, VideoMetadata, VideoModel, open_model
from oneiro.worlds.robot.episodes import Episodes, open_episodes

Split = Literal["test", "all"]
VideoModels = dict[str, VideoModel]


def evaluate_video(
    models: VideoModels,
    data: str | Path,
    split: Split = "test",
    segments: int = 200,
    runs: int = 3,
    networks: Sequence[str] = ("alex", "vgg"),
    seed: int = 0,
    advance: Callable[[int], None] = lambda done: None,
    say: Callable[[str], None] = lambda line: None,
) -> list[Table]:
    """Tables of the models (`open_models`) on the test episodes of a folder, or on all of it.

    `say` hears of every file that is left out.
    """
    _, task, metadata = next(iter(models.values()))
    episodes = chosen(data, split, metadata, say)
    size = task.tokenizer.settings.height, task.tokenizer.settings.width
    dataset = VideoDataset(episodes, task.layout.frames, size)
    evaluation = SegmentEvaluation(task, dataset, fixed_windows(dataset, segments), networks)
    others = open_episodes(data, every=metadata.test_every, verify=False).train if split == "test" else None
    train = VideoDataset(others, task.layout.frames, size) if others else None
    rows: dict[str, Measured] = evaluation.baselines(train)
    for name, (language, _, how) in models.items():
        sampling = seeds.derive(seed, "evaluate")
        rows[name] = evaluation.model(Engine(language), how.sampling, runs, sampling, advance)
    return tables(rows, evaluation.episodes)


def open_models(model: str | Path) -> VideoModels:
    """The models to measure: of a run, before and after RL as far as it has come."""
    stages = {"base": PRETRAIN, "RLVR": "rl"}
    there = {
        name: stage for name, stage in stages.items() if any(Path(model).glob(f"checkpoints/{stage}/step-*/model"))
    }
    if not there:
        return {Path(model).name: open_model(model)}
    return {name: open_model(model, stage) for name, stage in there.items()}


def chosen(data: str | Path, split: Split, metadata: VideoMetadata, say: Callable[[str], None]) -> Episodes:
    """The episodes of a folder that count: its test split, cut as the model's training cut it, or all."""
    episodes = open_episodes(data, every=metadata.test_every)
    for _, reason in episodes.damaged:
        say(f"left out: {reason}")
    part = episodes.test if split == "test" else episodes
    if not len(part):
        raise OneiroError(f"{data} has no test episodes")
    entries = len(next(part.actions())[0])
    if entries != len(metadata.bins["low"]):
        raise OneiroError(f"actions in {data} have {entries} numbers, the model knows {len(metadata.bins['low'])}")
    return part
