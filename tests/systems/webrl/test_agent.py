"""The language model's side of a phase, on replies that its own engine sampled."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from oneiro.episode import Episode, Row, given, with_outcome
from oneiro.learning.algorithms import Algorithm, Grpo
from oneiro.learning.algorithms.webrl import FilteredBc, Paper, Rft
from oneiro.learning.settings import LearnerSettings, OptimiserSettings
from oneiro.models import language as languages
from oneiro.models.chat import ChatFormat
from oneiro.models.heads import OutcomeHead
from oneiro.models.language import LanguageModel
from oneiro.models.settings import ModelSettings
from oneiro.sampling.engine import Engine
from oneiro.sampling.settings import SamplingSettings
from oneiro.systems.webrl.agent import LEARNER, Critic, LanguageAgent
from oneiro.systems.webrl.episodes import Lesson, RowFormat
from oneiro.systems.webrl.recipe import DialogueSettings, TrainSettings, WebrlRecipe

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


def test_a_phase_learns_the_same_in_memory_and_from_disk(tiny: LanguageModel, tmp_path: Path) -> None:
    agent = LanguageAgent(RECIPE, tiny)
    lessons = played(agent)
    agent.learn(Rft(), lessons, None, [], 0, lambda number, statistics: None)
    agent.save(tmp_path)
    loaded = languages.load(ModelSettings(name=str(tmp_path / "actor")))
    resumed = LanguageAgent(RECIPE, loaded, tmp_path / LEARNER)
    for one in (agent, resumed):
        one.learn(Rft(), lessons, None, [], 1, lambda number, statistics: None)
    mine, theirs = (dict(one.language.backbone.named_parameters()) for one in (agent, resumed))
    assert all(torch.equal(mine[name], theirs[name]) for name in mine)


STATES = [{"ids": ids} for ids in ([3, 4, 5], [6, 7], [8, 9, 10, 11, 12], [4, 4])]
OUTCOMES = [1.0, 0.0, 1.0, 0.0]


class Ids(RowFormat):
    """States that are ids already."""

    def state(self, turn: Mapping[str, Any]) -> np.ndarray:
        return np.array(turn["ids"], np.int32)


def made(tiny: LanguageModel, batch: int = 32, epochs: int = 1, **learner: Any) -> Critic:
    settings = TrainSettings(learner=LearnerSettings(**learner), batch=batch, epochs=epochs)
    return Critic(tiny.backbone, Ids(ChatFormat(tiny.tokenizer), DialogueSettings(), ""), settings, 1)


def logits_of(tiny: LanguageModel, critic: Critic, state: Mapping[str, Any]) -> torch.Tensor:
    """[2, 2]: each network's logits after the last token of one state; the hidden state is transformers' own."""
    head = critic.learner.value_head
    assert isinstance(head, OutcomeHead)
    hidden = tiny.model(input_ids=torch.tensor([state["ids"]]), output_hidden_states=True).hidden_states[-1][0, -1]
    return torch.stack([network(hidden) for network in head.networks])


def test_a_value_is_the_smaller_of_the_two_heads(tiny: LanguageModel) -> None:
    critic = made(tiny)
    with torch.no_grad():
        both = torch.stack([logits_of(tiny, critic, state).softmax(-1)[:, 1] for state in STATES])
    assert (both[:, 0] - both[:, 1]).abs().min() > 1e-3  # else the smaller could be either
    np.testing.assert_allclose(critic.values(STATES), both.amin(1).numpy(), atol=1e-5)


def test_the_loss_is_the_mean_over_states_of_both_heads_however_they_are_laid_out(tiny: LanguageModel) -> None:
    weights = []
    for budget in (None, 64):
        critic = made(tiny, token_budget=budget, optimiser=OptimiserSettings(lr=1e-3))
        wanted = [torch.full((2,), int(outcome)) for outcome in OUTCOMES]
        with torch.no_grad():
            errors = [
                torch.nn.functional.cross_entropy(logits_of(tiny, critic, state), outcome, reduction="sum")
                for state, outcome in zip(STATES, wanted, strict=True)
            ]
        loss = critic.fit(STATES * 8, OUTCOMES * 8, 0, lambda number, values: None)["loss"]
        np.testing.assert_allclose(loss, float(torch.stack(errors).mean()), rtol=1e-5)
        weights.append(next(critic.learner.value_head.parameters()).detach().clone())  # type: ignore[union-attr]
    torch.testing.assert_close(weights[0], weights[1], atol=1e-5, rtol=1e-3)


def test_a_falling_rate_falls_over_all_updates_not_after_the_first(tiny: LanguageModel) -> None:
    falling = OptimiserSettings(lr=1e-2, schedule="linear", weight_decay=0.0)
    critic, moved = made(tiny, 2, 2, optimiser=falling), []
    weight = next(critic.learner.value_head.parameters())  # type: ignore[union-attr]
    before = weight.detach().clone()

    def log(number: int, values: dict[str, float]) -> None:
        moved.append(float((weight.detach() - before).abs().max()))
        before.copy_(weight.detach())

    critic.fit(STATES, OUTCOMES, 0, log)
    assert len(moved) == 4 and moved[0] > moved[1] > moved[3] > 1e-4  # 4/4, 3/4, 2/4 and 1/4 of the rate


def test_a_critic_learns_the_outcome_and_comes_back_from_disk(tiny: LanguageModel, tmp_path: Path) -> None:
    critic = made(tiny, 4, 30, optimiser=OptimiserSettings(lr=1e-3))
    critic.fit(STATES, OUTCOMES, 0, lambda number, values: None)
    values = critic.values(STATES)
    assert min(values[[0, 2]]) > 0.8 and max(values[[1, 3]]) < 0.2
    critic.save(tmp_path / "critic")
    again = made(tiny, 4, 30, optimiser=OptimiserSettings(lr=1e-3))
    again.load(tmp_path / "critic")
    np.testing.assert_array_equal(again.values(STATES), values)
