"""Dreaming on a lake: RL of one policy in the true world, in a learned one, or in both.

    random play  ->  world model and first policy  ->  rounds of RL, refreshed model, measured success

The loop is `oneiro.systems.dyna.pipeline`; here is what a lake needs besides.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, partial
from typing import Any, ClassVar

from oneiro.agents.learners.lake import REPLY, LakeLearner, lake_of, transitions
from oneiro.agents.loading import AgentMetadata
from oneiro.agents.policies import DreamingPolicy, ModelPolicy
from oneiro.agents.rollout import attempts, attempts_at, play
from oneiro.episode import Episode
from oneiro.learning import stages
from oneiro.learning.collapse import CollapseMonitor
from oneiro.learning.settings import CollapseMonitorSettings
from oneiro.learning.stages import Rollout
from oneiro.models.chat import ChatFormat
from oneiro.models.language import LanguageModel
from oneiro.report.episodes import record
from oneiro.rundir.records import read_lines, stage_file_name
from oneiro.runtime import seeds
from oneiro.sampling.engine import Engine
from oneiro.systems.dyna.pipeline import DynaVariant
from oneiro.systems.dyna.recipe import DynaLakeRecipe
from oneiro.tasks.answering import true_rows
from oneiro.tasks.base import Cached
from oneiro.tasks.grid import GridMetadata, LearnedFrozenLake, predict_together
from oneiro.worlds.levels import distinct_seeds


class LakeVariant(DynaVariant):
    """One variant of one repeat."""

    recipe: DynaLakeRecipe
    learner: LakeLearner
    learner_class: ClassVar = LakeLearner
    played: ClassVar = ("play",)

    # Weights

    def policy(self, after: int) -> LanguageModel:
        """The policy after a round of RL; after none, the one that all variants start from."""
        stage = f"rl-{self.name}-{after}" if after else f"policy-{self.number}"
        language = stages.weights_after(self.run, [stage], self.recipe.model)
        dialogue = self.learner.policy_dialogue
        metadata = AgentMetadata(world=self.recipe.world, dialogue=dialogue, sampling=REPLY, response_prefix="")
        return metadata.write(language)

    def model(self, after: int) -> LanguageModel:
        """The world model after a round's refresh; after none, the one from random play."""
        refreshed = f"refresh-{self.name}-{after}" if after and self.refreshes else None
        stage = refreshed or f"world-model-{self.number}"
        language = stages.weights_after(self.run, [stage], self.recipe.model)
        return GridMetadata(task=self.learner.predictor.config, sampling=self.recipe.sampling).write(language)

    def dynamics(self, after: int) -> Cached[str]:
        return Cached(self.learner.grid_model(self.model(after)))

    # RL

    def reinforce(self, number: int) -> dict[str, Any]:
        """A round of RL from the last round's policy, with the last refreshed model."""
        stage, recipe = f"rl-{self.name}-{number}", self.recipe
        language = self.policy(number - 1)
        dynamics = self.dynamics(number - 1) if self.dreams else None
        learned = stages.reinforce(
            self.run,
            stage,
            f"RL {self.name}, round {number}",
            language,
            lambda engine: self.rollout(engine, dynamics, number),
            settings=recipe.rl.model_copy(update={"keep_episodes_every": 1}),  # the refresh learns from all of them
            seed=seeds.derive(self.learner.seed, stage),
            monitor=CollapseMonitor(CollapseMonitorSettings(every=0, stop=False)),
            max_batch_size=recipe.max_batch_size,
        )
        return {**learned, "true_steps": sum(len(record["turns"]) for record in self.real_episodes(number))}

    def rollout(self, engine: Engine, dynamics: Cached[str] | None, number: int) -> Rollout:
        """Groups of attempts at training levels, some in the true world and some in the learned one."""
        settings = self.recipe.rollout
        real = round(self.real_share * settings.prompts_per_step)

        def play_step(step: int) -> list[Episode]:
            seed = seeds.derive(self.learner.seed, "rl", number, step)
            planned = attempts(settings.prompts_per_step, settings.group_size, "train", seed)
            awake = [task for task in planned if task.group < real]
            asleep = [task for task in planned if task.group >= real]
            episodes = self.play_attempts(engine, awake, seed) if awake else []
            return episodes + (self.play_attempts(engine, asleep, seed, dynamics) if asleep else [])

        return Rollout(play_step, record, max_tokens=REPLY.max_tokens)

    def play_attempts(
        self, engine: Engine, planned: Sequence[Any], seed: int, dynamics: Cached[str] | None = None
    ) -> list[Episode]:
        dialogue, chat = self.learner.policy_dialogue, ChatFormat(engine.language.tokenizer)
        policy, true_lake = ModelPolicy(engine, REPLY), lake_of(self.recipe)
        if dynamics is None:
            return play(true_lake, planned, policy, dialogue, chat, seed)
        dreaming = DreamingPolicy(policy, partial(predict_together, dynamics), dialogue)
        make_world = partial(LearnedFrozenLake, dynamics, true_lake().config)
        return play(make_world, planned, dreaming, dialogue, chat, seed)

    def real_episodes(self, number: int) -> list[dict[str, Any]]:
        name = stage_file_name(f"rl-{self.name}-{number}")
        files = sorted((self.run.path / "episodes").glob(f"{name}-*.jsonl.gz"))
        return [row for file in files for row in read_lines(file) if row["world"] != LearnedFrozenLake.name]

    # The model

    def refresh(self, number: int) -> dict[str, Any]:
        """SFT goes on, on the random play and all true steps of the policy so far."""
        records = self.learner.read_play()
        for earlier in range(1, number + 1):
            records += self.real_episodes(earlier)
        language = self.model(number - 1)
        rows = true_rows(self.learner.predictor, ChatFormat(language.tokenizer), transitions(records))
        stage = f"refresh-{self.name}-{number}"
        seed = seeds.derive(self.learner.seed, stage)
        steps = stages.supervise(
            self.run, stage, f"model of {self.name}, round {number}", language, rows, [], self.recipe.refresh, seed
        )
        return {"rows": len(rows), "steps": steps}

    # Measurements

    @cached_property
    def levels(self) -> list[int]:
        settings = self.recipe.evaluation
        return distinct_seeds(lake_of(self.recipe), "eval", settings.levels, settings.first_seed)

    def evaluate(self, number: int) -> dict[str, Any]:
        """True success, success in dreams on the same levels, and how true the model is where the policy goes."""
        engine = Engine(self.policy(number), self.recipe.max_batch_size)
        planned = attempts_at(self.levels, self.recipe.evaluation.samples, "eval")
        seed = seeds.derive(self.learner.seed, "evaluate")
        true = self.play_attempts(engine, planned, seed)
        dynamics = self.dynamics(number)
        dreamed = self.play_attempts(engine, planned, seed, dynamics)
        cases = transitions(record(episode) for episode in true)
        answers = dynamics.predict([(case.state, case.action) for case in cases])
        right = [answer[0].state == case.after for answer, case in zip(answers, cases, strict=True)]
        return self.measurements(number, true, dreamed, right)
