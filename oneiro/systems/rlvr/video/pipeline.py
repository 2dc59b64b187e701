"""RLVR-World (arXiv 2505.13934) on video: a transformer learns to predict a robot's next frames from its actions, from
verified rewards.

    episodes  ->  tokenizer  ->  pre-training on true frames  ->  GRPO on pixels and looks  ->  evaluation

An episode of learning is one segment with one sampled future; the futures of one segment are a group.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from oneiro import seeds
from oneiro.episode import Episode
from oneiro.learning.collapse import CollapseMonitor
from oneiro.learning.learner import Learner
from oneiro.learning.loop import actor_of
from oneiro.models.video.tokenizer import images
from oneiro.predictors.video.encodings import Encodings
from oneiro.predictors.video.task import VideoPredictor
from oneiro.report.videos import save_gif
from oneiro.run import Run
from oneiro.sampling.engine import Engine
from oneiro.systems import stages
from oneiro.systems.rlvr.video.data import VideoData, data_stage, open_data
from oneiro.systems.rlvr.video.episodes import describe, play, record
from oneiro.systems.rlvr.video.evaluate import (
    CEILING,
    COPY,
    Measured,
    SegmentEvaluation,
    by_episode,
    mean_of_episodes,
    tables,
)
from oneiro.systems.rlvr.video.model import (
    PRETRAIN,
    check_init_from,
    model_after,
    pretrain_stage,
    task_of,
    tokenizer_stage,
)
from oneiro.systems.rlvr.video.recipe import VideoRecipe

__all__ = ["VideoRecipe", "run"]


def run(recipe: VideoRecipe, run: Run) -> None:
    """The whole pipeline inside a run directory."""
    if recipe.init_from.tokenizer or recipe.init_from.transformer:
        run.stage("init-from", lambda: check_init_from(recipe))
    looked = run.stage("data", lambda: data_stage(recipe, run))
    data = open_data(recipe, run, looked)
    run.stage("tokenizer", lambda: tokenizer_stage(recipe, run, data))
    run.stage(PRETRAIN, lambda: pretrain_stage(recipe, run, data))
    run.stage("evaluate-base", lambda: evaluate(recipe, run, data, "base", PRETRAIN))
    said = run.stage("rl", lambda: rl(recipe, run, data))
    run.stage("evaluate-rlvr", lambda: evaluate(recipe, run, data, "RLVR", "rl"))
    compared = run.stage("compare", lambda: compare(recipe, run, data))
    summarise(run, compared, said["notes"])


def rl(recipe: VideoRecipe, run: Run, data: VideoData) -> dict[str, Any]:
    """Learn from verified rewards; ends early when there is nothing left to learn from."""
    language, task, monitor = model_after(run, PRETRAIN), task_of(recipe, run), CollapseMonitor(recipe.collapse_monitor)
    actor = actor_of(language, recipe.rl)
    engine = Engine(actor, recipe.max_batch_size)
    encodings = Encodings(data.train, task, recipe.layout.context_offset, recipe.layout.first)

    def play_step(step: int) -> list[Episode]:
        seed = seeds.derive(recipe.seed, "rl", step)
        windows = data.train.draw(recipe.rollout.prompts_per_step, seed, "segments")
        contexts = encodings.contexts(windows, seed, "contexts")
        cases, names = encodings.encoded(windows, contexts), [f"episode {e}, frame {s}" for e, s in windows]
        clips = data.train.cut(windows)
        return play(task, engine, clips, cases, names, recipe.rollout.group_size, recipe.sampling, seed)

    def extra_metrics(step: int, episodes: Sequence[Episode], learner: Learner) -> dict[str, float]:
        found = describe(episodes) | monitor.measure(step, episodes, learner)
        if recipe.evaluation.every and (step - 1) % recipe.evaluation.every == 0:
            found |= eval_subset(recipe, data, task, engine)
        return found

    seed = seeds.derive(recipe.seed, "rl updates")
    notes = stages.reinforce(
        run, "rl", "RLVR", language, actor, recipe.rl, seed, monitor, play_step, record, extra_metrics
    )
    return {"notes": notes}


def eval_subset(recipe: VideoRecipe, data: VideoData, task: VideoPredictor, engine: Engine) -> dict[str, float]:
    """What the futures of a few test segments earn and how far off they are, on the way; the same luck each time."""
    settings, windows = recipe.evaluation, data.test_windows
    places = np.linspace(0, len(windows) - 1, min(settings.eval_subset, len(windows))).astype(int)
    evaluation = SegmentEvaluation(task, data.test, windows[places], networks=())
    found = evaluation.model(engine, settings.sampling, 1, seeds.derive(recipe.seed, "glance"), lambda count: None)
    return {f"eval_{name}": float(found.values[name].mean()) for name in ("reward", "mse")}


def evaluate(recipe: VideoRecipe, run: Run, data: VideoData, name: str, stage: str) -> dict[str, Any]:
    """A model's measures on test segments, kept as arrays in the run."""
    settings, evaluation = recipe.evaluation, evaluation_of(recipe, run, data)
    engine = Engine(model_after(run, stage), recipe.max_batch_size)
    with run.progress(f"evaluate {name}", len(evaluation.windows)) as bar:
        # The same seed for both models: they differ by their weights alone.
        found = evaluation.model(
            engine, settings.sampling, settings.runs, seeds.derive(recipe.seed, "evaluate"), bar.advance
        )
    found.save(measured_file(run, name))
    means = {key: mean_of_episodes(values, evaluation.episodes) for key, values in found.values.items()}
    run.say(f"{name}: " + ", ".join(f"{key} {value:.4g}" for key, value in means.items()))
    return means


def evaluation_of(recipe: VideoRecipe, run: Run, data: VideoData) -> SegmentEvaluation:
    return SegmentEvaluation(task_of(recipe, run), data.test, data.test_windows, recipe.evaluation.networks)


def measured_file(run: Run, name: str) -> Path:
    return run.path / "evaluation" / f"{name}.npz"


def compare(recipe: VideoRecipe, run: Run, data: VideoData) -> dict[str, Any]:
    """Tables with the trivial row and the ceiling, pictures, and what came of it in a sentence."""
    evaluation = evaluation_of(recipe, run, data)
    rows = evaluation.baselines() | {name: Measured.load(measured_file(run, name)) for name in ("base", "RLVR")}
    drawn = sample_videos(run, evaluation, rows, recipe.evaluation.sample_videos)
    found = [table.data() for table in tables(rows, evaluation.episodes)]
    return {"tables": found, "images": drawn, "notes": verdict(rows, evaluation)}


def sample_videos(
    run: Run, evaluation: SegmentEvaluation, rows: dict[str, Measured], count: int
) -> list[dict[str, str]]:
    """The first sampled future of some test segments beside the truth, as pictures in the run."""
    drawn = []
    past = evaluation.task.layout.past
    for place in np.linspace(0, len(evaluation.windows) - 1, count).astype(int).tolist():
        window = evaluation.windows[place : place + 1]
        clips, cases = evaluation.dataset.cut(window), evaluation.encodings.encoded(window)
        videos = {"truth": clips.images[0], "tokenizer": images(evaluation.task.decode(cases.context, cases.frames))[0]}
        for name in ("base", "RLVR"):
            frames = rows[name].frames
            assert frames is not None
            made = images(evaluation.task.decode(cases.context, frames[place : place + 1]))[0]
            videos[name] = np.concatenate([clips.images[0, :past], made])
        file = f"images/segment-{place:04d}.gif"
        save_gif(run.path / file, videos)
        title = f"Test segment {place}: {past} given, then {evaluation.task.layout.future} predicted"
        drawn.append({"title": title, "file": file})
    return drawn


def verdict(rows: dict[str, Measured], evaluation: SegmentEvaluation) -> list[str]:
    """What RLVR added to its start, in its own reward, in a sentence."""
    from oneiro.report.stats import bootstrap

    base, tuned = (
        by_episode(rows[name].values["reward"].mean(axis=(1, 2)), evaluation.episodes) for name in ("base", "RLVR")
    )
    before, after, gain = bootstrap(base), bootstrap(tuned), bootstrap(tuned - base)
    assert before.high is not None and after.low is not None and isinstance(before.value, float)
    apart = "the intervals are apart" if after.low > before.high else "the intervals overlap"
    copy, best = (mean_of_episodes(rows[name].values["reward"], evaluation.episodes) for name in (COPY, CEILING))
    return [
        f"On {len(evaluation.windows)} segments of {before.n} unseen episodes the reward of sampled futures is "
        f"{before.value:.4f} ({before.low:.4f} to {before.high:.4f}) for the base and {after.value:.4f} "
        f"({after.low:.4f} to {after.high:.4f}) after RLVR: {apart}; the paired gain is {gain.value:.4f} "
        f"({gain.low:.4f} to {gain.high:.4f}). Copying the last frame earns {copy:.4f}, the true frames through the "
        f"tokenizer {best:.4f}."
    ]


def summarise(run: Run, compared: dict[str, Any], notes: Sequence[str]) -> None:
    """`summary.json` and what the report draws."""
    stage = {"RLVR": "rl"}
    curves: list[tuple[str, str, dict[str, str], str]] = [
        ("Reward of sampled futures", "reward", stage, ""),
        ("Reward of test segments", "eval_reward", stage, ""),
        ("MSE of test segments", "eval_mse", stage, ""),
        ("Futures that beat copying the last frame", "success", stage, "%"),
        ("Frames that repeat the one before", "repetition", stage, "%"),
        ("Cross-entropy of pre-training", "ce", {"pre-training": PRETRAIN}, ""),
        ("L1 of the tokenizer", "l1", {"tokenizer": "tokenizer"}, ""),
        ("Reward std within groups", "group_std", stage, ""),
        ("Entropy", "entropy", stage, ""),
        ("Largest sampler-learner difference in log-probability", "mismatch", stage, ""),
    ]
    run.summary(
        {
            "tables": compared["tables"],
            "curves": [{"title": t, "key": k, "stages": s, "unit": u} for t, k, s, u in curves],
            "images": compared["images"],
            "notes": [*compared["notes"], *notes],
        }
    )
