"""WebRL's critic against a plain computation: its loss, its values, its learning rate."""

from __future__ import annotations

import numpy as np
import torch

from oneiro.learning.settings import LearnerSettings, OptimiserSettings
from oneiro.models.language import LanguageModel
from oneiro.systems.webrl.critic import Critic

PROMPTS = [np.array(tokens, np.int32) for tokens in ([3, 4, 5], [6, 7], [8, 9, 10, 11, 12], [4, 4])]
OUTCOMES = [1.0, 0.0, 1.0, 0.0]


def logits_of(tiny: LanguageModel, critic: Critic, prompt: np.ndarray) -> list[torch.Tensor]:
    """Each head's logits after the last token of one prompt; the hidden state is transformers' own."""
    tokens = torch.from_numpy(prompt.astype(np.int64))[None]
    hidden = tiny.model(input_ids=tokens, output_hidden_states=True).hidden_states[-1][0, -1]
    return [head(hidden[None])[0] for head in critic.heads]


def test_a_value_is_the_smaller_of_the_two_heads(tiny: LanguageModel) -> None:
    critic = Critic(tiny.backbone, 1)
    with torch.no_grad():
        both = torch.stack([torch.stack(logits_of(tiny, critic, prompt)).softmax(-1)[:, 1] for prompt in PROMPTS])
    assert (both[:, 0] - both[:, 1]).abs().min() > 1e-3  # else the smaller could be either
    np.testing.assert_allclose(critic.values(PROMPTS), both.amin(1).numpy(), atol=1e-5)


def test_the_loss_is_the_mean_over_prompts_of_both_heads_however_they_are_laid_out(tiny: LanguageModel) -> None:
    losses, weights = [], []
    for budget in (None, 64):
        critic = Critic(tiny.backbone, 1)
        with torch.no_grad():
            expected = np.mean(
                [
                    sum(float(torch.nn.functional.cross_entropy(logits, torch.tensor(int(outcome)))) for logits in both)
                    for outcome, both in zip(
                        OUTCOMES, (logits_of(tiny, critic, prompt) for prompt in PROMPTS), strict=True
                    )
                ]
            )
        settings = LearnerSettings(token_budget=budget, optimiser=OptimiserSettings(lr=1e-3))
        losses.append(critic.train(PROMPTS * 8, OUTCOMES * 8, settings, batch=32, epochs=1, seed=0)["loss"])
        weights.append(critic.heads[0].last.weight.detach())
        np.testing.assert_allclose(losses[-1], expected, rtol=1e-5)
    torch.testing.assert_close(weights[0], weights[1], atol=1e-5, rtol=1e-3)


def test_a_falling_rate_falls_over_all_updates_not_after_the_first(tiny: LanguageModel) -> None:
    critic, moved = Critic(tiny.backbone, 1), []
    before = critic.heads[0].first.weight.detach().clone()

    def log(step: int, values: dict[str, float]) -> None:
        now = critic.heads[0].first.weight.detach().clone()
        moved.append(float((now - before).abs().max()))
        before.copy_(now)

    settings = LearnerSettings(optimiser=OptimiserSettings(lr=1e-2, schedule="linear", weight_decay=0.0))
    critic.train(PROMPTS, OUTCOMES, settings, batch=2, epochs=2, seed=0, log=log)
    assert len(moved) == 4 and moved[0] > moved[1] > moved[3] > 1e-4  # 4/4, 3/4, 2/4 and 1/4 of the rate
