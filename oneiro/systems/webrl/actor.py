"""The actor's side of a phase: log-probabilities of replies, and one epoch or more of an objective over steps."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from oneiro.episode import Floats
from oneiro.learning import loop
from oneiro.learning.algorithms import Grpo, Ppo, StateGrpo
from oneiro.learning.algorithms.webrl import GroupObjective, StepObjective
from oneiro.learning.example import Example
from oneiro.learning.filters import FilterSettings
from oneiro.learning.learner import Learner
from oneiro.learning.rl_settings import RlSettings
from oneiro.learning.settings import LearnerSettings
from oneiro.models.language import LanguageModel
from oneiro.runtime import seeds
from oneiro.sampling.settings import SamplingSettings
from oneiro.systems.webrl.recipe import TrainSettings
from oneiro.systems.webrl.replay import confidence
from oneiro.systems.webrl.samples import Sample, Valued, numbers_of
from oneiro.systems.webrl.trajectories import RowFormat, Step

Log = Callable[[int, dict[str, float]], None]
ALGORITHMS = {"grpo": Grpo(), "gigpo": StateGrpo(), "ppo": Ppo()}
"""What the shared learner calls them."""


class LanguageActor:
    """A language model that learns from steps."""

    def __init__(
        self, language: LanguageModel, form: RowFormat, settings: LearnerSettings, sampling: SamplingSettings
    ) -> None:
        self.language, self.form, self.settings, self.sampling = language, form, settings, sampling

    def confidences(self, steps: Sequence[Step]) -> list[float]:
        """Geometric-mean probability of each reply's tokens, without the end token's."""
        return [confidence(logprobs[:-1]) for logprobs in self.reply_logprobs(steps)]

    def reply_logprobs(self, steps: Sequence[Step]) -> list[Floats]:
        """Log-probability of each token of each reply."""
        examples = [Example.of(self.form.row(step, policy=1.0)) for step in steps]
        learner = Learner(self.language.backbone, self.settings, 1)
        scores, _ = learner.logprobs(examples)
        return [score[example.weights["policy"] != 0] for example, score in zip(examples, scores, strict=True)]

    def regress(
        self,
        objective: StepObjective,
        samples: Sequence[Sample],
        critic: Valued | None,
        settings: TrainSettings,
        seed: int,
        log: Log,
    ) -> tuple[dict[str, Any], list[list[float]]]:
        """Steps into updates; what happened, and every step's number."""
        if isinstance(objective, GroupObjective):
            return self.compare(objective, samples, settings, seed, log), []
        numbers = numbers_of(objective, samples, critic)
        own = [numbers[i][list(sample.places)] for i, sample in enumerate(samples)]
        flat = [
            (s.steps[t], float(n))
            for s, found in zip(samples, own, strict=True)
            for t, n in zip(s.places, found, strict=True)
        ]
        loss = settings.learner.loss.model_copy(update=objective.loss)
        updates = settings.epochs * -(-len(flat) // settings.batch)
        learner = Learner(
            self.language.backbone, settings.learner.model_copy(update={"loss": loss}), updates, seed=seed
        )
        examples = self.weighted(flat) if objective.weighted else self.targeted(flat, learner)
        found = {"steps": len(flat), "positive": float(np.mean([n > 0 for _, n in flat])) if flat else 0.0}
        if not examples:
            return found, [list(map(float, part)) for part in own]
        step = 0
        for epoch in range(settings.epochs):
            order = seeds.generator(seed, "steps", epoch).permutation(len(examples))
            for first in range(0, len(order), settings.batch):
                chosen = [examples[i] for i in sorted(order[first : first + settings.batch])]
                step += 1
                result = learner.update(chosen)
                result.pop("largest_difference", None)
                log(step, result)
        found["updates"] = step
        if not objective.weighted:
            found |= self._moved(examples, learner, flat)
        return found, [list(map(float, part)) for part in own]

    def weighted(self, steps: Sequence[tuple[Step, float]]) -> list[Example]:
        """Cross-entropy with a weight for each step; steps without one are left out."""
        return [Example.of(self.form.row(step, ce=weight)) for step, weight in steps if weight > 0]

    def targeted(self, steps: Sequence[tuple[Step, float]], learner: Learner) -> list[Example]:
        """Every step with its target, and the reference's log-probabilities: the present ones, computed once."""
        examples = [Example.of(self.form.row(step, policy=1.0)) for step, _ in steps]
        reference, _ = learner.logprobs(examples)
        for example, (_, target), scores in zip(examples, steps, reference, strict=True):
            example.columns["advantages"] = np.full(len(example), target, np.float32)
            example.columns["reference"] = example.columns["old"] = scores
        return examples

    def _moved(
        self, examples: Sequence[Example], learner: Learner, steps: Sequence[tuple[Step, float]]
    ) -> dict[str, float]:
        """Mean log-ratio a token after the updates, of steps with positive and with negative targets."""
        now, _ = learner.logprobs(examples)
        ratio = np.array(
            [
                float((score - example.columns["reference"])[example.weights["policy"] != 0].mean())
                for example, score in zip(examples, now, strict=True)
            ]
        )
        up = np.array([target > 0 for _, target in steps])
        found = {"log_ratio": float(ratio.mean())}
        if up.any():
            found["log_ratio_positive"] = float(ratio[up].mean())
        if (~up).any():
            found["log_ratio_negative"] = float(ratio[~up].mean())
        return found

    def compare(
        self,
        objective: GroupObjective,
        samples: Sequence[Sample],
        settings: TrainSettings,
        seed: int,
        log: Log,
    ) -> dict[str, Any]:
        """Groups of attempts, by the shared learner: one batch of episodes, in minibatches."""
        sampling = self.sampling
        episodes = [self.form.episode(s.trajectory, s.outcome, sampling.params) for s in samples]
        rows = sum(len(episode.rows) for episode in episodes)
        # A constant length normaliser: a token counts the same in long and short replies.
        loss = settings.learner.loss.model_copy(update={"aggregate": "constant", "max_tokens": sampling.max_tokens})
        rl = RlSettings(
            steps=1,
            algorithm=ALGORITHMS[objective.name],
            learner=settings.learner.model_copy(update={"loss": loss}),
            epochs=settings.epochs,
            minibatches=max(1, math.ceil(rows / settings.batch)),
            filter=FilterSettings(name="none"),
        )
        learners = loop.make_learners(self.language, rl, loop.learner_settings(rl), rl.updates_per_step, seed)
        result = loop.learn(episodes, rl, learners, None, seed)
        log(1, result)
        return {"steps": rows, **result}
