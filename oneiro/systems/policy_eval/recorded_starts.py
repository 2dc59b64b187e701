"""Policies of a real robot inside a learned model of its video: no simulator tells what is true.

    first frames of test episodes  ->  policy acts on the model's frames  ->  episode files, and what people say of them

Success is what a person says of the last frame (`--labels`), as published; the policy's own end is reported beside it.
Where the success of the policies on the robot is known, both are compared as in `compare`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from pydantic import Field

from oneiro.recipe import Settings
from oneiro.report import stats
from oneiro.report.table import Table
from oneiro.runtime.errors import OneiroError
from oneiro.runtime.seeds import derive, generator
from oneiro.sampling.engine import Engine
from oneiro.systems.policy_eval.agreement import FrameModel, mean_gap, mmrv, pearson
from oneiro.systems.policy_eval.pipeline import Advance, Labels, PolicyRollouts, keep_rollouts, read_labels, rollout
from oneiro.systems.policy_eval.policies import WIDTHS, PixelPolicy, Progress, Say, load_rt1, quiet, rt1_stops
from oneiro.tasks.video.dataset import resize
from oneiro.tasks.video.evaluation import chosen, open_models
from oneiro.tasks.video.model import LearnedFrames, VideoModel
from oneiro.worlds.robot.episodes import Episodes


class RecordedStartSettings(Settings):
    """What is played."""

    instruction: str = "open middle drawer"
    """Only episodes with this instruction are started from."""
    starts: int = Field(default=30, ge=1)
    """Test episodes, drawn by the seed, none of them twice; the same ones for every policy and model."""
    horizon: int = Field(default=112, ge=1)
    """Actions of a rollout, unless the policy ends it before."""
    seed: int = 0


def run(
    model: str | Path,
    data: Path,
    checkpoints: Mapping[str, str],
    encoder: Path,
    settings: RecordedStartSettings,
    real: Mapping[str, float],
    *,
    labels: Path | None = None,
    keep: Path | None = None,
    progress: Progress = quiet,
    say: Say = lambda line: None,
) -> list[Table]:
    """What `oneiro eval rt1` does: checkpoints of RT-1 by name act in the models of a video run.

    `real` is what is known of the policies' success on the robot.
    """
    opened = open_models(model)
    models = robot_models(opened)
    verdicts = read_labels(labels, models, checkpoints, settings.starts) if labels is not None else None
    _, task, metadata = next(iter(opened.values()))
    sizes = task.tokenizer.settings
    frames = draw_starts(chosen(data, "test", metadata, say), settings, (sizes.height, sizes.width))
    policies = {name: load_rt1(place, encoder) for name, place in checkpoints.items()}
    with progress("rollouts", len(policies) * len(models)) as bar:
        played = evaluate_policies(models, policies, frames, settings, bar.advance, keep, verdicts)
    return robot_tables(played, real, settings.instruction)


def draw_starts(episodes: Episodes, settings: RecordedStartSettings, size: tuple[int, int]) -> np.ndarray:
    """First frames of test episodes with the instruction, uint8 `[S, H, W, 3]`."""
    wanted = settings.instruction.strip().lower()
    there = [
        place
        for place, info in enumerate(episodes.infos())
        if str(info.get("instruction", "")).strip().lower() == wanted
    ]
    # Fewer starts would change what the intervals mean without a word.
    if len(there) < settings.starts:
        raise OneiroError(
            f"{len(there)} test episodes say '{settings.instruction}', {settings.starts} are asked for; "
            "lower --starts or import more (oneiro data rlds)"
        )
    drawn = generator("recorded starts", settings.seed).permutation(there)[: settings.starts]
    frames = [episodes.segment(int(place), 0, 1).image for place in drawn]
    return np.concatenate([frame if frame.shape[1:3] == size else resize(frame, size) for frame in frames])


def robot_models(models: Mapping[str, VideoModel]) -> dict[str, FrameModel]:
    """Video models as what RT-1's policies act in; they must know its actions."""
    entries = sum(WIDTHS)
    for name, (_, task, _) in models.items():
        if len(task.bins.low) != entries:
            raise OneiroError(f"'{name}' knows actions of {len(task.bins.low)} numbers; RT-1's have {entries}")
    return {name: LearnedFrames(task, Engine(language), how.sampling) for name, (language, task, how) in models.items()}


@dataclass(frozen=True)
class RobotComparison:
    """Rollouts of each policy in each model: actions taken, whether the policy ended it, and people's verdicts."""

    lengths: dict[tuple[str, str], np.ndarray]
    ended: dict[tuple[str, str], np.ndarray]
    verdicts: dict[tuple[str, str], np.ndarray]
    """Only of those that were labelled."""


def evaluate_policies(
    models: Mapping[str, FrameModel],
    policies: Mapping[str, PixelPolicy],
    starts: np.ndarray,
    settings: RecordedStartSettings,
    advance: Advance = lambda count: None,
    keep: Path | None = None,
    labels: Labels | None = None,
) -> RobotComparison:
    """Run every policy in every model from the same starts, with the same noise of the policy."""
    comparison = RobotComparison({}, {}, {})
    for policy_name, policy in policies.items():
        seed = derive(settings.seed, "real2sim", policy_name)
        for name, model in models.items():
            played: PolicyRollouts = rollout(
                model, policy, starts, settings.horizon, seed, settings.instruction, stops=rt1_stops
            )
            where, verdicts = (name, policy_name), labels or {}
            comparison.lengths[where], comparison.ended[where] = played.lengths, played.lengths < settings.horizon
            known = [verdicts[name, policy_name, n] for n in range(len(starts)) if (name, policy_name, n) in verdicts]
            comparison.verdicts[where] = np.array(known, bool)
            if keep is not None:
                keep_rollouts(keep, played, name, policy_name, {"instruction": settings.instruction})
            advance(1)
    return comparison


def robot_tables(comparison: RobotComparison, real: Mapping[str, float], instruction: str) -> list[Table]:
    """Rollouts of each policy; agreement with the robot, where each policy's success on it is given."""
    table = Table(
        f"Policies inside the model: {instruction}",
        ["policy", "success in", "rollouts", "actions", "ended by the policy", "success, labelled", "success, robot"],
        {"ended by the policy": "%", "success, labelled": "%", "success, robot": "%"},
        note="success is a person's verdict on the last frame (--labels); n counts the rollouts that have one",
    )
    for (model, policy), lengths in comparison.lengths.items():
        ended, verdicts = comparison.ended[model, policy], comparison.verdicts[model, policy]
        labelled = stats.wilson(int(verdicts.sum()), len(verdicts)) if len(verdicts) else None
        ends = stats.wilson(int(ended.sum()), len(ended))
        table.add(policy, model, len(lengths), float(lengths.mean()), ends, labelled, real.get(policy))
    tables = [table]
    agreed = Table("Agreement with the robot", ["success in", "policies", "mean gap", "Pearson", "MMRV"])
    for model in dict.fromkeys(model for model, _ in comparison.lengths):
        both = [name for name in real if len(comparison.verdicts.get((model, name), ()))]
        if len(both) > 1:
            inside, outside = (
                [float(comparison.verdicts[model, name].mean()) for name in both],
                [real[name] for name in both],
            )
            sides = {"simulated": inside, "real": outside}
            agreed.add(model, len(both), mean_gap(**sides), pearson(**sides), mmrv(**sides))
    return [*tables, *([agreed] if agreed.rows else [])]


def named_values(pairs: list[str], what: str) -> dict[str, str]:
    values: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name or not value or name in values:
            raise OneiroError(f"'{pair}' is not NAME={what}, or its name is used twice")
        values[name] = value
    return values


def real_rates(pairs: list[str]) -> dict[str, float]:
    """Success of policies on the robot, as `NAME=RATE` from 0 to 1."""
    rates: dict[str, float] = {}
    for name, text in named_values(pairs, "RATE").items():
        try:
            rates[name] = float(text)
        except ValueError:
            rates[name] = -1.0
        if not 0 <= rates[name] <= 1:
            raise OneiroError(f"'{name}={text}': a success rate is a number from 0 to 1")
    return rates
