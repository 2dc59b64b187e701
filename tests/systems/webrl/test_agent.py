"""The language model's side of a phase, on replies that its own engine sampled."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from oneiro.episode import Episode, Row, given, with_outcome
from oneiro.learning.algorithms import Algorithm, Grpo
from oneiro.learning.algorithms.webrl import FilteredBc, Paper
from oneiro.learning.settings import LearnerSettings, OptimiserSettings
from oneiro.models.language import LanguageModel
from oneiro.sampling.engine import Engine
from oneiro.sampling.settings import SamplingSettings
from oneiro.systems.webrl.agent import LEARNER, LanguageAgent
from oneiro.systems.webrl.episodes import Lesson
from oneiro.systems.webrl.recipe import TrainSettings, WebrlRecipe

SETTINGS = TrainSettings(
    learner=LearnerSettings(optimiser=OptimiserSettings(lr=1e-3, weight_decay=0.0)), batch=64, epochs=2
)
RECIPE = WebrlRecipe(system="webrl", sampling=SamplingSettings(max_tokens=8), actor=SETTINGS)
PAGE = {"message": "a page", "state": "a page", "reply": "<answer>stop []", "actions": [{"valid": True}]}
ATTEMPTS = 4


def played(agent: LanguageAgent) -> list[Lesson]:
    """Four attempts of one turn at one task; the first succeeded."""
    form = agent.form
    given_part = [given(form.state(PAGE), turn=1), given(form.chat.encode("<answer>"), "assistant", turn=1)]
    opening = np.concatenate([segment.tokens for segment in given_part])
    (group,) = Engine(agent.language, 8).generate([opening], ATTEMPTS, RECIPE.sampling, seed=0)
    lessons: list[Lesson] = []
    for member, reply in enumerate(group):
        row = Row([*given_part, *reply.segments(turn=1)])
        episode = Episode([row], [0.0], info={"task": {"id": "t"}, "turns": [PAGE]}, member=member)
        lessons.append((with_outcome(episode, float(member == 0)), [0]))
    return lessons


def reply_logprobs(agent: LanguageAgent, lessons: list[Lesson]) -> list[float]:
    """Geometric means as sums over the tokens before the end."""
    sizes = [len(episode.rows[0].segments[-1]) - 1 for episode, _ in lessons]
    confidences = agent.confidences([(episode, 0) for episode, _ in lessons])
    return [float(np.log(c) * n) for c, n in zip(confidences, sizes, strict=True)]


@pytest.mark.parametrize("algorithm", [Paper(), Grpo(), FilteredBc()])
def test_sampled_replies_that_succeed_become_likelier_and_others_less(
    tiny: LanguageModel, algorithm: Algorithm
) -> None:
    agent = LanguageAgent(RECIPE, tiny)
    lessons = played(agent)
    before = reply_logprobs(agent, lessons)
    for (episode, _), own in zip(lessons, before, strict=True):
        sampled = episode.rows[0].segments[-1].logprobs
        assert sampled is not None and float(sampled[:-1].sum()) == pytest.approx(own, abs=1e-4)
    values = [(np.array([0.25], np.float32), 0.25)] * ATTEMPTS if algorithm.outcome_critic else None
    logged: list[int] = []
    result = agent.learn(algorithm, lessons, values, [], 0, lambda number, statistics: logged.append(number))
    moved = [now - then for now, then in zip(reply_logprobs(agent, lessons), before, strict=True)]
    assert moved[0] > 0.1 and moved[0] > max(moved[1:])
    assert algorithm.weighted or np.mean(moved[1:]) < 0
    assert logged == [1, 2] and result["updates"] == 2 and result["steps"] == ATTEMPTS
    if algorithm.recompute:
        tokens = [len(episode.rows[0].segments[-1]) for episode, _ in lessons]
        assert np.sign(result["log_ratio"]) == np.sign(np.mean([m / n for m, n in zip(moved, tokens, strict=True)]))


def test_of_a_replayed_episode_only_the_chosen_turns_are_learned(tiny: LanguageModel) -> None:
    """A demonstration of two turns, of which the second is chosen."""
    agent = LanguageAgent(RECIPE, tiny)
    turns = [PAGE, {**PAGE, "message": "another page", "reply": "<answer>click [3]"}]
    shown = Episode([], [0.0, 1.0], info={"task": {"id": "t"}, "turns": turns})
    first, second = (row.segments[-1] for row in agent.form.weigh((shown, [1])).rows)
    assert (first.weights["policy"], second.weights["policy"]) == (0.0, 1.0)
    assert first.acts and second.acts and not second.sampled
    before = agent.confidences([(shown, 0), (shown, 1)])
    values = [(np.array([0.5, 0.5], np.float32), 0.0)]
    assert agent.learn(Paper(), [(shown, [1])], values, [], 0, lambda number, statistics: None)["steps"] == 1
    after = agent.confidences([(shown, 0), (shown, 1)])
    assert after[1] / before[1] > after[0] / before[0] and after[1] > before[1]


def test_the_optimiser_goes_on_where_the_phase_before_left_it(tiny: LanguageModel, tmp_path: Path) -> None:
    agent = LanguageAgent(RECIPE, tiny)
    lessons = played(agent)
    values = [(np.array([0.25], np.float32), 0.25)] * ATTEMPTS
    agent.learn(Paper(), lessons, values, [], 0, lambda number, statistics: None)
    assert agent.learner is not None
    agent.save(tmp_path)
    following = LanguageAgent(RECIPE, tiny, tmp_path / LEARNER)
    following.learn(Paper(), lessons, values, [], 0, lambda number, statistics: None)
    assert following.learner is not None and following.learner.optimiser.applied == 4
    steps = [tensor for name, tensor in following.learner.optimiser.state().items() if name.endswith("/step")]
    assert {int(step) for step in steps} == {4}
