"""What every pipeline shares: SFT and RL as stages of a run, the weights after a stage, and the summary.

A stage shows a progress bar, logs metrics that a resumed run takes back, and keeps its checkpoints in the run.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from oneiro.episode import Episode, Row, describe_errors
from oneiro.learning import checkpoint, loop, sft
from oneiro.learning.batch import Example
from oneiro.learning.collapse import CollapseMonitor
from oneiro.learning.learner import Learner
from oneiro.learning.loop import RlSettings
from oneiro.learning.settings import SelectionSettings, SftContinuedSettings
from oneiro.learning.sft import SftSettings
from oneiro.models import language as languages
from oneiro.models.language import LanguageModel, ModelSettings, write_folder
from oneiro.models.locate import BEST
from oneiro.rundir.records import read_log
from oneiro.rundir.run import METRICS, TIMINGS, Run
from oneiro.runtime import distributed, files
from oneiro.runtime.clock import spent
from oneiro.runtime.errors import OneiroError
from oneiro.sampling.engine import Engine
from oneiro.sampling.fleet import Fleet

RECORD = "selection.json"
"""What a selection decided, beside the best weights."""
CONTROL = "SFT continued"
"""The row of the control of RL: the same seconds, spent on SFT."""
CONTINUED, BUDGET = "sft-continued", "sft-continued-budget"
"""Its stage, and the stage before it that decides how many updates fit into RL's seconds."""
BASE = "base"
"""The folder of the weights that `tiny` starts from, among a run's checkpoints."""


@dataclass(frozen=True)
class Rollout:
    """What an RL stage samples from, and what it reports."""

    play: Callable[[int], list[Episode]]
    """The episodes of a step: a pure function of the step and the weights."""
    record: Callable[[Episode], dict[str, Any]]
    """An episode as plain JSON, for `episodes/`."""
    describe: Callable[[Sequence[Episode]], dict[str, float]] = lambda episodes: {}
    """Further metrics of a step's episodes."""
    evaluate: Callable[[int], dict[str, float]] = lambda step: {}
    """Metrics on held-out cases, with the policy as it is before that step's update."""
    max_tokens: int | None = None
    """The most tokens that a row may sample."""
    validate: Callable[[], dict[str, float]] | None = None
    """Metrics on validation cases (`rl.select`)."""
    validation_metric: str = ""
    """The one that chooses, where the settings name none."""
    shown: Sequence[str] = ("success", "reward")
    """Metrics beside the progress bar."""


@dataclass(frozen=True)
class Curve:
    """A plot of the report: one metric over the steps of some stages."""

    title: str
    key: str
    stages: Mapping[str, str]
    """Label -> stage."""
    unit: str = ""


# Weights --------------------------------------------------------------------------------------------------------------


def make_base(run: Run, settings: ModelSettings, create_tiny: Callable[[], LanguageModel]) -> dict[str, Any]:
    """The stage `model`: create and keep the weights of `tiny`, or see that the named model loads."""
    if settings.name == "tiny":
        made = create_tiny()
        made.save(run.path / "checkpoints" / BASE, manifest=True)
    else:
        made = languages.load(settings)
    if made.tokenizer is None:
        raise OneiroError(f"the model '{settings.name}' has no tokenizer; put tokenizer.json beside its config.json")
    run.say(made.about)
    return {"parameters": made.backbone.shape.parameters, "vocabulary": made.backbone.shape.vocabulary}


def base_weights(run: Run, settings: ModelSettings) -> LanguageModel:
    """The weights that training starts from; those of `tiny` were made by the stage `model`."""
    if settings.name == "tiny":
        return languages.with_lora(languages.load(str(run.path / "checkpoints" / BASE)), settings.lora)
    return languages.load(settings)


def weights_after(run: Run, stages: Sequence[str | None], settings: ModelSettings) -> LanguageModel:
    """The weights after the first of these stages that is done, else those that training starts from."""
    for stage in stages:
        if stage is not None and run.done(stage):
            folder = run.path / "checkpoints" / stage
            if not any(folder.glob("step-*")):
                raise OneiroError(
                    f"{folder} holds no checkpoint, though its stage is done; delete {run.path / 'run.json'}, and the "
                    "same command makes what is missing"
                )
            language = languages.load(settings.model_copy(update={"name": str(folder), "lora": None}))
            language.trained_in = folder
            return language
    return base_weights(run, settings)


# Training -------------------------------------------------------------------------------------------------------------


def supervise(
    run: Run,
    stage: str,
    title: str,
    language: LanguageModel,
    rows: Sequence[Row],
    held_out: Sequence[Row],
    settings: SftSettings,
    seed: int,
    group_sizes: Sequence[int] | None = None,
) -> int:
    """SFT as a stage of a run, from its last checkpoint on; returns the number of steps."""
    steps = sft.Schedule.of(settings, len(rows), group_sizes).steps
    with run.progress(title, steps) as bar:

        def log(step: int, values: dict[str, float]) -> None:
            run.log(stage, step, values)
            bar.advance(1, loss=values["loss"])

        def rewind(step: int) -> None:
            run.rewind(stage, step)
            bar.begin(step)

        sft.train(
            language,
            rows,
            held_out,
            settings,
            run.checkpoint_dir(stage),
            seed,
            log,
            rewind,
            group_sizes,
            run.say,
            run.saving(),
        )
    logged = (row for row in read_log(run.path / METRICS) if row["stage"] == stage)
    if warning := sft.overfitting([(row["step"], row["held_out_ce"]) for row in logged if "held_out_ce" in row]):
        run.say(f"{title}: {warning}")
    return steps


Lesson = tuple[LanguageModel, Sequence[Row], Sequence[int] | None]
"""Weights to go on from, rows to learn, and how many of them at a time have prompts that begin alike."""


def continue_sft(
    run: Run, settings: SftContinuedSettings, begin: Callable[[], Lesson], seconds: Callable[[], float], seed: int
) -> None:
    """The control of RL, as two stages: SFT from the weights and on the rows of `begin`, for `seconds`."""

    def count() -> dict[str, Any]:
        return {"steps": count_updates(*begin(), settings, seed, seconds())}

    def train() -> dict[str, Any]:
        language, rows, group_sizes = begin()
        schedule = schedule_of(settings, rows, group_sizes)
        sft = SftSettings(
            learner=settings.learner,
            batch=settings.batch,
            epochs=steps * schedule.at_once / len(schedule.ends),
            checkpoint_every=settings.checkpoint_every,
        )
        made = supervise(run, CONTINUED, CONTROL, language, rows, [], sft, seed, group_sizes)
        return {"rows": len(rows), "steps": made}

    # Its own stage: a run that is resumed makes as many updates as it would have made.
    steps = run.stage(BUDGET, count)["steps"]
    run.stage(CONTINUED, train)


def schedule_of(settings: SftContinuedSettings, rows: Sequence[Row], group_sizes: Sequence[int] | None) -> sft.Schedule:
    """Which rows each update of the control learns; how many updates there are is not decided yet."""
    return sft.Schedule.of(SftSettings(batch=settings.batch), len(rows), group_sizes)


PACE_UPDATES = 6  # timed; two more before them warm caches and kernels up


def count_updates(
    language: LanguageModel,
    rows: Sequence[Row],
    group_sizes: Sequence[int] | None,
    settings: SftContinuedSettings,
    seed: int,
    seconds: float,
) -> int:
    """How many of the control's updates fit into `seconds`, timed on its first few; the weights given are spent."""
    schedule = replace(schedule_of(settings, rows, group_sizes), steps=PACE_UPDATES + 2)
    learner, ends = Learner(language.backbone, settings.learner, schedule.steps), list[float]()
    # As SFT goes: in its order, and the next rows are made meanwhile, which may be what takes longest.
    for examples in sft.batches(rows, schedule, seed):
        learner.update(examples)
        ends.append(time.perf_counter())
    return max(1, round(seconds * PACE_UPDATES / (ends[-1] - ends[1])))


def training_seconds(run: Run, stage: str) -> float:
    """Seconds that a stage of RL spent on its steps, without its evaluations and checkpoints."""
    aside = ("stage", "step", "measuring", "checkpointing")
    lines = (row for row in read_log(run.path / TIMINGS) if row["stage"] == stage)
    return sum(value for row in lines for name, value in row.items() if name not in aside)


def reinforce(
    run: Run,
    stage: str,
    title: str,
    language: LanguageModel,
    rollout_of: Callable[[Engine], Rollout],
    *,
    settings: RlSettings,
    seed: int,
    monitor: CollapseMonitor,
    max_batch_size: int,
    evaluate_every: int = 0,
) -> dict[str, Any]:
    """RL as a stage of a run, from its last checkpoint on; the result has the notes of the collapse monitor.

    `rollout_of` gets the engine of the model that plays: the policy, or the copy that follows it (`loop.actor_of`).
    """
    actor = loop.actor_of(language, settings)
    fleet = Fleet(actor, settings.servers, run.path / "weights" / stage) if settings.servers else None
    rollout = rollout_of(fleet or Engine(actor, max_batch_size))
    selection = None
    if settings.select is not None:
        # An actor's weights may be older than those that would be kept.
        own = rollout if actor is language and fleet is None else rollout_of(Engine(language, max_batch_size))
        if own.validate is None:
            raise OneiroError("rl.select: this recipe has no validation cases; leave it out")
        metric = settings.select.metric or rollout.validation_metric
        selection = Selection(settings.select, run.checkpoint_dir(stage), language, own.validate, metric)
    with run.progress(title, settings.steps) as bar:

        def log(step: int, values: dict[str, float]) -> None:
            run.log(stage, step, values)
            bar.advance(1, **{name: values[name] for name in rollout.shown})

        def rewind(step: int) -> str | None:
            run.rewind(stage, step)
            bar.begin(step)
            rows = [row for row in read_log(run.path / METRICS) if row["stage"] == stage]
            return monitor.replay(rows) or (selection.replay(rows) if selection else None)

        def keep(step: int, episodes: Sequence[Episode]) -> None:
            run.episodes(stage, step, [rollout.record(episode) for episode in episodes])
            run.tokens(stage, step, episodes)

        def log_time(step: int, values: dict[str, float]) -> None:
            run.time(stage, step, values)

        def extra_metrics(step: int, episodes: Sequence[Episode], learner: Learner) -> dict[str, float]:
            if words := describe_errors(episodes):
                run.say(f"{title}, step {step}: {words}")
            if settings.keeps(step):  # before the update, so that they are those of the policy that is about to learn
                rows = [row for episode in loop.learnable(episodes) for row in episode.rows]
                _, entropies = learner.logprobs([Example.of(row) for row in rows])
                for row, own in zip(rows, entropies, strict=True):
                    row.entropies = own
            metrics = rollout.describe(episodes) | monitor.measure(step, episodes, learner)
            metrics |= fleet.metrics() if fleet else {}
            if evaluate_every and (step - 1) % evaluate_every == 0:
                # Servers listen to one process.
                measure = partial(rollout.evaluate, step)
                metrics |= distributed.on_main_process(measure) if fleet else measure()
            return metrics | selection.measure(step) if selection else metrics

        def should_stop(step: int, values: dict[str, float]) -> str | None:
            reasons = [monitor.see(step, values), selection.see(step, values) if selection else None]
            return next(filter(None, reasons), None)

        def hand_over(step: int) -> None:
            if fleet is not None:
                with spent("waiting"):
                    distributed.on_main_process(partial(fleet.at, step))

        def play(step: int) -> list[Episode]:
            return distributed.on_main_process(partial(rollout.play, step)) if fleet else rollout.play(step)

        callbacks = loop.Callbacks(play, log, log_time, keep, rewind, should_stop, extra_metrics, run.say, hand_over)
        last = loop.reinforce(
            language, settings, run.checkpoint_dir(stage), seed, callbacks, actor, rollout.max_tokens, run.saving()
        )
    notes = [*monitor.notes, *([monitor.reason] if monitor.reason else [])]
    if selection is not None:
        notes += [*([selection.reason] if selection.reason else []), selection.finish(checkpoint.step_of(last))]
    for text in notes:
        run.say(f"{title}: {text}")
    return {"notes": notes}


@dataclass
class Selection:
    """Follows one RL stage: keeps the weights that did best on validation cases, and says when to stop looking.

    Validation cases are neither trained on nor part of the reported evaluation. All that decides comes from logged
    metrics, so that a resumed run decides alike.
    """

    settings: SelectionSettings
    folder: Path
    """The stage's checkpoints; the best weights lie there under `best`."""
    language: LanguageModel
    validate: Callable[[], dict[str, float]]
    metric: str
    """The validation metric that decides."""
    best: float | None = None
    since: int = 0
    """Validations since the best."""
    reason: str | None = None
    """Why the run was stopped."""

    def measure(self, step: int) -> dict[str, float]:
        """The validation metrics before the update of `step`, where they are due; the best weights are kept."""
        if (step - 1) % self.settings.every:
            return {}
        return self._validate(step - 1)

    def see(self, step: int, values: Mapping[str, Any]) -> str | None:
        """Take a step's metrics in; a text says why RL should end here."""
        if (value := values.get(self.metric)) is None:
            return None
        if self._better(value):
            self.best, self.since = value, 0
            return None
        self.since += 1
        if not self.settings.patience or self.since < self.settings.patience:
            return None
        self.reason = f"RL ended at step {step}: {self.since} validations in a row were no better than {self.best:.4g}"
        return self.reason

    def replay(self, rows: Iterable[Mapping[str, Any]]) -> str | None:
        """Take in the metrics of the steps that were done before; the reason, if the last of them was the end."""
        self.best, self.since, self.reason = None, 0, None
        for row in rows:
            self.see(row["step"], row)
        return self.reason

    def finish(self, steps: int) -> str:
        """Validate the last weights too; says which were kept."""
        self._validate(steps)
        kept = distributed.on_main_process(lambda: files.read_json(self.folder / BEST / RECORD))
        return (
            f"the weights after step {kept['step']} of {steps} did best on {self.settings.cases} validation cases "
            f"({kept['metric']} {kept['value']:.4g}) and are the ones that go on"
        )

    def _validate(self, steps: int) -> dict[str, float]:
        values = self.validate()
        if self.metric not in values:
            raise OneiroError(
                f"no '{self.metric}' among the validation metrics ({', '.join(values)}): see rl.select.metric"
            )
        if self._better(values[self.metric]):
            record = {"step": steps, "metric": self.metric, "value": values[self.metric]}
            write_folder(self.folder / BEST, lambda part: self._write(part, record))
        return values

    def _write(self, part: Path, record: dict[str, Any]) -> None:
        self.language.save(part / "model")
        files.write_json(part / RECORD, record)

    def _better(self, value: float) -> bool:
        if self.best is None:
            return True
        return value > self.best if self.settings.mode == "max" else value < self.best


# The report -----------------------------------------------------------------------------------------------------------


def summarise(run: Run, compared: Mapping[str, Any], curves: Sequence[Curve], notes: Sequence[str]) -> None:
    """Write `summary.json`: the tables and images of a comparison, the curves to draw, and notes in words."""
    summary = {
        "tables": compared["tables"],
        "curves": [{"title": c.title, "key": c.key, "stages": dict(c.stages), "unit": c.unit} for c in curves],
        "notes": list(notes),
    }
    run.summary({**summary, "images": compared["images"]} if "images" in compared else summary)
