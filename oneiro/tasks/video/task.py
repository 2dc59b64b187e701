"""Video as an RLVR task: a transformer learns to predict a robot's next frames from its actions.

    episodes  ->  tokenizer  ->  pre-training on true frames  ->  RL on pixel and perceptual rewards  ->  evaluation

An episode of RL is one segment with one sampled future; the futures of one segment are a group.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from oneiro.episode import Episode, FinishReason, Row, given
from oneiro.learning.stages import CONTROL, Curve, Rollout
from oneiro.models import language as languages
from oneiro.models.language import LanguageModel
from oneiro.models.video.tokenizer import images
from oneiro.report.figures import save_gif
from oneiro.report.stats import bootstrap, paired
from oneiro.rundir.run import Run
from oneiro.runtime import seeds
from oneiro.sampling.engine import Engine, SamplingSettings
from oneiro.tasks.task import AFTER, BEFORE, RL, Task, intervals_apart
from oneiro.tasks.video.data import VideoData, data_stage, open_data
from oneiro.tasks.video.dataset import Clips, Windows
from oneiro.tasks.video.encodings import SegmentRows
from oneiro.tasks.video.evaluation import (
    CEILING,
    COPY,
    Measured,
    SegmentEvaluation,
    by_episode,
    mean_of_episodes,
    tables,
)
from oneiro.tasks.video.model import PRETRAIN, TOKENIZER
from oneiro.tasks.video.predictor import Encoded, VideoPredictor
from oneiro.tasks.video.recipe import VideoRecipe
from oneiro.tasks.video.training import (
    check_init_from,
    predictor_of,
    pretrain_stage,
    tokenizer_stage,
    training_encodings,
)

_RL = {AFTER: RL}
SHARPER = {name: f"{name}, sampled sharper" for name in (BEFORE, AFTER)}
"""Models that are measured a second time, sampled in the way that earns most on validation segments."""


class VideoTask(Task):
    """Segments of robot video; the reward compares predicted frames with recorded ones."""

    recipe: VideoRecipe
    curves: ClassVar = (
        Curve("Reward of sampled futures", "reward", _RL),
        Curve("Reward of validation segments", "eval_reward", _RL),
        Curve("MSE of validation segments", "eval_mse", _RL),
        Curve("Futures that beat copying the last frame", "success", _RL, "%"),
        Curve("Frames that repeat the one before", "repetition", _RL, "%"),
        Curve("Cross-entropy of pre-training", "ce", {"pre-training": PRETRAIN}),
        Curve("L1 of the tokenizer", "l1", {"tokenizer": TOKENIZER}),
        Curve("Reward std within groups", "group_std", _RL),
        Curve("Entropy", "entropy", _RL),
        Curve("Largest sampler-learner difference in log-probability", "mismatch", _RL),
    )

    @property
    def first_stages(self) -> list[str]:
        given = self.recipe.init_from.tokenizer or self.recipe.init_from.transformer
        return [*(["init-from"] if given else []), "data", TOKENIZER, PRETRAIN]

    def prepare(self) -> None:
        recipe, run = self.recipe, self.run
        if recipe.init_from.tokenizer or recipe.init_from.transformer:
            run.stage("init-from", lambda: check_init_from(recipe))
        run.stage("data", lambda: data_stage(recipe, run), main_only=True)
        run.stage(TOKENIZER, lambda: tokenizer_stage(recipe, run, self.data), main_only=True)

    @cached_property
    def data(self) -> VideoData:
        return open_data(self.recipe, self.run, self.run.result("data"))

    @cached_property
    def predictor(self) -> VideoPredictor:
        return predictor_of(self.recipe, self.run)

    def supervise(self) -> str:
        self.run.stage(PRETRAIN, lambda: pretrain_stage(self.recipe, self.run, self.data))
        return PRETRAIN

    def model(self, stage: str | None) -> LanguageModel:
        folder = self.run.path / "checkpoints" / (stage or PRETRAIN)
        language = languages.load(str(folder))
        language.trained_in = folder
        return language

    def rollout(self, engine: Engine) -> Rollout:
        recipe, task, train = self.recipe, self.predictor, self.data.train
        encodings = training_encodings(recipe, self.data, task)

        def play_step(step: int) -> list[Episode]:
            seed = seeds.derive(recipe.seed, "rl", step)
            windows = train.draw(recipe.rollout.prompts_per_step, seed, "segments")
            contexts = encodings.contexts(windows, seed, "contexts")
            cases, names = encodings.encode(windows, contexts), [f"episode {e}, frame {s}" for e, s in windows]
            clips = encodings.clips(windows, contexts)
            return play(task, engine, clips, cases, names, recipe.rollout.group_size, recipe.sampling, seed)

        cases = recipe.rl.select.cases if recipe.rl.select else 0
        return Rollout(
            play_step,
            record,
            describe,
            evaluate=lambda step: self._unseen(engine, recipe.evaluation.eval_subset, "eval"),
            max_tokens=task.layout.future * task.layout.frame_tokens,
            validate=lambda: self._unseen(engine, cases, "validation"),
            validation_metric="validation_reward",
        )

    def _unseen(
        self, engine: Engine, segments: int, prefix: str, sampling: SamplingSettings | None = None
    ) -> dict[str, float]:
        """Reward and error on a few validation segments, with the same sampling noise each time."""
        windows = self.data.validation_windows(segments)
        evaluation = SegmentEvaluation(self.predictor, self.data.validation, windows, networks=())
        seed = seeds.derive(self.recipe.seed, "glance")
        measured = evaluation.model(engine, sampling or self.recipe.evaluation.sampling, 1, seed, lambda count: None)
        return {f"{prefix}_{name}": float(measured.values[name].mean()) for name in ("reward", "mse")}

    @property
    def evaluation(self) -> SegmentEvaluation:
        networks = self.recipe.evaluation.networks
        return SegmentEvaluation(self.predictor, self.data.test, self.data.test_windows, networks)

    def evaluate(self, engine: Engine, name: str) -> dict[str, Any]:
        means = self._measure(engine, name, self.recipe.evaluation.sampling)
        if name in SHARPER and (chosen := self._sharpest(engine)):
            means["sharper"] = chosen.model_dump() | self._measure(engine, SHARPER[name], chosen)
        return means

    def _measure(self, engine: Engine, name: str, sampling: SamplingSettings) -> dict[str, Any]:
        evaluation = self.evaluation
        seed = seeds.derive(self.recipe.seed, "evaluate")  # the same for all models: they differ by weights alone
        with self.run.progress(f"evaluate {name}", len(evaluation.windows)) as bar:
            measured = evaluation.model(engine, sampling, self.recipe.evaluation.runs, seed, bar.advance)
        measured.save(self._measurement_file(name))
        means = {key: mean_of_episodes(values, evaluation.episodes) for key, values in measured.values.items()}
        self.run.say(f"{name}: " + ", ".join(f"{key} {value:.4g}" for key, value in means.items()))
        return means

    def _sharpest(self, engine: Engine) -> SamplingSettings | None:
        """Of the other ways to sample, the one whose futures of validation segments earn most."""
        settings = self.recipe.evaluation
        earned = [self._unseen(engine, settings.eval_subset, "eval", way)["eval_reward"] for way in settings.sharper]
        return settings.sharper[int(np.argmax(earned))] if earned else None

    def control_rows(self, language: LanguageModel, steps: int) -> tuple[Sequence[Row], None]:
        train, parts = self.data.train, list[tuple[Windows, Windows]]()
        encodings = training_encodings(self.recipe, self.data, self.predictor)
        for step in range(steps):
            seed = seeds.derive(self.recipe.seed, "rl", step)
            windows = train.draw(self.recipe.rollout.prompts_per_step, seed, "segments")
            parts.append((windows, encodings.contexts(windows, seed, "contexts")))
        windows, contexts = (np.concatenate(part) for part in zip(*parts, strict=True))
        return SegmentRows(encodings, windows, contexts), None

    def _measurement_file(self, name: str) -> Path:
        """The arrays behind a model's means."""
        return self.run.path / "evaluation" / f"{name}.npz"

    def compare(self, measured: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
        evaluation = self.evaluation
        order = (BEFORE, SHARPER[BEFORE], CONTROL, AFTER, SHARPER[AFTER])
        names = [name for name in order if self._measurement_file(name).exists()]
        rows = evaluation.baselines(self.data.train) | {
            name: Measured.load(self._measurement_file(name)) for name in names
        }
        return {
            "images": sample_videos(self.run, evaluation, rows, self.recipe.evaluation.sample_videos),
            "tables": [table.data() for table in tables(rows, evaluation.episodes)],
            "notes": verdict(rows, evaluation, {name: means.get("sharper") for name, means in measured.items()}),
        }


def sample_videos(
    run: Run, evaluation: SegmentEvaluation, rows: dict[str, Measured], count: int
) -> list[dict[str, str]]:
    """The first sampled future of some test segments beside the truth, as pictures in the run."""
    drawn = []
    past = evaluation.task.layout.past
    for place in np.linspace(0, len(evaluation.windows) - 1, count).astype(int).tolist():
        window = evaluation.windows[place : place + 1]
        clips, cases = evaluation.dataset.cut(window), evaluation.encodings.encode(window)
        videos = {"truth": clips.images[0], "tokenizer": images(evaluation.task.decode(cases.context, cases.frames))[0]}
        for name in (BEFORE, AFTER):
            frames = rows[name].frames
            assert frames is not None
            made = images(evaluation.task.decode(cases.context, frames[place : place + 1]))[0]
            videos[name] = np.concatenate([clips.images[0, :past], made])
        file = f"images/segment-{place:04d}.gif"
        save_gif(run.path / file, videos, given=dict.fromkeys((BEFORE, AFTER), past))
        title = f"Test segment {place}: {past} given, then {evaluation.task.layout.future} predicted"
        drawn.append({"title": title, "file": file})
    return drawn


def verdict(
    rows: dict[str, Measured], evaluation: SegmentEvaluation, sharper: Mapping[str, dict[str, Any] | None]
) -> list[str]:
    """What RLVR added to its start and to its controls, in its own reward, a sentence each. `sharper`: how models were
    sampled besides.
    """

    def rewards(name: str) -> NDArray[np.float64]:
        return by_episode(rows[name].values["reward"].mean(axis=(1, 2)), evaluation.episodes)

    tuned = rewards(AFTER)
    before, after, gain = bootstrap(rewards(BEFORE)), bootstrap(tuned), paired(tuned, rewards(BEFORE))
    apart = intervals_apart(before.high, after.low)
    copy, best = (mean_of_episodes(rows[name].values["reward"], evaluation.episodes) for name in (COPY, CEILING))
    notes = [
        f"On {len(evaluation.windows)} segments of {before.n} unseen episodes the reward of sampled futures is "
        f"{before.words('{:.4f}')} for the base and {after.words('{:.4f}')} after RLVR: {apart}; the paired gain is "
        f"{gain.words('{:.4f}')}. Copying the last frame earns {copy:.4f}, the true frames through the tokenizer "
        f"{best:.4f}."
    ]
    for name, how in sharper.items():
        if how:
            earned = bootstrap(rewards(SHARPER[name])).words("{:.4f}")
            notes.append(
                f"Sampled at temperature {how['temperature']:g} from the {how['top_k']} likeliest codes, which earned "
                f"most on validation segments, {name} earns {earned}."
            )
    for mine, other in ((AFTER, SHARPER[BEFORE]), (SHARPER[AFTER], SHARPER[BEFORE]), (AFTER, CONTROL)):
        if mine in rows and other in rows:
            notes.append(f"{mine} minus {other}, paired: {paired(rewards(mine), rewards(other)).words('{:.4f}')}.")
    return notes


def play(
    task: VideoPredictor,
    engine: Engine,
    clips: Clips,
    cases: Encoded,
    names: Sequence[str],
    group_size: int,
    sampling: SamplingSettings,
    seed: int,
) -> list[Episode]:
    """`group_size` futures of each segment, one episode each; a segment is a group and a frame is a turn.

    Success is to earn more than the last given frame held still.
    """
    samples = task.sample(engine, cases, group_size, sampling, seed)
    frames = task.frames_of(samples)
    terms = task.rewards(clips, cases, frames)
    total = np.sum(list(terms.values()), axis=0)
    trivial, repeats = task.reward_of_copying(clips, cases), task.repeats(cases, frames)
    episodes = []
    for group, (name, futures) in enumerate(zip(names, samples, strict=True)):
        prompt, actions = task.opening(cases[group]), clips.actions[group, task.layout.past - 1 :]
        for member, sample in enumerate(futures):
            rewards = total[group, member]
            segments = task.layout.reply_segments(sample.segments())
            episodes.append(
                Episode(
                    rows=[Row([given(prompt), *segments])],
                    rewards=rewards.tolist(),
                    terms={term: values[group, member].tolist() for term, values in terms.items()},
                    success=bool(rewards.sum() > trivial[group]),
                    finish_reason=FinishReason.LENGTH,  # a future has a fixed number of frames
                    member=member,
                    group=group,
                    task=name,
                    world="video",
                    info={"actions": actions, "repeats": repeats[group, member]},
                )
            )
    return episodes


def record(episode: Episode) -> dict[str, Any]:
    """An episode as plain JSON: its tokens say what was seen, the tokenizer turns them into pictures."""
    (row,) = episode.rows
    actions: NDArray[np.float32] = episode.info["actions"]
    frames = [segment.tokens.tolist() for segment in row.segments if segment.sampled]
    return {
        "world": episode.world,
        "task": episode.task,
        "member": episode.member,
        "group": episode.group,
        "success": episode.success,
        "finish_reason": str(episode.finish_reason),
        "score": episode.score,
        "terms": episode.terms,
        "tokens": episode.sampled_tokens,
        "prompt": row.segments[0].tokens.tolist(),
        "frames": frames,
        "turns": [
            {"actions": [" ".join(f"{number:+.2f}" for number in actions[turn])], "reward": reward}
            for turn, reward in enumerate(episode.rewards)
        ],
    }


def describe(episodes: Sequence[Episode]) -> dict[str, float]:
    """How often a step's futures repeat a frame."""
    return {"repetition": float(np.mean([episode.info["repeats"].mean() for episode in episodes]))}
