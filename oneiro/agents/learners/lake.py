"""What planning and dreaming on a lake start from: random play, a world model and a policy learned from it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from oneiro.agents import reply as replies
from oneiro.agents.hindsight import best_known
from oneiro.agents.learners import Repeat
from oneiro.agents.learners.recipe import LakeRecipe
from oneiro.agents.loading import AgentMetadata
from oneiro.agents.prompts import DialogueSettings
from oneiro.agents.reply import TAG_TOKENS
from oneiro.episode import FinishReason, Row
from oneiro.learning import stages
from oneiro.learning.settings import SftSettings
from oneiro.models import language as languages
from oneiro.models.chat import ChatFormat
from oneiro.models.language import LanguageModel
from oneiro.rundir.records import read_lines
from oneiro.runtime import seeds
from oneiro.sampling.engine import Engine, SamplingSettings
from oneiro.tasks.answering import true_rows
from oneiro.tasks.grid import GridMetadata, GridModel, GridPredictor, GridPredictorConfig, GridTransition, word_of
from oneiro.worlds.base import World
from oneiro.worlds.grid.frozen_lake.world import FrozenLake
from oneiro.worlds.registry import config_for

POLICY_DIALOGUE = DialogueSettings(
    context="single", brief=True, think=False, world_model=False, max_turns=10, actions_per_turn=1
)
"""How small policies without thoughts are asked: the state alone; the answer is an action."""


def random_play(world: World, level_seeds: Iterable[int], split: str, seed: int) -> Iterator[dict[str, Any]]:
    """Episodes of uniformly random actions, in the form of recorded episodes."""
    for level in level_seeds:
        state, info = world.reset(seed=level, options={"split": split})
        rng, turns, ended = seeds.generator(seed, "random play", level), [], False
        while not ended:
            action = world.random_action(rng)
            after, reward, terminated, truncated, step = world.step(action)
            turns.append({"state": state, "actions": [action], "next_state": after, "reward": reward})
            state, ended = after, terminated or truncated
        success = bool(step["success"])
        reason = FinishReason.GOAL if success else FinishReason.FAILED if terminated else FinishReason.BUDGET
        yield {
            "world": world.name,
            "task": info["key"],
            "seed": level,
            "success": success,
            "score": sum(turn["reward"] for turn in turns),
            "finish_reason": str(reason),
            "turns": turns,
        }


def transitions(records: Iterable[dict[str, Any]]) -> list[GridTransition]:
    """Every distinct step of one action that the lake understands, in the order of first appearance."""
    steps = (
        GridTransition(turn["state"], word, turn["next_state"])
        for record in records
        for turn in record["turns"]
        if len(turn["actions"]) == 1 and (word := word_of(turn["actions"][0])) is not None
    )
    # Once each: what random play repeats would be learned many times over.
    return list(dict.fromkeys(steps))


def steps_in(records: Sequence[dict[str, Any]]) -> int:
    return sum(len(record["turns"]) for record in records)


def policy_row(chat: ChatFormat, state: str, action: str) -> Row:
    return chat.answer_row(chat.opening(state), f"<answer>{action}</answer>")


REPLY = SamplingSettings(max_tokens=12)
"""An action of the policy, with its marks."""


def lake_of(recipe: LakeRecipe) -> Callable[[], FrozenLake]:
    return partial(FrozenLake, config_for(recipe.world.name, recipe.world.settings))


def read_action(text: str) -> str | None:
    actions = replies.read(text, think=False).actions
    return actions[0] if actions else None


class LakeLearner(Repeat):
    """Random play on a lake, a world model from it, and a policy from it."""

    recipe: LakeRecipe
    stages: Sequence[str] = ("play", "world-model", "policy")

    def learn(self) -> None:
        self.run.stage(self.name_stage("play"), self.play)
        self.run.stage(self.name_stage("world-model"), self.learn_model)
        self.run.stage(self.name_stage("policy"), self.learn_policy)

    def play(self) -> dict[str, Any]:
        world = lake_of(self.recipe)()
        first = seeds.derive(self.seed, "levels")
        levels = range(first, first + self.recipe.play.levels)
        records = list(random_play(world, levels, "train", self.seed))
        self.run.episodes(self.name_stage("play"), 0, records)
        return {"steps": steps_in(records), "success": float(np.mean([record["success"] for record in records]))}

    def read_play(self) -> list[dict[str, Any]]:
        return list(read_lines(self.run.path / "episodes" / f"{self.name_stage('play')}-000000.jsonl.gz"))

    @property
    def predictor(self) -> GridPredictor:
        return GridPredictor(GridPredictorConfig(world=self.recipe.world))

    def tiny(self, name: str, cases: Sequence[GridTransition]) -> LanguageModel:
        """Random weights; the tokenizer is trained on steps of the play."""
        actions = lake_of(self.recipe)().actions or ()
        texts = [languages.ROLES, *(f"{word}\n" for word in actions)] * 64
        texts += [text for case in cases[:512] for text in (f"{case.state}\n{case.action}", case.after)]
        return languages.create_tiny(self.recipe.model, texts, seeds.derive(self.seed, name), TAG_TOKENS)

    def learn_model(self) -> dict[str, Any]:
        """SFT of the next state on every distinct step of the play."""
        cases = transitions(self.read_play())
        language = self.tiny("world model", cases)
        GridMetadata(task=self.predictor.config, sampling=self.recipe.sampling).write(language)
        rows = true_rows(self.predictor, ChatFormat(language.tokenizer), cases)
        return self._supervise("world-model", language, rows, self.recipe.sft)

    def learn_policy(self) -> dict[str, Any]:
        """SFT of the best actions that the play knows of: a policy from the same data, and its rewards besides."""
        records = self.read_play()
        language = self.tiny("policy", transitions(records))
        AgentMetadata(world=self.recipe.world, dialogue=self.policy_dialogue, sampling=REPLY, response_prefix="").write(
            language
        )
        chat, best = ChatFormat(language.tokenizer), sorted(best_known(records))
        if not best:
            return {"rows": 0}  # play without a success knows no good action; the table then has no row for the policy
        rows = [policy_row(chat, state, actions[0]) for state, actions in best]
        return self._supervise("policy", language, rows, self.recipe.policy)

    def _supervise(self, name: str, language: LanguageModel, rows: list[Row], settings: SftSettings) -> dict[str, Any]:
        stage, seed = self.name_stage(name), seeds.derive(self.seed, name)
        steps = stages.supervise(self.run, stage, stage.replace("-", " "), language, rows, [], settings, seed)
        return {"rows": len(rows), "steps": steps}

    @property
    def policy_dialogue(self) -> DialogueSettings:
        most = config_for(self.recipe.world.name, self.recipe.world.settings).max_actions
        return POLICY_DIALOGUE.model_copy(update={"max_turns": most})

    def grid_model(self, language: LanguageModel) -> GridModel:
        return GridModel(self.predictor, Engine(language, self.recipe.max_batch_size), self.recipe.sampling)
