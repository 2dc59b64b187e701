"""The language model's side of a phase, on replies that its own engine sampled."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from oneiro.agents.prompts import DialogueSettings
from oneiro.episode import Floats
from oneiro.learning.algorithms.webrl import GroupGrpo, Paper, StepObjective
from oneiro.learning.settings import LearnerSettings, OptimiserSettings
from oneiro.models.chat import ChatFormat
from oneiro.models.language import LanguageModel
from oneiro.sampling.engine import Engine
from oneiro.sampling.settings import SamplingSettings
from oneiro.systems.webrl.actor import LanguageActor
from oneiro.systems.webrl.recipe import TrainSettings
from oneiro.systems.webrl.samples import Sample
from oneiro.systems.webrl.trajectories import RowFormat, Step, Trajectory

SAMPLING = SamplingSettings(max_tokens=8)
SETTINGS = TrainSettings(
    learner=LearnerSettings(optimiser=OptimiserSettings(lr=1e-3, weight_decay=0.0)), batch=64, epochs=2
)
ATTEMPTS = 4


def played(actor: LanguageActor) -> list[Sample]:
    """Four attempts of one step at one task; the first succeeded."""
    chat = actor.form.chat
    opening = np.concatenate([actor.form.prompt("a page"), chat.encode("<answer>")])
    (group,) = Engine(actor.language, 8).generate([opening], ATTEMPTS, SAMPLING, seed=0)
    found = []
    for member, reply in enumerate(group):
        tokens = [int(token) for token in reply.tokens]
        step = Step("a page", "a page", "a reply", tokens, [float(p) for p in reply.logprobs])
        trajectory = Trajectory("t", "i", "map", "map/phone", [step], member == 0, "goal", "end", "", 0, member)
        found.append(Sample(trajectory, range(1), float(member == 0)))
    return found


@pytest.mark.parametrize("objective", [Paper(), GroupGrpo()])
def test_sampled_replies_that_succeed_become_likelier_and_others_less(
    tiny: LanguageModel, objective: StepObjective
) -> None:
    form = RowFormat(ChatFormat(tiny.tokenizer), DialogueSettings(brief=True), "<answer>")
    actor = LanguageActor(tiny, form, SETTINGS.learner, SAMPLING)
    samples = played(actor)
    steps = [sample.steps[0] for sample in samples]
    before = actor.reply_logprobs(steps)
    for step, logprobs in zip(steps, before, strict=True):
        assert np.array(step.logprobs) == pytest.approx(logprobs, abs=1e-5)  # the engine's prompt is the learner's
    critic = Values() if objective.critic else None
    actor.regress(objective, samples, critic, SETTINGS, 0, lambda step, values: None)
    moved = [float((now - then).sum()) for now, then in zip(actor.reply_logprobs(steps), before, strict=True)]
    assert moved[0] > 0.1 and moved[0] > max(moved[1:]) and np.mean(moved[1:]) < 0


class Values:
    """A critic that expects a quarter to succeed."""

    def values(self, steps: Sequence[Step]) -> Floats:
        return np.full(len(steps), 0.25, np.float32)
