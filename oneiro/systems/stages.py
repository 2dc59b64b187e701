"""What every pipeline's learning stages share: a bar, metrics that a resumed run takes back, checkpoints in the run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from oneiro.episode import Episode, Row
from oneiro.learning import loop, sft
from oneiro.learning.collapse import CollapseMonitor
from oneiro.learning.learner import Learner
from oneiro.learning.loop import RlSettings
from oneiro.learning.sft import SftSettings
from oneiro.models.language import LanguageModel
from oneiro.run import METRICS, Run, read_lines

ExtraMetrics = Callable[[int, Sequence[Episode], Learner], dict[str, float]]
"""Further metrics of a step, taken before its update."""


def supervise(
    run: Run,
    stage: str,
    title: str,
    language: LanguageModel,
    rows: Sequence[Row],
    held_out: Sequence[Row],
    settings: SftSettings,
    seed: int,
    families: Sequence[int] | None = None,
) -> int:
    """SFT as a stage of a run, from its last checkpoint on; returns the number of steps."""
    steps = sft.Schedule.of(settings, len(rows), families).steps
    with run.progress(title, steps) as bar:

        def log(step: int, values: dict[str, float]) -> None:
            run.log(stage, step, values)
            bar.advance(1, loss=values["loss"])

        def rewind(step: int) -> None:
            run.rewind(stage, step)
            bar.advance(step)

        sft.train(language, rows, held_out, settings, run.checkpoint_dir(stage), seed, log, rewind, families)
    logged = (row for row in read_lines(run.path / METRICS) if row["stage"] == stage)
    if warning := sft.by_heart([(row["step"], row["held_out_ce"]) for row in logged if "held_out_ce" in row]):
        run.say(f"{title}: {warning}")
    return steps


def reinforce(
    run: Run,
    stage: str,
    title: str,
    language: LanguageModel,
    actor: LanguageModel,
    settings: RlSettings,
    seed: int,
    monitor: CollapseMonitor,
    play: Callable[[int], list[Episode]],
    record: Callable[[Episode], dict[str, Any]],
    extra_metrics: ExtraMetrics,
) -> list[str]:
    """RL as a stage of a run, from its last checkpoint on; returns what `monitor` had to say.

    `play` gives the episodes of a step, played by `actor` (`loop.actor_of`); `record` writes
    one as plain JSON for `episodes/`.
    """
    with run.progress(title, settings.steps) as bar:

        def log(step: int, values: dict[str, float]) -> None:
            run.log(stage, step, values)
            bar.advance(1, success=values["success"], reward=values["reward"])

        def rewind(step: int) -> str | None:
            run.rewind(stage, step)
            bar.advance(step)
            return monitor.replay(row for row in read_lines(run.path / METRICS) if row["stage"] == stage)

        def keep(step: int, episodes: Sequence[Episode]) -> None:
            run.episodes(stage, step, [record(episode) for episode in episodes])

        def time(step: int, values: dict[str, float]) -> None:
            run.time(stage, step, values)

        callbacks = loop.Callbacks(play, log, time, keep, rewind, monitor.see, extra_metrics)
        loop.reinforce(language, settings, run.checkpoint_dir(stage), seed, callbacks, actor)
    said = [*monitor.notes, *([monitor.reason] if monitor.reason else [])]
    for text in said:
        run.say(f"{title}: {text}")
    return said
