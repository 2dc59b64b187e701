"""Real2Sim: policies are run inside a model, and their success there is compared with their success outside.

    clone and classifier  ->  policies act on the model's frames  ->  classifier on the last one  ->  rates, agreement

"Outside" is the true simulator: the same policies, starts and noise, and success from its state. Both loops are one
function; the simulator is a frame model like any other.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import Field

from oneiro.recipe import Settings
from oneiro.report.table import Table
from oneiro.runtime.errors import OneiroError, nearest
from oneiro.runtime.seeds import derive
from oneiro.sampling.engine import Engine
from oneiro.systems.policy_eval.agreement import (
    SIMULATOR,
    Comparison,
    FrameModel,
    tables,
)
from oneiro.systems.policy_eval.policies import (
    PixelPolicy,
    PolicyTrainingSettings,
    Progress,
    Say,
    SuccessClassifier,
    chosen_names,
    policies_of,
    quiet,
)
from oneiro.tasks.scorer import read_rows
from oneiro.tasks.video.evaluation import open_models
from oneiro.tasks.video.model import PRETRAIN, LearnedFrames, open_model
from oneiro.worlds.robot.drawer import draw_start
from oneiro.worlds.robot.episodes import RobotEpisode, write_episode
from oneiro.worlds.robot.simulator import ACTION, ACTION_REPEAT, TASKS, DrawerSimulator, TaskName

NAMES = {PRETRAIN: "base", "rl": "RLVR"}
"""Stages of a video run -> their models' names in the tables."""
Advance = Callable[[int], Any]
Labels = Mapping[tuple[str, str, int], bool]
"""Verdicts of a person, by model, policy and start."""


class Real2SimSettings(Settings):
    """What is played."""

    task: TaskName = "drawer-open"
    starts: int = Field(default=30, ge=1)
    """Starts of the evaluation split, drawn by the seed, the same ones for every policy and model."""
    horizon: int = Field(default=32, ge=1)
    """Actions of a rollout; its last frame decides success."""
    action_repeat: int = Field(default=ACTION_REPEAT, ge=1)
    """Simulator steps that an action lasts; as in the data the model learned from."""
    seed: int = 0


def run(
    model: str | Path,
    settings: Real2SimSettings,
    policies: str = "all",
    training: PolicyTrainingSettings | None = None,
    *,
    stage: str | None = None,
    data: Path | None = None,
    folder: Path | None = None,
    labels: Path | None = None,
    keep: Path | None = None,
    progress: Progress = quiet,
    say: Say = lambda line: None,
) -> tuple[Comparison, list[Table]]:
    """What `oneiro eval policy` does: policies by name act in the models of a video run and in the simulator.

    The clone and the classifier come from `folder`, else they are made as `training` says, from episodes in `data` or
    simulated ones. `stage` asks for one model of the run; `keep` is a folder for all rollouts.
    """
    training = training or PolicyTrainingSettings()
    names = chosen_names(policies, training.policies)  # before anything is opened: a wrong name shows at once
    models, size, action_repeat = learned_models(model, stage)
    settings = settings.model_copy(update={"action_repeat": action_repeat})
    verdicts = read_labels(labels, models, names, settings.starts) if labels is not None else None
    made = policies_of(settings.task, size, training, progress, data, folder, action_repeat=action_repeat, say=say)
    truth = SimulatedFrames(settings, size)
    with progress(f"rollouts of {settings.task}", len(names) * (1 + len(models))) as bar:
        compared = compare(models, made.chosen(policies), made.classifier, truth, settings, bar.advance, keep, verdicts)
    return compared, [*tables(compared, settings.task), made.validation]


@dataclass(frozen=True)
class PolicyRollouts:
    """B rollouts: frames uint8 `[B, T + 1, H, W, 3]`, the start among them, and actions float32 `[B, T, A]`."""

    frames: np.ndarray
    actions: np.ndarray
    lengths: np.ndarray
    """Actions taken `[B]` before the policy stopped, or T."""

    @property
    def last(self) -> np.ndarray:
        """The frame each rollout ended with, `[B, H, W, 3]`."""
        return self.frames[np.arange(len(self.frames)), self.lengths]


def rollout(
    model: FrameModel,
    policy: PixelPolicy,
    starts: np.ndarray,
    horizon: int,
    seed: int,
    instruction: str = "",
    stops: Callable[[np.ndarray], np.ndarray] | None = None,
) -> PolicyRollouts:
    """Let a policy act inside a model from start frames uint8 `[B, H, W, 3]`.

    The model's sampling noise differs at every step. `stops` says of actions `[B, A]` which rollouts the policy ends:
    they are carried along, since the model answers all of them at once, and end where they stopped.
    """
    count = len(starts)
    policy.begin(count, derive(seed, "policy"), instruction)
    frames, actions = [model.begin(starts[:, None], np.zeros((count, 0, 0), np.float32))], []
    lengths = np.full(count, horizon)
    for step in range(horizon):
        actions.append(np.asarray(policy.act(frames[-1]), np.float32))
        if stops is not None:
            # The first stop counts: what a policy does after it said that it is done is not part of its rollout.
            lengths = np.where(stops(actions[-1]) & (lengths == horizon), step, lengths)
        frames.append(model.step(actions[-1], derive(seed, "model", step)))
    return PolicyRollouts(np.stack(frames, axis=1), np.stack(actions, axis=1), lengths)


class SimulatedFrames:
    """The true simulator as a frame model: the frames are true, and what is behind them can be asked."""

    def __init__(self, settings: Real2SimSettings, size: int) -> None:
        self.simulator = DrawerSimulator(settings.task, size, settings.action_repeat)
        self._starts, frames = [], []
        for number in range(settings.starts):
            # Of the evaluation split, which neither the clone nor the classifier has seen.
            side, _ = draw_start(settings.task, derive(settings.seed, "start", number), "eval")
            self.simulator.reset(side)
            self._starts.append(self.simulator.save())
            frames.append(self.simulator.frame())
        self.starts = np.stack(frames)
        """The first frame of every start, uint8 `[S, H, W, 3]`."""
        self._now = list(self._starts)
        self.openings = np.zeros(settings.starts)
        """How far each drawer is open now."""

    def begin(self, frames: np.ndarray, actions: np.ndarray) -> np.ndarray:
        if frames.shape[1] != 1 or not np.array_equal(frames[:, 0], self.starts):
            raise ValueError("the simulator begins with its own starts: their state is not in a frame")
        self._now = list(self._starts)
        return self.starts

    def step(self, actions: np.ndarray, seed: int) -> np.ndarray:
        frames = []
        for row, action in enumerate(actions):
            self.simulator.restore(self._now[row])
            self.simulator.act(action)
            frames.append(self.simulator.frame())
            self._now[row], self.openings[row] = self.simulator.save(), self.simulator.opening
        return np.stack(frames)


def compare(
    models: Mapping[str, FrameModel],
    policies: Mapping[str, PixelPolicy],
    classifier: SuccessClassifier,
    truth: SimulatedFrames,
    settings: Real2SimSettings,
    advance: Advance = lambda count: None,
    keep: Path | None = None,
    labels: Labels | None = None,
) -> Comparison:
    """Run every policy in the simulator and in every model, from the same starts and with the same noise of the policy.

    `keep` is a folder for all rollouts as episode files; `labels` stand in the classifier's place.
    """
    instruction, labels, labelled = TASKS[settings.task].instruction, labels or {}, 0
    real: list[np.ndarray] = []
    classified: list[np.ndarray] = []
    verdicts_by_model: dict[str, list[np.ndarray]] = {name: [] for name in models}
    decoded: dict[str, list[np.ndarray]] = {
        name: [] for name, model in models.items() if not isinstance(model, SimulatedFrames)
    }
    for policy_name, policy in policies.items():
        seed = derive(settings.seed, "real2sim", policy_name)
        for name, model in {SIMULATOR: truth, **models}.items():
            played = rollout(model, policy, truth.starts, settings.horizon, seed, instruction)
            verdict = classifier.done(played.last)
            for start in range(len(verdict)):  # a person's word counts over the classifier's
                if (name, policy_name, start) in labels:
                    verdict[start] = labels[name, policy_name, start]
                    labelled += 1
            if name == SIMULATOR:
                real.append(np.asarray(classifier.task.done(truth.openings)))
                classified.append(verdict)
                for other, verdicts in decoded.items():
                    # The classifier learned from true frames; how it errs on frames that a model draws is part of the
                    # table.
                    verdicts.append(classifier.done(redrawn(models[other], truth.starts, played.last)))
            else:
                verdicts_by_model[name].append(verdict)
            if keep is not None:
                judged = [{"task": settings.task, "classified": bool(done)} for done in verdict]
                keep_rollouts(keep, played, name, policy_name, judged)
            advance(1)
    outcomes = {name: np.stack(rows) for name, rows in verdicts_by_model.items()}
    drawn = {name: np.stack(rows) for name, rows in decoded.items()}
    return Comparison(tuple(policies), np.stack(real), np.stack(classified), outcomes, drawn, labelled)


def redrawn(model: FrameModel, starts: np.ndarray, frames: np.ndarray) -> np.ndarray:
    """True frames uint8 `[B, H, W, 3]` as a model draws them in a rollout that began with `starts`."""
    return model.begin(np.stack([starts, frames], axis=1), np.zeros((len(starts), 1, ACTION), np.float32))


def learned_models(place: str | Path, stage: str | None = None) -> tuple[dict[str, FrameModel], int, int]:
    """The models of a video run by name, before and after RLVR where it has both, the side of their frames, and how
    many simulator steps their actions last.
    """
    opened = open_models(place) if stage is None else {NAMES.get(stage, stage): open_model(place, stage)}
    sizes = {(task.tokenizer.settings.height, task.tokenizer.settings.width) for _, task, _ in opened.values()}
    height, width = sizes.pop()
    if sizes or height != width:
        raise OneiroError(f"{place} draws {height}x{width} frames; the simulator's are square, of one size")
    for _, task, _ in opened.values():
        if len(task.bins.low) != ACTION:
            raise OneiroError(f"{place} knows actions of {len(task.bins.low)} numbers; the drawer's have {ACTION}")
    models: dict[str, FrameModel] = {
        name: LearnedFrames(task, Engine(language), metadata.sampling)
        for name, (language, task, metadata) in opened.items()
    }
    return models, height, next(metadata.action_repeat for _, _, metadata in opened.values())


def read_labels(path: Path, models: Collection[str], policies: Collection[str], starts: int) -> Labels:
    """Verdicts of a person: one JSON object a line, `{"model", "policy", "start", "success"}`.

    Each must be about a rollout of `policies` from so many starts, in the simulator or in one of `models`: a verdict on
    anything else would be lost without a word.
    """
    verdicts: dict[tuple[str, str, int], bool] = {}
    for place, row in read_rows(path):
        model, policy, start, success = (row.get(name) for name in ("model", "policy", "start", "success"))
        if type(start) is not int or not isinstance(success, bool):
            raise OneiroError(f'{place}: write {{"model": .., "policy": .., "start": 0, "success": true}}')
        for kind, name, known in (("model", model, [SIMULATOR, *models]), ("policy", policy, policies)):
            if name not in known:
                raise OneiroError(f"{place}: no {kind} here is called '{name}'{nearest(str(name), known)}")
        if not 0 <= start < starts:
            raise OneiroError(f"{place}: there is no start {start}; they are 0 to {starts - 1}")
        verdicts[str(model), str(policy), start] = success
    return verdicts


def keep_rollouts(
    folder: Path, played: PolicyRollouts, model: str, policy: str, info: Mapping[str, Any] | Sequence[Mapping[str, Any]]
) -> None:
    """Every rollout as an episode file, with what is known of all, or of each, of them."""
    for start, (frames, actions) in enumerate(zip(played.frames, played.actions, strict=True)):
        length = int(played.lengths[start])
        taken = np.concatenate([actions[:length], np.zeros_like(actions[:1])])
        own = info if isinstance(info, Mapping) else info[start]
        known = {"model": model, "policy": policy, "start": start, **own}
        write_episode(folder / f"{model}_{policy}_{start:03d}.npz", RobotEpisode(frames[: length + 1], taken, known))
