"""Dreaming on the web: RL of one linear policy in the true web, in a page model, or in both.

    demonstrations  ->  first policy  ->  its play  ->  page model  ->  rounds of RL, refreshed model, measured success

The loop is `oneiro.systems.dyna.pipeline`; here is what the web needs besides. In dreams the task's own check decides
on the predicted address.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from oneiro.agents.learners.pages import (
    PageModels,
    Steps,
    WebLearner,
    config_of,
    page_models,
    policy_dialogue,
    record_episodes,
    world_of,
)
from oneiro.agents.linear import LinearPolicy, fit, turn_numbers
from oneiro.agents.policies import DreamingPolicy
from oneiro.agents.rollout import Attempt, attempts, attempts_at, play
from oneiro.episode import Episode, with_outcome
from oneiro.learning.algorithms import Grpo
from oneiro.runtime import seeds
from oneiro.runtime.files import read_json, write_json
from oneiro.systems.dyna.pipeline import DynaVariant
from oneiro.systems.dyna.recipe import DynaWebRecipe
from oneiro.tasks.webpage.model import NextPages, Remembered
from oneiro.tasks.webpage.parquet import read_parquet
from oneiro.tasks.webpage.slot_model import right_kind
from oneiro.tasks.webpage.world import DreamedWeb, predict_together
from oneiro.worlds.levels import distinct_seeds

Lessons = list[tuple[dict[str, Any], float]]
"""Turns, each with its advantage."""


class WebVariant(DynaVariant):
    """One variant of one repeat."""

    recipe: DynaWebRecipe
    learner: WebLearner
    learner_class: ClassVar = WebLearner
    played: ClassVar = ("policy", "play")
    """The demonstrations, and the first policy's play."""

    # Weights

    def checkpoint(self, stage: str, after: int) -> Path:
        return self.run.path / "checkpoints" / f"{stage}-{self.name}-{after}"

    def policy(self, after: int, temperature: float = 0.0) -> LinearPolicy:
        """As it is after a round of RL; after none, the one that all variants start from."""
        folder = self.checkpoint("rl", after) if after else self.learner.checkpoint("policy")
        return LinearPolicy.load(folder, temperature)

    def model_stage(self, after: int) -> str:
        """Whose page model is in use after a round; before the first refresh, the one from the first policy's play."""
        refreshed = after and self.refreshes
        return f"refresh-{self.name}-{after}" if refreshed else self.learner.model_stage

    def models(self, after: int) -> PageModels:
        """With the policy after a round beside them."""
        learner = self.learner
        return page_models(self.recipe, self.run, learner.seed, learner.metadata, lambda: self.policy(after))

    def pages(self, after: int) -> NextPages:
        """What the model predicts; every situation once."""
        return Remembered(self.models(after).load(self.model_stage(after)))

    # RL

    def reinforce(self, number: int) -> dict[str, Any]:
        """Steps of GRPO over groups of attempts at training tasks, some in the true web and some in the page model."""
        settings, rollout, stage = self.recipe.rl, self.recipe.rollout, f"rl-{self.name}-{number}"
        policy = self.policy(number - 1, settings.temperature)
        pages = self.pages(number - 1) if self.dreams else None
        real = round(self.real_share * rollout.prompts_per_step)
        self.run.rewind(stage, -1)
        kept: list[Steps] = []
        groups: list[Lessons] = []
        memory = [group for earlier in range(1, number) for group in self._read_groups(earlier)]
        for step in range(1, settings.steps + 1):
            seed = seeds.derive(self.learner.seed, "rl", number, step)
            planned = attempts(rollout.prompts_per_step, rollout.group_size, "train", seed)
            awake, asleep = ([task for task in planned if (task.group < real) is where] for where in (True, False))
            episodes: list[Episode] = []
            if awake:
                episodes, steps = record_episodes(self.recipe, awake, policy, seed)
                kept += steps
            if asleep and pages is not None:
                episodes += self.dream(pages, asleep, policy, seed)
            judged = [with_outcome(e, float(e.success)) for e in episodes if e.info["turns"]]
            lessons: Lessons = []
            by_group: dict[int, Lessons] = {}
            for episode, advantages in zip(judged, turn_numbers(Grpo(), judged), strict=True):
                turns = [{key: turn[key] for key in ("message", "state", "reply")} for turn in episode.info["turns"]]
                own = list(zip(turns, map(float, advantages), strict=True))
                lessons += own
                by_group.setdefault(episode.group, []).extend(own)
            groups += by_group.values()
            if self.variant == "replay":
                # As many groups as `mixed` dreams of, from everything that was truly played so far.
                known = [*memory, *groups]
                drawn = seeds.generator(seed, "replay").integers(len(known), size=len(asleep) // rollout.group_size)
                lessons += [lesson for place in drawn for lesson in known[place]]
            fit(policy, lessons, settings.epochs, settings.rate, seed)
            self.run.log(stage, step, {"success": float(np.mean([episode.success for episode in episodes]))})
        self.learner.save_policy(self.checkpoint("rl", number), policy)
        self.learner.write(self._real(number), kept)
        if self.variant == "replay":
            write_json(self._groups(number), groups)
        return {"true_steps": sum(map(len, kept))}

    def dream(self, pages: NextPages, planned: Sequence[Attempt], policy: LinearPolicy, seed: int) -> list[Episode]:
        """Attempts in the page model; the pages of a turn are predicted together."""
        config, dialogue = config_of(self.recipe), policy_dialogue(self.recipe)
        dreaming = DreamingPolicy(policy, partial(predict_together, pages), dialogue)
        return play(lambda: DreamedWeb(pages, config), planned, dreaming, dialogue, None, seed)

    def _real(self, number: int) -> Path:
        return self.run.path / "data" / f"rl-{self.name}-{number}.parquet"

    def _groups(self, number: int) -> Path:
        """The turns of a round's true episodes with their advantages, group by group."""
        return self.run.path / "data" / f"groups-{self.name}-{number}.json"

    def _read_groups(self, number: int) -> list[Lessons]:
        if self.variant != "replay":
            return []
        return [[(turn, advantage) for turn, advantage in group] for group in read_json(self._groups(number))]

    # The model

    def refresh(self, number: int) -> dict[str, Any]:
        """The page model learns from everything that was truly seen so far."""
        cases = self.learner.steps
        for earlier in range(1, number + 1):
            cases += read_parquet(self._real(earlier))
        stage, before = self.model_stage(number), self.model_stage(number - 1)
        return self.models(number).learn(stage, cases, self.recipe.refresh, before)

    # Measurements

    @cached_property
    def tasks(self) -> list[int]:
        settings = self.recipe.evaluation
        return distinct_seeds(world_of(self.recipe), "eval", settings.tasks, settings.first_seed)

    def evaluate(self, number: int) -> dict[str, Any]:
        """One attempt at each test task, in the true web and in the page model."""
        policy = self.policy(number, self.recipe.evaluation.temperature)
        pages, seed = self.pages(number), seeds.derive(self.learner.seed, "evaluate")
        planned = attempts_at(self.tasks, 1, "eval")
        true, steps = record_episodes(self.recipe, planned, policy, seed)
        dreamed = self.dream(pages, planned, policy, seed)
        cases = [case for episode in steps for case in episode if not case.stops]
        return self.measurements(
            number, true, dreamed, [right_kind(page, case) for page, case in zip(pages(cases), cases, strict=True)]
        )
