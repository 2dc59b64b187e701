"""The door to TRL: ids as they were sampled, with log-probabilities and masks; and TRL itself, which learns by it."""

from __future__ import annotations

import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from oneiro.adapters.trl import Rollouts, environment_factory
from oneiro.agents.prompts import DialogueSettings
from oneiro.models.language import LanguageModel
from oneiro.runtime.errors import OneiroError
from oneiro.sampling.settings import SamplingSettings

BRIEF = DialogueSettings(brief=True, think=False, world_model=False, max_turns=3, actions_per_turn=1)


def trainer_of(language: LanguageModel) -> Any:
    """What a rollout function sees of a trainer."""
    accelerator = SimpleNamespace(unwrap_model=lambda model: model, process_index=0)
    state = SimpleNamespace(global_step=4)
    return SimpleNamespace(
        model=language.model, processing_class=language.tokenizer, accelerator=accelerator, state=state
    )


def test_each_prompt_is_an_episode_whose_mask_and_log_probabilities_are_the_samplers(tiny: LanguageModel) -> None:
    rollouts = Rollouts("frozen-lake", BRIEF, SamplingSettings(max_tokens=5))
    prompts = [row["prompt"] for row in rollouts.dataset(2) for _ in range(3)]
    trainer = trainer_of(tiny)
    before = {name: value.clone() for name, value in tiny.model.state_dict().items()}
    out = rollouts(prompts, trainer)
    assert {len(values) for values in out.values()} == {6}, "one of each for each prompt"
    assert out["returns"] == pytest.approx([-0.3] * 6) and out["success"] == [False] * 6, "three malformed replies"
    for prompt, ids, logprobs, mask in zip(
        *(out[key] for key in ("prompt_ids", "completion_ids", "logprobs", "env_mask")), strict=True
    ):
        assert len(ids) == len(logprobs) == len(mask) and mask[0] == mask[-1] == 1 and 0 in mask
        assert (tiny.decode(prompt).startswith("<|im_start|>user") and prompt[-1] != ids[0]) or prompt
        with torch.no_grad():
            logits = tiny.model(torch.tensor([prompt + ids])).logits[0, len(prompt) - 1 : -1].float()
        true = logits.log_softmax(-1)[torch.arange(len(ids)), torch.tensor(ids)].numpy()
        own = np.array(mask, bool)
        assert np.abs(true[own] - np.array(logprobs)[own]).max() < 1e-3 and not np.array(logprobs)[~own].any()
    assert out["completion_ids"][0] != out["completion_ids"][1], "members of a group differ"
    assert rollouts(prompts, trainer)["completion_ids"] == out["completion_ids"], "the same step samples the same"
    trainer.state.global_step = 5
    assert rollouts(prompts, trainer)["completion_ids"] != out["completion_ids"]
    assert all(torch.equal(value, before[name]) for name, value in tiny.model.state_dict().items())


def test_new_weights_are_followed_and_the_trainers_model_is_left_alone(tiny: LanguageModel) -> None:
    rollouts = Rollouts("frozen-lake", BRIEF, SamplingSettings(max_tokens=3))
    trainer, prompts = trainer_of(tiny), [rollouts.dataset(1)[0]["prompt"]]
    first = rollouts(prompts, trainer)
    with torch.no_grad():
        embedding = tiny.model.get_input_embeddings().weight
        embedding.add_(torch.randn(embedding.shape, generator=torch.Generator().manual_seed(0)))
    assert rollouts(prompts, trainer)["logprobs"] != first["logprobs"]


def test_mistakes_are_one_line(tiny: LanguageModel) -> None:
    with pytest.raises(OneiroError, match=r"only dialogue\.context=full"):
        Rollouts("frozen-lake", DialogueSettings(context="window"))
    with pytest.raises(OneiroError, match="not of this world's levels"):
        Rollouts("frozen-lake")([[{"role": "user", "content": "hello"}]], trainer_of(tiny))


def test_a_world_is_an_environment_with_one_tool() -> None:
    make = environment_factory("bandit", chance=1.0)
    env, other = make(), make()
    assert (env._member, other._member) == (0, 1)
    shown = env.reset(seed=3, prompt="ignored")
    assert shown.startswith("Two arms") and "Arms: " in shown
    assert "The action was not understood.\nThe episode is over." in env.act("neither") and env.get_reward() == 0.0
    env.reset(seed=3)
    assert "The episode is over." in env.act(env._world.arms.better) and env.get_reward() == 1.0
    tools = [name for name in vars(type(env)) if not name.startswith("_") and name not in ("reset", "get_reward")]
    assert tools == ["act"]


def result(printed: str) -> dict[str, Any]:
    return dict(json.loads(printed.split("RESULT ")[1]))


@pytest.mark.thorough
def test_grpo_of_trl_learns_a_bandit_through_the_door(with_library: Callable[..., Any]) -> None:
    found = result(with_library("trl==1.16.*")("trl_learns.py"))
    rewards = found["rewards"]
    assert rewards[0] < 0.7 and np.mean(rewards[-3:]) > 0.85, rewards
    assert found["saved"]


@pytest.mark.thorough
def test_trl_plays_a_world_by_tool_calls(with_library: Callable[..., Any]) -> None:
    found = result(with_library("trl==1.16.*")("trl_environment.py"))
    assert min(found["reward"]) > 0.2 and min(found["tools/call_frequency"]) > 0.5, found
