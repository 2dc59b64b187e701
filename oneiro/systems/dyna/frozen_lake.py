"""Dreaming on a lake: RL of one policy in the true world, in a learned one, or in both.

    random play  ->  world model and first policy  ->  rounds of RL, refreshed model, measured success

All variants start from the same play and the same policy and take the same number of RL steps over as many episodes;
they differ in where these are played. The x axis of every curve is the number of true environment steps so far, those
of the random play included.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np

from oneiro import seeds
from oneiro.agents import evaluate as evaluation
from oneiro.agents.dreaming import DreamingPolicy
from oneiro.agents.loading import AgentMetadata
from oneiro.agents.policies import ModelPolicy
from oneiro.agents.rollout import attempts, attempts_at, play
from oneiro.episode import Episode
from oneiro.learning.collapse import CollapseMonitor
from oneiro.learning.settings import CollapseMonitorSettings
from oneiro.models.chat import ChatFormat
from oneiro.models.language import LanguageModel
from oneiro.predictors.dynamics import Cached
from oneiro.predictors.grid.model import GridMetadata
from oneiro.predictors.grid.world import LearnedFrozenLake, understood
from oneiro.records import read_lines, stage_file_name
from oneiro.run import Run
from oneiro.sampling.engine import Engine
from oneiro.systems import stages
from oneiro.systems.dyna.recipe import DynaLakeRecipe, Variant
from oneiro.systems.dyna.tables import steps_table, variants_table
from oneiro.systems.plan.lake import REPLY, LakeLearner, lake_of
from oneiro.systems.plan.play import transitions
from oneiro.systems.stages import Curve, Rollout
from oneiro.worlds.levels import distinct_seeds

__all__ = ["DynaLakeRecipe", "run"]

LOGGED = ("true_success", "dreamed_success", "gap", "model_exact")
"""What is logged at every evaluation."""


def run(recipe: DynaLakeRecipe, run: Run) -> None:
    """The whole pipeline inside a run directory."""
    found: dict[str, list[dict[str, Any]]] = {variant: [] for variant in recipe.variants}
    for number in range(recipe.repeats):
        learner = LakeLearner(recipe, run, number)
        learner.learn()
        for variant in recipe.variants:
            found[variant].append(VariantRun(learner, variant).train())
    compared = run.stage("compare", lambda: compare(run, found))
    lines = {
        f"{variant} {number}": curve_stage(variant, number)
        for variant in recipe.variants
        for number in range(recipe.repeats)
    }
    curves = [
        Curve("True success against true environment steps", "true_success", lines, "%"),
        Curve("Success in dreams less true success, against true environment steps", "gap", lines, "%"),
        Curve("Exact predictions of the policy's own steps", "model_exact", lines, "%"),
    ]
    stages.summarise(run, compared, curves, compared["notes"])


def curve_stage(variant: Variant, number: int) -> str:
    return f"{variant}-{number}"


@dataclass
class VariantRun:
    """One variant of one repeat."""

    learner: LakeLearner
    variant: Variant

    @property
    def recipe(self) -> DynaLakeRecipe:
        assert isinstance(self.learner.recipe, DynaLakeRecipe)
        return self.learner.recipe

    @property
    def run(self) -> Run:
        return self.learner.run

    @property
    def name(self) -> str:
        return curve_stage(self.variant, self.learner.number)

    @property
    def dreams(self) -> bool:
        return self.variant != "real-only"

    @property
    def refreshes(self) -> bool:
        """Whether the model goes on learning: `dream-only` brings it no new true steps."""
        return self.variant == "mixed"

    def train(self) -> dict[str, Any]:
        """All rounds, until they are over or the gap opens; the measurements after each, the first before any RL."""
        first = self.run.stage(f"evaluate-policy-{self.learner.number}", partial(self.evaluate, 0))
        measured = [self.run.stage(f"evaluate-{self.name}-0", partial(self.evaluate_and_log, 0, first))]
        reason = ""
        for number in range(1, self.recipe.dyna.rounds + 1):
            self.run.stage(f"rl-{self.name}-{number}", partial(self.reinforce, number))
            if self.refreshes:
                self.run.stage(f"refresh-{self.name}-{number}", partial(self.refresh, number))
            measured.append(self.run.stage(f"evaluate-{self.name}-{number}", partial(self.evaluate_and_log, number)))
            gap = measured[-1]["gap"]
            if self.dreams and abs(gap) > self.recipe.dyna.max_gap:
                reason = (
                    f"{self.name} stopped after round {number}: success in dreams differs from the truth by {gap:.1%}"
                )
                self.run.say(reason)
                break
        return {"rounds": measured, "stopped": reason}

    # Weights

    def policy(self, after: int) -> LanguageModel:
        """The policy after a round of RL; after none, the one that all variants start from."""
        stage = f"rl-{self.name}-{after}" if after else f"policy-{self.learner.number}"
        language = stages.weights_after(self.run, [stage], self.recipe.model)
        dialogue = self.learner.policy_dialogue
        metadata = AgentMetadata(world=self.recipe.world, dialogue=dialogue, sampling=REPLY, response_prefix="")
        return metadata.write(language)

    def model(self, after: int) -> LanguageModel:
        """The world model after a round's refresh; after none, the one from random play."""
        refreshed = f"refresh-{self.name}-{after}" if after and self.refreshes else None
        stage = refreshed or f"world-model-{self.learner.number}"
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
        found = stages.reinforce(
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
        return {**found, "true_steps": sum(len(record["turns"]) for record in self.real_episodes(number))}

    def rollout(self, engine: Engine, dynamics: Cached[str] | None, number: int) -> Rollout:
        """Groups of attempts at training levels, some in the true world and some in the learned one."""
        settings = self.recipe.rollout
        share = {"real-only": 1.0, "dream-only": 0.0, "mixed": self.recipe.dyna.real_share}[self.variant]
        real = round(share * settings.prompts_per_step)

        def play_step(step: int) -> list[Episode]:
            seed = seeds.derive(self.learner.seed, "rl", number, step)
            planned = attempts(settings.prompts_per_step, settings.group_size, "train", seed)
            awake = [task for task in planned if task.group < real]
            asleep = [task for task in planned if task.group >= real]
            found = self.played(engine, awake, seed) if awake else []
            return found + (self.played(engine, asleep, seed, dynamics) if asleep else [])

        return Rollout(play_step, evaluation.record, max_tokens=REPLY.max_tokens)

    def played(
        self, engine: Engine, planned: Sequence[Any], seed: int, dynamics: Cached[str] | None = None
    ) -> list[Episode]:
        """Attempts in the true world, or in the one that `dynamics` predict."""
        dialogue, chat = self.learner.policy_dialogue, ChatFormat(engine.language.tokenizer)
        policy, true_lake = ModelPolicy(engine, REPLY), lake_of(self.recipe)
        if dynamics is None:
            return play(true_lake, planned, policy, dialogue, chat, seed)
        dreaming = DreamingPolicy(policy, dynamics, dialogue, lambda world: world.render(), understood)
        make_world = partial(LearnedFrozenLake, dynamics, true_lake().config)
        return play(make_world, planned, dreaming, dialogue, chat, seed)

    def real_episodes(self, number: int) -> list[dict[str, Any]]:
        """The true episodes of a round, from the run's folder."""
        name = stage_file_name(f"rl-{self.name}-{number}")
        files = sorted((self.run.path / "episodes").glob(f"{name}-*.jsonl.gz"))
        return [row for file in files for row in read_lines(file) if row["world"] != LearnedFrozenLake.name]

    # The model

    def refresh(self, number: int) -> dict[str, Any]:
        """SFT goes on, on the random play and all true steps of the policy so far."""
        records = self.learner.played()
        for earlier in range(1, number + 1):
            records += self.real_episodes(earlier)
        language = self.model(number - 1)
        model = self.learner.grid_model(language)
        cases = transitions(records)
        stage, rows = f"refresh-{self.name}-{number}", [model.row(case) for case in cases]
        seed = seeds.derive(self.learner.seed, stage)
        steps = stages.supervise(
            self.run, stage, f"model of {self.name}, round {number}", language, rows, [], self.recipe.refresh, seed
        )
        return {"rows": len(rows), "steps": steps}

    # Measurements

    def true_steps(self, number: int) -> int:
        """True environment steps up to the end of a round, the random play included."""
        played = self.run.stage(f"play-{self.learner.number}", dict)["steps"]
        rounds = [self.run.stage(f"rl-{self.name}-{earlier}", dict)["true_steps"] for earlier in range(1, number + 1)]
        return int(played + sum(rounds))

    @cached_property
    def levels(self) -> list[int]:
        settings = self.recipe.evaluation
        return distinct_seeds(lake_of(self.recipe), "eval", settings.levels, settings.first_seed)

    def evaluate(self, number: int) -> dict[str, Any]:
        """True success, success in dreams on the same levels, and how true the model is where the policy goes."""
        engine = Engine(self.policy(number), self.recipe.max_batch_size)
        planned = attempts_at(self.levels, self.recipe.evaluation.samples, "eval")
        seed = seeds.derive(self.learner.seed, "evaluate")
        true = self.played(engine, planned, seed)
        dynamics = self.dynamics(number)
        dreamed = self.played(engine, planned, seed, dynamics)
        cases = transitions(evaluation.record(episode) for episode in true)
        told = dynamics.predict([(case.state, case.action) for case in cases])
        right = [answer[0].state == case.after for answer, case in zip(told, cases, strict=True)]
        success, dream = _by_level(true), _by_level(dreamed)
        values = {
            "true_success": float(np.mean(success)),
            "dreamed_success": float(np.mean(dream)),
            "gap": float(np.mean(dream) - np.mean(success)),
            **({"model_exact": float(np.mean(right))} if right else {}),
        }
        return {**values, "true_steps": self.true_steps(number), "success": success}

    def evaluate_and_log(self, number: int, known: dict[str, Any] | None = None) -> dict[str, Any]:
        """The measurements after a round, logged by the round's number."""
        found = known if known is not None else self.evaluate(number)
        self.run.rewind(f"rounds-{self.name}", number - 1)
        self.run.log(f"rounds-{self.name}", number, {key: found[key] for key in LOGGED if key in found})
        self.run.say(
            f"{self.name}, round {number}, {found['true_steps']:,} true steps: success {found['true_success']:.1%}, "
            f"in dreams {found['dreamed_success']:.1%}"
        )
        return found


def _by_level(episodes: Sequence[Episode]) -> list[float]:
    """The share of attempts at each level that succeed."""
    levels: dict[int, list[bool]] = {}
    for episode in episodes:
        levels.setdefault(episode.group, []).append(episode.success)
    return [float(np.mean(found)) for found in levels.values()]


def compare(run: Run, found: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    """The curves over true steps, the tables, and in words how many true steps each variant needed."""
    for variant, runs in found.items():
        for number, one in enumerate(runs):
            run.rewind(f"{variant}-{number}", -1)
            for measured in one["rounds"]:
                values = {key: measured[key] for key in LOGGED if key in measured}
                run.log(f"{variant}-{number}", measured["true_steps"], values)
    table, notes = steps_table(found)
    stopped = [one["stopped"] for runs in found.values() for one in runs if one["stopped"]]
    tables = [variants_table(found), *([table] if table is not None else [])]
    return {"tables": [one.data() for one in tables], "notes": [*notes, *stopped]}
