"""Dreaming on the web: RL of one linear policy in the true web, in a page model, or in both.

    demonstrations  ->  policy  ->  its play  ->  page model, first policy  ->  rounds of RL, refreshed model, success

The loop is `oneiro.systems.dyna.pipeline`; here is what the web needs besides. Dreams begin at training tasks that were
truly played: true steps are remembered, others predicted. Whether a dream succeeds says a value learned from the
rewards of the same true episodes (`oneiro.agents.planning.page_values`); nobody is told where a task ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from oneiro.agents.learners.pages import (
    PageModels,
    Steps,
    WebLearner,
    browsed_pages,
    by_episode,
    config_of,
    is_success,
    page_models,
    policy_dialogue,
    record_episodes,
    world_of,
)
from oneiro.agents.linear import LinearPolicy, fit, turn_numbers
from oneiro.agents.linear.train import LEAST, Turn, TurnDecision
from oneiro.agents.planning.base import Root
from oneiro.agents.planning.page_values import PageValue, lessons_of
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
from oneiro.tasks.webpage.world import DreamedWeb, Judge, predict_together
from oneiro.worlds.levels import distinct_seeds
from oneiro_web.env import WebConfig

Lesson = tuple[dict[str, Any], float]
"""A turn with the probability of its reply when it was said, and its advantage."""
Lessons = list[Lesson]


def reweigh(policy: LinearPolicy, lesson: Lesson) -> Lesson:
    """A lesson of an earlier policy for the present one: its advantage times the ratio of the probabilities of its
    action, at most 1 (truncated importance weights, as in IMPALA, arXiv 1802.01561). Without it, what failed once is
    punished at every replay, until the policy does nothing else.
    """
    turn, advantage = lesson
    return turn, advantage * min(1.0, probability(policy, turn) / max(turn["probability"], LEAST))


def probability(policy: LinearPolicy, turn: Turn) -> float:
    return TurnDecision.of(turn).probability(policy.weights)


SUCCESS = 0.5
"""What a stop must be worth to the learned value to be a success of a dream."""


@dataclass(frozen=True)
class Dreams:
    """The page model and the value after a round, as worlds."""

    pages: NextPages
    succeeds: Judge
    """The value's word on a page where an episode stopped."""
    config: WebConfig
    tasks: Sequence[int]
    """Seeds of the training tasks that were truly played: there, what was seen needs no prediction."""

    def attempts(self, groups: Sequence[int], group_size: int, seed: int) -> list[Attempt]:
        """At drawn tasks, one for each group."""
        drawn = seeds.generator(seed, "dreams").integers(len(self.tasks), size=len(groups))
        return [
            Attempt(self.tasks[place], member, group, "train")
            for group, place in zip(groups, drawn, strict=True)
            for member in range(group_size)
        ]

    def make(self) -> DreamedWeb:
        return DreamedWeb(self.pages, self.succeeds, self.config)


class DynaWebLearner(WebLearner):
    """Its first policy has learned from the rewards of the play too: what RL adds is then not what imitation would."""

    stages: Sequence[str] = (*WebLearner.stages, "first-policy")

    def learn(self) -> None:
        super().learn()
        self.run.stage(self.name_stage("first-policy"), lambda: self.save_policy(self.first, self.improve()))

    @property
    def first(self) -> Path:
        return self.checkpoint("first-policy")


class WebVariant(DynaVariant):
    """One variant of one repeat."""

    recipe: DynaWebRecipe
    learner: DynaWebLearner
    learner_class: ClassVar = DynaWebLearner
    played: ClassVar = ("policy", "play")
    """The demonstrations, and the first policy's play."""

    # Weights

    def checkpoint(self, stage: str, after: int) -> Path:
        return self.run.path / "checkpoints" / f"{stage}-{self.name}-{after}"

    def policy(self, after: int, temperature: float = 0.0) -> LinearPolicy:
        """As it is after a round of RL; after none, the one that all variants start from."""
        folder = self.checkpoint("rl", after) if after else self.learner.first
        return LinearPolicy.load(folder, temperature)

    def model_stage(self, after: int) -> str:
        """Whose page model is in use after a round; before the first refresh, the one from the first policy's play."""
        refreshed = after and self.refreshes
        return f"refresh-{self.name}-{after}" if refreshed else self.learner.model_stage

    def models(self, after: int) -> PageModels:
        """With the policy after a round beside them."""
        learner = self.learner
        return page_models(self.recipe, self.run, learner.seed, learner.metadata, lambda: self.policy(after))

    def dreams_after(self, after: int) -> Dreams:
        """The page model in use after a round, and a value learned from the same true episodes and their rewards."""
        seen = self.true_steps_seen(after)
        lessons = [one for steps in by_episode(seen) for one in lessons_of(browsed_pages(steps), is_success(steps))]
        value = PageValue(lessons, seeds.derive(self.learner.seed, "value", after))
        known = {case.situation(): case.after for case in seen if not case.stops}
        pages = Remembered(self.models(after).load(self.model_stage(after)), known)
        tasks = list(dict.fromkeys(int(case.episode.rsplit("/", 2)[1]) for case in seen))
        return Dreams(pages, lambda page: value([Root(page)])[0].value >= SUCCESS, config_of(self.recipe), tasks)

    def true_steps_seen(self, after: int) -> Steps:
        """What the model and the value in use after a round have learned from."""
        rounds = range(1, after + 1) if self.refreshes else ()
        return [*self.learner.steps, *(case for number in rounds for case in read_parquet(self._real(number)))]

    # RL

    def reinforce(self, number: int) -> dict[str, Any]:
        """Steps of GRPO over groups of attempts at training tasks, some in the true web and some in the page model."""
        settings, rollout, stage = self.recipe.rl, self.recipe.rollout, f"rl-{self.name}-{number}"
        policy = self.policy(number - 1, settings.temperature)
        dreams = self.dreams_after(number - 1) if self.dreams else None
        real = round(self.real_share * rollout.prompts_per_step)
        self.run.rewind(stage, -1)
        kept: list[Steps] = []
        groups: list[Lessons] = []
        memory = [group for earlier in range(1, number) for group in self._read_groups(earlier)]
        for step in range(1, settings.steps + 1):
            seed = seeds.derive(self.learner.seed, "rl", number, step)
            awake = attempts(real, rollout.group_size, "train", seed)
            others = range(real, rollout.prompts_per_step)
            episodes: list[Episode] = []
            if awake:
                episodes, steps = record_episodes(self.recipe, awake, policy, seed)
                kept += steps
            if dreams is not None:
                episodes += self.dream(dreams, dreams.attempts(others, rollout.group_size, seed), policy, seed)
            judged = [with_outcome(e, float(e.success)) for e in episodes if e.info["turns"]]
            lessons: Lessons = []
            by_group: dict[int, Lessons] = {}
            for episode, advantages in zip(judged, turn_numbers(Grpo(), judged), strict=True):
                turns = [{key: turn[key] for key in ("message", "state", "reply")} for turn in episode.info["turns"]]
                if self.variant == "replay":
                    turns = [{**turn, "probability": probability(policy, turn)} for turn in turns]
                own = list(zip(turns, map(float, advantages), strict=True))
                lessons += own
                by_group.setdefault(episode.group, []).extend(own)
            groups += by_group.values()
            if self.variant == "replay":
                # As many groups as `mixed` dreams of, from everything that was truly played so far.
                known = [*memory, *groups]
                drawn = seeds.generator(seed, "replay").integers(len(known), size=len(others))
                lessons += [reweigh(policy, lesson) for place in drawn for lesson in known[place]]
            fit(policy, lessons, settings.epochs, settings.rate, seed)
            self.run.log(stage, step, {"success": float(np.mean([episode.success for episode in episodes]))})
        self.learner.save_policy(self.checkpoint("rl", number), policy)
        self.learner.write(self._real(number), kept)
        if self.variant == "replay":
            write_json(self._groups(number), groups)
        return {"true_steps": sum(map(len, kept))}

    def dream(self, worlds: Dreams, planned: Sequence[Attempt], policy: LinearPolicy, seed: int) -> list[Episode]:
        """Attempts in the page model; the pages of a turn are predicted together."""
        dialogue = policy_dialogue(self.recipe)
        dreaming = DreamingPolicy(policy, partial(predict_together, worlds.pages), dialogue)
        return play(worlds.make, planned, dreaming, dialogue, None, seed)

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
        dreams, seed = self.dreams_after(number), seeds.derive(self.learner.seed, "evaluate")
        planned = attempts_at(self.tasks, 1, "eval")
        true, steps = record_episodes(self.recipe, planned, policy, seed)
        dreamed = self.dream(dreams, planned, policy, seed)
        cases = [case for episode in steps for case in episode if not case.stops]
        return self.measurements(
            number,
            true,
            dreamed,
            [right_kind(page, case) for page, case in zip(dreams.pages(cases), cases, strict=True)],
        )
