"""TRL: worlds in `GRPOTrainer`, as `rollout_func` or as `environment_factory`. Nothing here imports TRL.

`Rollouts` plays whole episodes with our engine and hands over the ids as they were sampled, with their
log-probabilities and a mask of who wrote them. It works with any chat template. `WorldEnvironment` lets TRL play: an
action is a tool call, so the template and the model must know tools.
"""

from __future__ import annotations

import copy
import itertools
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from oneiro.agents.game import Attempt
from oneiro.agents.policies import ModelPolicy
from oneiro.agents.prompts import DialogueSettings, first_message
from oneiro.agents.rollout import play
from oneiro.episode import Episode, FinishReason
from oneiro.models.chat import ChatFormat
from oneiro.models.language import LanguageModel, assemble
from oneiro.runtime import seeds
from oneiro.runtime.errors import OneiroError
from oneiro.sampling.engine import Engine
from oneiro.sampling.settings import SamplingSettings
from oneiro.worlds import make

Rows = list[dict[str, Any]]
Messages = list[dict[str, str]]


class Rollouts:
    """Multi-turn play of a world: pass it as `rollout_func`, its `dataset` and its `reward`."""

    def __init__(
        self,
        world: str,
        dialogue: DialogueSettings | None = None,
        sampling: SamplingSettings | None = None,
        seed: int = 0,
        **settings: Any,
    ) -> None:
        self.make_world = lambda: make(world, **settings)
        self.dialogue = dialogue or DialogueSettings(world_model=False)
        self.sampling = sampling or SamplingSettings(max_tokens=256)
        if self.dialogue.context != "full":
            raise OneiroError("TRL trains one row of tokens for each episode: only dialogue.context=full makes one")
        self.seed, self.levels = seed, dict[str, tuple[int, str]]()
        self.engine: Engine | None = None
        # A reward function of TRL is logged under its name.
        self.__name__ = f"oneiro_{world}"

    def dataset(self, levels: int, split: str = "train", first_seed: int = 0) -> Rows:
        """A row for each level, for `datasets.Dataset.from_list`: its prompt is what the agent reads first."""
        rows, world = [], self.make_world()
        for seed in range(first_seed, first_seed + levels):
            message = first_message(world, world.reset(seed=seed, options={"split": split})[0], self.dialogue)
            # TRL hands a rollout function nothing but prompts: the level is found again by its text.
            self.levels.setdefault(message, (seed, split))
            rows.append({"prompt": [{"role": "user", "content": message}]})
        return rows

    def __call__(self, prompts: Sequence[Messages], trainer: Any) -> dict[str, Any]:
        """One episode for each prompt. The same prompt given again is another member of its group."""
        members, planned = Counter[str](), []
        for prompt in prompts:
            message = prompt[-1]["content"]
            if message not in self.levels:
                raise OneiroError(
                    "a prompt is not of this world's levels; train on Dataset.from_list(rollouts.dataset(n))"
                )
            level_seed, split = self.levels[message]
            planned.append(Attempt(level_seed, members[message], split=split))
            members[message] += 1
        language = self._follow(trainer)
        chat = ChatFormat(language.tokenizer)
        if chat.rewrites:
            raise OneiroError(
                "the chat template rewrites earlier turns, so that an episode is no single row; change it"
            )
        assert self.engine is not None
        step = seeds.derive(self.seed, trainer.state.global_step, trainer.accelerator.process_index)
        policy = ModelPolicy(self.engine, self.sampling)
        episodes = play(self.make_world, planned, policy, self.dialogue, chat, step)
        rows = [_tokens(episode, chat.end) for episode in episodes]
        lost = [episode.finish_reason is FinishReason.ERROR for episode in episodes]
        return {
            **{name: [row[name] for row in rows] for name in rows[0]},
            "returns": [None if gone else episode.score for episode, gone in zip(episodes, lost, strict=True)],
            "success": [episode.success for episode in episodes],
        }

    @staticmethod
    def reward(returns: list[float | None], success: list[bool], **rest: Any) -> list[float | None]:
        """What each episode earned; None, which TRL leaves out, where the world failed."""
        if (log := rest.get("log_metric")) is not None:
            log("success", float(np.mean(success)))
        return returns

    def _follow(self, trainer: Any) -> LanguageModel:
        """A copy of the trainer's model with its present weights. A copy, because the engine joins projections into
        one storage, which TRL's checkpoints could not write.
        """
        model = trainer.accelerator.unwrap_model(trainer.model)
        if self.engine is None:
            language = assemble("trl", copy.deepcopy(model).requires_grad_(False), trainer.processing_class)
            self.engine = Engine(language)
        else:
            self.engine.language.model.load_state_dict(model.state_dict())
        return self.engine.language


def _tokens(episode: Episode, end: int) -> dict[str, Any]:
    """An episode as TRL takes it: the prompt, and all from the first sampled token to the last."""
    sampled = episode.rows[0].sampled if episode.rows else np.zeros(0, bool)
    if not sampled.any():  # the world failed before anything was said: no token counts
        return {"prompt_ids": [end], "completion_ids": [end], "logprobs": [0.0], "env_mask": [0]}
    row = episode.rows[0]
    first, last = int(sampled.argmax()), len(sampled) - int(sampled[::-1].argmax())
    return {
        "prompt_ids": row.tokens[:first].tolist(),
        "completion_ids": row.tokens[first:last].tolist(),
        "logprobs": row.logprobs[first:last].tolist(),
        "env_mask": sampled[first:last].astype(int).tolist(),
    }


def environment_factory(world: str, **settings: Any) -> Callable[[], WorldEnvironment]:
    """What `GRPOTrainer(environment_factory=...)` takes. A row's columns `seed` and `split` choose its level."""
    members = itertools.count()
    return lambda: WorldEnvironment(world, next(members), settings)


class WorldEnvironment:
    """One episode, played by tool calls. Every public method is a tool to TRL, so there is but one."""

    def __init__(self, world: str, member: int, settings: dict[str, Any]) -> None:
        self._world, self._member = make(world, **settings), member
        self._score = 0.0

    def reset(self, seed: int | None = None, split: str = "train", **row: Any) -> str:
        # Instances are rollouts of one group: each has noise of its own.
        state, _ = self._world.reset(seed=seed, options={"split": split, "member": self._member})
        self._score = 0.0
        return f"{self._world.instruction}\n\n{state}"

    def act(self, action: str) -> str:
        """Take one action in the world.

        Args:
            action: The action, in the words that the task lists.

        Returns:
            The new state.
        """
        state, reward, terminated, truncated, info = self._world.step(action)
        self._score += reward
        note = "" if info["valid"] else "\nThe action was not understood."
        return f"{state}{note}" + ("\nThe episode is over." if terminated or truncated else "")

    def get_reward(self) -> float:
        return self._score
