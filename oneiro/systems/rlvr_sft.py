"""SFT on families of lessons: rows of one state come together, so that the learner reads the state once for all.

It differs from `learning.sft` in what an update is made of; the order of families, the loss and the checkpoints are
the same. The next update's rows are made while the present one is learnt.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import accumulate

from oneiro.episode import Row
from oneiro.learning import checkpoint, sft
from oneiro.learning.example import Example
from oneiro.learning.learner import Learner
from oneiro.learning.sft import SftSettings
from oneiro.models.language import LanguageModel
from oneiro.run import Run
from oneiro.systems.rlvr_data import Lessons


def teach(
    run: Run, language: LanguageModel, lessons: Lessons, held_out: Sequence[Row], settings: SftSettings, seed: int
) -> int:
    """SFT as the stage "sft" of a run, from its last checkpoint on; returns the number of updates."""
    count = len(lessons.families)
    at_once = max(1, round(settings.batch * count / len(lessons)))
    steps = max(1, round(settings.epochs * count / at_once))
    ends = list(accumulate(map(len, lessons.families)))

    def batch(step: int) -> list[Example]:
        chosen = sft.order(count, seed, step, at_once)
        return [Example.of(lessons[row]) for i in chosen for row in range(ends[i] - len(lessons.families[i]), ends[i])]

    learner = Learner(language.backbone, settings.learner, steps)
    folder, learners = run.checkpoint_dir("sft"), {"policy": learner}
    start = checkpoint.restore(folder, language, learners)
    run.rewind("sft", start)
    with run.progress("SFT", steps, start) as bar, ThreadPoolExecutor(1) as ahead:
        coming = ahead.submit(batch, start)
        for step in range(start, steps):
            examples, coming = coming.result(), ahead.submit(batch, step + 1)
            statistics = learner.update(examples) | {"rows": float(len(examples))}
            if step + 1 == steps and held_out:
                statistics["held_out_ce"] = sft.mean_loss(learner, held_out)
            run.log("sft", step + 1, statistics)
            bar.advance(1, loss=statistics["loss"])
            if (step + 1) % settings.checkpoint_every == 0 or step + 1 == steps:
                checkpoint.save(folder, step + 1, language, learners)
    return steps
