"""Policies that see frames: clones of the expert at every perturbation, RT-1 and recorded actions; and the training of
the clone and of the classifier that judges success.

What a policy inside a model does must follow from what the model shows, or nothing of the model is tested. The scripted
policies of a simulator cannot do that: they read its state. So each policy here is the *cloned* expert, a network that
sees the frame, spoiled in the same way as the scripted one; and the clone at earlier stages of its training.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

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
from oneiro.runtime.seeds import generator
from oneiro.worlds.robot.collect import PERTURBATIONS, CollectSettings, Perturbation, collect
from oneiro.worlds.robot.episodes import RobotEpisode, open_episodes
from oneiro.worlds.robot.rlds import RT1_ACTION
from oneiro.worlds.robot.simulator import ACTION_REPEAT, TASKS, RobotTask, TaskName


class PixelPolicy(Protocol):
    """Acts on what it sees, in B rollouts at a time."""

    def begin(self, count: int, seed: int, instruction: str) -> None:
        """Start `count` rollouts; nothing of earlier ones remains."""
        ...

    def act(self, frames: np.ndarray) -> np.ndarray:
        """Frames uint8 `[B, H, W, 3]` -> actions float32 `[B, A]`."""
        ...


class Cloned:
    """A network's action with a perturbation, whose noise differs in each rollout."""

    def __init__(self, reader: PixelReader, perturbation: str = "expert") -> None:
        self.reader, self.perturbation = reader, PERTURBATIONS[perturbation]
        self._perturbations: list[Perturbation] = []

    def begin(self, count: int, seed: int, instruction: str) -> None:
        self._perturbations = [self.perturbation(generator("cloned", seed, row)) for row in range(count)]

    def act(self, frames: np.ndarray) -> np.ndarray:
        read = self.reader.read(frames)
        return np.stack([perturb(action) for perturb, action in zip(self._perturbations, read, strict=True)])


class Recorded:
    """Actions `[B, T, A]` that were recorded elsewhere, one after the other, whatever is shown: an open loop.

    It measures how well a model follows given actions, not a policy. After its end it repeats the last action.
    """

    def __init__(self, actions: np.ndarray) -> None:
        self.actions = np.asarray(actions, np.float32)
        self._at = 0

    def begin(self, count: int, seed: int, instruction: str) -> None:
        if count != len(self.actions):
            raise ValueError(f"{len(self.actions)} recordings cannot play {count} rollouts")
        self._at = 0

    def act(self, frames: np.ndarray) -> np.ndarray:
        action = self.actions[:, min(self._at, self.actions.shape[1] - 1)]
        self._at += 1
        return action


def clones(readers: Sequence[tuple[str, PixelReader]]) -> dict[str, Cloned]:
    """Every policy that comes of a clone's stages: the last one with each perturbation, earlier ones by name."""
    *earlier, (_, last) = readers
    return {name: Cloned(last, name) for name in PERTURBATIONS} | {name: Cloned(reader) for name, reader in earlier}


WIDTHS = (2, 1, 1, 3, 3, 3)
"""Numbers of each part of the action, in the order of `RT1_ACTION`."""
FRAME = (256, 320)
DEAD_ZONE = 0.01
"""A gripper that would move less than this does not move."""
MISSING = "RT-1 checkpoints need TensorFlow; run: pip install 'oneiro[rt1]'"

Step = Callable[[np.ndarray, str, Any], tuple[Mapping[str, Any], Any]]
"""A frame uint8 `[256, 320, 3]`, the instruction and the state (None at first) -> named outputs and the next state."""


class Rt1:
    """RT-1 in B rollouts, each with a state of its own. `step` runs the network for one frame; see `load_rt1`.

    A checkpoint (`rt_1_tf_trained_for_...`) is a SavedModel with the functions `action(time_step, state)` and
    `get_initial_state(batch_size)`. What else a time step of it holds is read from its own signature and left at zero.
    """

    def __init__(self, step: Step) -> None:
        self.step = step
        self._states: list[Any] = []
        self._instruction = ""

    def begin(self, count: int, seed: int, instruction: str) -> None:
        self._states, self._instruction = [None] * count, instruction

    def act(self, frames: np.ndarray) -> np.ndarray:
        actions = []
        for row, frame in enumerate(frames):
            outputs, self._states[row] = self.step(fit_frame(frame), self._instruction, self._states[row])
            actions.append(rt1_action(outputs))
        return np.stack(actions)


def rt1_action(outputs: Mapping[str, Any]) -> np.ndarray:
    """RT-1's outputs as its thirteen numbers; what it does not say (the base) is 0, a barely moved gripper too."""
    parts = []
    for name, width in zip(RT1_ACTION, WIDTHS, strict=True):
        part = np.asarray(outputs.get(name, np.zeros(width)), np.float32).reshape(-1)
        if part.shape != (width,):
            raise ValueError(f"{name} has {part.size} numbers, RT-1's has {width}")
        if name == "gripper_closedness_action":
            part = np.where(np.abs(part) < DEAD_ZONE, np.float32(0), part)
        parts.append(part)
    return np.concatenate(parts)


def rt1_stops(actions: np.ndarray) -> np.ndarray:
    """Whether actions `[B, 13]` end the episode: terminate_episode is (1, 0, 0)."""
    return np.asarray((np.rint(actions[:, 7:10]) == (1, 0, 0)).all(axis=1))


def fit_frame(frame: np.ndarray) -> np.ndarray:
    """A frame inside 256x320 with its proportions kept, black around it."""
    from PIL import Image

    height, width = FRAME
    scale = min(height / frame.shape[0], width / frame.shape[1])
    inner = max(1, round(frame.shape[1] * scale)), max(1, round(frame.shape[0] * scale))
    whole = np.zeros((height, width, 3), np.uint8)
    top, left = (height - inner[1]) // 2, (width - inner[0]) // 2
    resized = np.asarray(Image.fromarray(frame).resize(inner, Image.Resampling.BILINEAR))
    whole[top : top + inner[1], left : left + inner[0]] = resized
    return whole


def load_rt1(checkpoint: str | Path, embedder: str | Path) -> Rt1:
    """RT-1 from a SavedModel folder, and a sentence encoder of 512 numbers (Universal Sentence Encoder Large 5)."""
    try:
        import tensorflow as tf
    except ImportError as error:
        raise OneiroError(MISSING) from error
    for folder in (checkpoint, embedder):
        if not (Path(folder) / "saved_model.pb").is_file():
            raise OneiroError(f"{folder} is not a TensorFlow SavedModel (no saved_model.pb); unpack it there")
    policy, encode = tf.saved_model.load(str(checkpoint)), tf.saved_model.load(str(embedder))
    (now_spec, state_spec), _ = policy.action.concrete_functions[0].structured_input_signature
    embedded: dict[str, Any] = {}

    def zeros(spec: Any) -> Any:
        return tf.zeros([1, *spec.shape[1:]], spec.dtype)

    def step(frame: np.ndarray, instruction: str, state: Any) -> tuple[Mapping[str, Any], Any]:
        if instruction not in embedded:
            embedded[instruction] = tf.cast(encode([instruction])[:1], tf.float32)
        now = tf.nest.map_structure(zeros, now_spec)
        seen = {"image": tf.constant(frame[None]), "natural_language_embedding": embedded[instruction]}
        # The first of an episode is of kind 0, the others 1: tf-agents' restart and transition.
        now = now._replace(
            step_type=tf.constant([int(state is not None)], tf.int32),
            discount=tf.ones([1], tf.float32),
            observation={**now.observation, **seen},
        )
        chosen = policy.action(now, tf.nest.map_structure(zeros, state_spec) if state is None else state)
        return {name: value.numpy()[0] for name, value in chosen.action.items()}, chosen.state

    return Rt1(step)


SETTINGS, VALIDATION = "policies.json", "validation.json"
Progress = Callable[[str, int], Bar]
"""A progress bar of a title and a total."""
Say = Callable[[str], Any]


def quiet(title: str, total: int) -> Bar:
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
