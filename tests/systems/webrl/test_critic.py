"""WebRL's critic against a plain computation: its loss, its values, its learning rate, and its way to disk."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from oneiro.learning.settings import LearnerSettings, OptimiserSettings
from oneiro.models.chat import ChatFormat
from oneiro.models.heads import OutcomeHead
from oneiro.models.language import LanguageModel
from oneiro.systems.webrl.critic import Critic
from oneiro.systems.webrl.episodes import RowFormat
from oneiro.systems.webrl.recipe import DialogueSettings, TrainSettings

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
