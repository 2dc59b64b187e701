"""Who acts and who judges: a clone of the expert and a classifier of success, learned from simulator episodes.

Both are trained on the episodes of the training split and kept in a folder; the classifier is measured on episodes that
neither saw. The classifier reads how far the drawer is open off a frame, and the task's own threshold decides.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import Field
from rich.console import Console

from oneiro.models.smollm import home
from oneiro.models.video.pixel import CONFIG, PixelReader, PixelSettings, train_reader
from oneiro.recipe import Settings
from oneiro.report import stats
from oneiro.report.table import Cell, Table
from oneiro.runtime import files
from oneiro.runtime.errors import OneiroError, nearest
from oneiro.runtime.progress import Bar
from oneiro.systems.policy_eval.policies import Cloned, clones
from oneiro.worlds.robot.collect import PERTURBATIONS, CollectSettings, collect
from oneiro.worlds.robot.episodes import RobotEpisode, open_episodes
from oneiro.worlds.robot.simulator import ACTION_REPEAT, TASKS, RobotTask, TaskName

SETTINGS, VALIDATION = "policies.json", "validation.json"
Progress = Callable[[str, int], Bar]
"""A progress bar of a title and a total."""
Say = Callable[[str], Any]


def quiet(title: str, total: int) -> Bar:
    """A bar that nobody sees."""
    return Bar(title, total, 0, Console(quiet=True), lambda line: None)


class PolicyTrainingSettings(Settings):
    """How the clone and the classifier come about."""

    episodes: int = Field(default=300, ge=4)
    """Simulator episodes that are recorded for them, where no folder is given."""
    test_every: int = Field(default=10, ge=2)
    """One episode in so many is for validation."""
    clone: PixelSettings = PixelSettings(steps=600)
    classifier: PixelSettings = PixelSettings(steps=600)
    stages: dict[str, float] = Field(default_factory=lambda: {"begin": 0.02, "early": 0.08})
    """Stages of the clone's training that are policies of their own: name, and share of the training."""
    seed: int = 0

    @property
    def policies(self) -> list[str]:
        """The names of all policies that will come of it."""
        return [*PERTURBATIONS, *self.stages]


@dataclass(frozen=True)
class TrainedPolicies:
    """Policies by name, and the classifier with what is known of its reliability."""

    policies: dict[str, Cloned]
    classifier: SuccessClassifier
    validation: Table

    def chosen(self, names: str) -> dict[str, Cloned]:
        """Policies by a list of names with commas, or `all`."""
        return {name: self.policies[name] for name in chosen_names(names, self.policies)}


def chosen_names(names: str, known: Iterable[str]) -> list[str]:
    """The known names that a list with commas, or `all`, stands for."""
    there = list(known)
    wanted = there if names == "all" else [name.strip() for name in names.split(",")]
    for name in wanted:
        if name not in there:
            raise OneiroError(f"no policy is called '{name}'{nearest(name, there)}")
    return wanted


@dataclass(frozen=True)
class SuccessClassifier:
    """Success of a task, seen in a frame."""

    task: RobotTask
    reader: PixelReader

    def opening(self, frames: np.ndarray) -> np.ndarray:
        """How far the drawer is open in frames uint8 `[N, H, W, 3]`: metres `[N]`."""
        return self.reader.read(frames)[:, 0]

    def done(self, frames: np.ndarray) -> np.ndarray:
        """Whether the task is done in each frame, bool `[N]`."""
        return np.asarray(self.task.done(self.opening(frames)))


def policies_of(
    task: TaskName,
    size: int,
    settings: PolicyTrainingSettings,
    progress: Progress,
    data: Path | None = None,
    folder: Path | None = None,
    workers: int = 2,
    action_repeat: int = ACTION_REPEAT,
    say: Say = lambda line: None,
) -> TrainedPolicies:
    """The policies of a task at a frame size, whose actions last `action_repeat` simulator steps: loaded from `folder`,
    else made there (a few minutes, once). `say` hears of every file of `data` that is left out.
    """
    folder = folder or default_folder(task, size, settings, data, action_repeat)
    # Before anything is trained: a folder made otherwise would give policies that nobody asked for.
    _same(folder, {"task": task, "size": size, "action_repeat": action_repeat, **settings.model_dump(mode="json")})
    readers = [*((name, folder / f"clone-{name}") for name in settings.stages), ("expert", folder / "clone")]
    if not (folder / VALIDATION).is_file():
        make_policies(task, size, settings, progress, data, folder, workers, action_repeat, say)
    classifier = SuccessClassifier(TASKS[task], PixelReader.load(folder / "classifier"))
    policies = clones([(name, PixelReader.load(place)) for name, place in readers])
    return TrainedPolicies(policies, classifier, Table.read(files.read_json(folder / VALIDATION)))


def default_folder(
    task: TaskName, size: int, settings: PolicyTrainingSettings, data: Path | None, action_repeat: int
) -> Path:
    """Where policies are kept that nobody gave a place: one for each way to make them."""
    # Whatever changes the policies is part of the name, so that no run reads those of another.
    made = f"{settings.model_dump_json()} {action_repeat} {data.resolve() if data else ''}"
    return home() / "policies" / f"{task}-{size}-{hashlib.sha256(made.encode()).hexdigest()[:12]}"


def make_policies(
    task: TaskName,
    size: int,
    settings: PolicyTrainingSettings,
    progress: Progress,
    data: Path | None,
    folder: Path,
    workers: int,
    action_repeat: int,
    say: Say,
) -> None:
    """Record episodes where none are given, train both networks, measure the classifier. Existing files are kept."""
    if data is None:
        data = folder / "episodes"
        recorded = CollectSettings(task=task, size=size, action_repeat=action_repeat, seed=settings.seed)
        with progress(f"episodes of {task}", settings.episodes) as bar:
            collect(recorded, settings.episodes, data, workers, bar.advance)
    episodes = open_episodes(data, every=settings.test_every)
    for _, reason in episodes.damaged:
        say(f"left out: {reason}")
    train, test = (
        [episode for episode in part if _fits(episode, task, size, action_repeat)]
        for part in (episodes.train, episodes.test)
    )
    if not train or not test:
        raise OneiroError(
            f"{data} has too few {task} episodes of {size}x{size} with action_repeat={action_repeat}, "
            "as the model's, from oneiro data robot to train and to validate on"
        )
    images = np.concatenate([episode.image for episode in train])
    # Each network by itself: a process that was killed between the two need not train the first again.
    if not (folder / "clone" / CONFIG).is_file():
        experts = np.concatenate([episode.signals["expert"] for episode in train])
        shares = [*settings.stages.values(), 1.0]
        with progress("clone of the expert", settings.clone.steps) as bar:
            stages = train_reader(images, experts, settings.clone, settings.seed, shares, _telling(bar))
        for name, reader in zip(settings.stages, stages, strict=False):  # the last stage is the finished clone
            reader.save(folder / f"clone-{name}")
        stages[-1].save(folder / "clone")
    if not (folder / "classifier" / CONFIG).is_file():
        openings = np.concatenate([episode.signals["opening"] for episode in train])[:, None]
        with progress("classifier of success", settings.classifier.steps) as bar:
            (reader,) = train_reader(images, openings, settings.classifier, settings.seed + 1, advance=_telling(bar))
        reader.save(folder / "classifier")
    classifier = SuccessClassifier(TASKS[task], PixelReader.load(folder / "classifier"))
    files.write_json(folder / VALIDATION, validate(classifier, test).data())


def validate(classifier: SuccessClassifier, episodes: Sequence[RobotEpisode]) -> Table:
    """How often the classifier is right about frames of episodes it never saw, and how far its reading is off."""
    table = Table(
        "The classifier on held-out simulator frames",
        ["frames", "error of the opening", "right about success", "succeeded"],
        {"error of the opening": "mm", "right about success": "%", "succeeded": "%"},
        note="intervals and n are over episodes; a last frame is what decides a rollout",
    )
    read = [classifier.opening(episode.image) for episode in episodes]
    true = [episode.signals["opening"] for episode in episodes]
    for name, part in (("all", slice(None)), ("last of an episode", slice(-1, None))):
        pairs = [(a[part], b[part]) for a, b in zip(read, true, strict=True)]
        cells: list[Cell] = [
            stats.bootstrap([1000 * np.abs(a - b).mean() for a, b in pairs]),
            stats.bootstrap([(classifier.task.done(a) == classifier.task.done(b)).mean() for a, b in pairs]),
            stats.bootstrap([classifier.task.done(b).mean() for _, b in pairs]),
        ]
        table.add(name, *cells)
    return table


def _same(folder: Path, wanted: dict[str, Any]) -> None:
    """A folder's policies were made as they are wanted now; what they were made with lies beside them."""
    path = folder / SETTINGS
    if not path.exists():
        files.write_json(path, wanted)
        return
    for key, value in {"action_repeat": ACTION_REPEAT, **files.read_json(path)}.items():
        if wanted.get(key) != value:
            raise OneiroError(
                f"{folder} holds policies made with {key}={value}, not {wanted.get(key)}; choose another --policies"
            )


def _fits(episode: RobotEpisode, task: str, size: int, action_repeat: int) -> bool:
    known = {"expert", "opening"} <= set(episode.signals)
    alike = episode.info.get("task") == task and episode.info.get("action_repeat", ACTION_REPEAT) == action_repeat
    return known and alike and episode.image.shape[1:3] == (size, size)


def _telling(bar: Bar) -> Callable[[int, float], Any]:
    return lambda step, loss: bar.advance(1, loss=loss)
