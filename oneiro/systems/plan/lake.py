"""Planning on a lake: a model from random play without rewards; then search inside it, for two goals.

    random play  ->  world model (SFT)  ->  search for the lake's goal  ->  search for another goal, no new training

Beside search in the model: a policy from the same play (with its rewards), a vote of that policy with the planner's
tokens, search in a memory of the play, in a shuffled model and in the true lake.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar

import numpy as np

from oneiro.agents.learners.lake import REPLY, LakeLearner, lake_of, random_play, read_action, transitions
from oneiro.agents.planning.base import PlannerSettings, PolicyProposals
from oneiro.agents.planning.policy import (
    ModelVeto,
    PlanningPolicy,
    RandomVeto,
    Spent,
    VotePolicy,
    make_planner,
    traces,
)
from oneiro.agents.planning.policy import dialogue as planning_dialogue
from oneiro.agents.planning.rules import every_action, grid_rule
from oneiro.agents.planning.values import RuleValue
from oneiro.agents.policies import ModelPolicy, Policy, ScriptedPolicy
from oneiro.agents.prompts import DialogueSettings
from oneiro.agents.rollout import attempts_at, play
from oneiro.episode import Episode
from oneiro.learning import stages
from oneiro.models.chat import ChatFormat
from oneiro.sampling.engine import Engine
from oneiro.systems.plan.pipeline import Planning
from oneiro.systems.plan.recipe import Goal, PlanLakeRecipe
from oneiro.tasks.base import Cached, Dynamics, Shuffled
from oneiro.tasks.grid import GridLookup, LookupModel, TrueLake
from oneiro.worlds.baselines import random_policy
from oneiro.worlds.grid.frozen_lake.world import FrozenLake, TargetLake, best_possible, has_target
from oneiro.worlds.levels import distinct_seeds

POOL = 2000
"""Steps of the play among whose states a shuffled model answers for another."""


class LakePlanning(LakeLearner, Planning):
    """One of the repeats, measured on the same levels as the others."""

    recipe: PlanLakeRecipe
    curve: ClassVar = ("Loss of the world model", "world-model")
    steps_title: ClassVar[str] = "unseen steps of random play"

    def evaluate(self) -> dict[str, Any]:
        """How true the model is, and what search in it reaches."""
        model = self.grid_model(stages.weights_after(self.run, [self.name_stage("world-model")], self.recipe.model))
        cases = transitions(self.read_play())
        memory = {"model": Cached(model), "lookup": Cached(LookupModel(self.predictor, GridLookup(cases)))}
        steps = self.accuracy(memory)
        shuffled = Shuffled(memory["model"], [case.state for case in cases[:POOL]], self.seed)
        dynamics: dict[str, Dynamics[str]] = {**memory, "shuffled model": shuffled}
        rows: dict[str, Any] = {}
        for goal in self.recipe.goals:
            rows[goal] = {
                f"beam, {name}": self.measure(goal, self.planner(inside, self.recipe.planner))
                for name, inside in dynamics.items()
            }
            rows[goal]["mpc, model"] = self.measure(goal, self.planner(memory["model"], self.recipe.mpc))
            rows[goal] |= self.policies(goal, rows[goal]["beam, model"]["tokens"], memory["model"])
            shown = ", ".join(f"{name} {np.mean(row['success']):.1%}" for name, row in rows[goal].items())
            self.run.say(f"repeat {self.number}, {goal}: {shown}")
        if self.number == 0:  # one repeat's decisions are enough to look at
            self.trace(memory["model"])
        return {"rows": rows, "steps": steps}

    def policies(self, goal: Goal, budget: float, model: Dynamics[str]) -> dict[str, dict[str, Any]]:
        """The policy alone, its vote with the tokens that a decision of the planner takes, and votes with a veto: the
        model's, of moves into holes, and one at random as often.
        """
        if not self.run.result(self.name_stage("policy"))["rows"]:
            return {}
        language = stages.weights_after(self.run, [self.name_stage("policy")], self.recipe.model)
        engine, chat = Engine(language, self.recipe.max_batch_size), ChatFormat(language.tokenizer)
        alone = self.measure(goal, ModelPolicy(engine, REPLY), dialogue=self.policy_dialogue, chat=chat)
        # As many tokens as the planner's decision took: what they buy without a model.
        votes = self.votes(budget, alone["tokens"], self.recipe.evaluation.vote_most)
        proposals = PolicyProposals[str](
            engine, REPLY, votes, prompt=lambda root: chat.opening(root.state), read=read_action
        )
        vote = VotePolicy(proposals, observe=lambda world: world.render())
        rows = {"policy": alone, "policy, vote": {**self.measure(goal, vote), "votes": votes}}
        forbid = ModelVeto(model, RuleValue(grid_rule(lake_of(self.recipe)())))
        guarded = replace(vote, task=task_of, veto=forbid, spent=Spent())
        rows["policy, vote, veto by the model"] = self.measure(goal, guarded)
        at_random = RandomVeto[str](guarded.vetoed / max(1, guarded.spent.decisions))
        guarded = replace(vote, task=task_of, veto=at_random, spent=Spent())
        rows["policy, vote, veto at random"] = self.measure(goal, guarded)
        return rows

    def reference(self) -> dict[str, Any]:
        """Chance below, and above the same search in the true lake and the best possible."""
        rows: dict[str, Any] = {}
        for goal in self.recipe.goals:
            policies: dict[str, Policy] = {
                "random": ScriptedPolicy(random_policy),
                "beam, true lake": self.planner(TrueLake(lake_of(self.recipe)()), self.recipe.planner),
                "mpc, true lake": self.planner(TrueLake(lake_of(self.recipe)()), self.recipe.mpc),
            }
            rows[goal] = {name: self.measure(goal, policy, self.recipe.seed) for name, policy in policies.items()}
            best = best_possible(self.world_of(goal)(), self.levels(goal))
            rows[goal]["best possible"] = {"success": best, "tokens": 0.0}
        return rows

    def trace(self, inside: Dynamics[str]) -> None:
        decisions = []
        for goal in self.recipe.goals:
            policy = self.planner(inside, self.recipe.planner)
            episodes = self.play_levels(goal, policy, self.seed, self.levels(goal)[: self.recipe.evaluation.traces])
            decisions += traces(policy, episodes, f"beam search in the model, {goal}")
        self.write_traces(decisions)

    # What is played

    def world_of(self, goal: Goal) -> Callable[[], FrozenLake]:
        lakes = lake_of(self.recipe)
        return partial(TargetLake, lakes().config) if goal == "target" else lakes

    def levels(self, goal: Goal) -> list[int]:
        """Distinct evaluation levels; for another goal those of them that have one."""
        settings, world = self.recipe.evaluation, self.world_of(goal)()
        seeds = distinct_seeds(lake_of(self.recipe), "eval", settings.levels, settings.first_seed)
        return [seed for seed in seeds if has_target(world, seed)] if isinstance(world, TargetLake) else seeds

    def planner(self, inside: Dynamics[str], settings: PlannerSettings) -> PlanningPolicy[str]:
        """A planner with a cache of its own: what it costs does not depend on who asked before."""
        world = lake_of(self.recipe)()
        planner = make_planner(Cached(inside), every_action(world), RuleValue(grid_rule(world)), settings)
        return PlanningPolicy(planner, observe=lambda world: world.render(), task=task_of)

    def measure(
        self,
        goal: Goal,
        policy: Policy,
        seed: int | None = None,
        dialogue: DialogueSettings | None = None,
        chat: ChatFormat | None = None,
    ) -> dict[str, Any]:
        seed = self.seed if seed is None else seed
        return self.row(policy, self.play_levels(goal, policy, seed, self.levels(goal), dialogue, chat))

    def play_levels(
        self,
        goal: Goal,
        policy: Policy,
        seed: int,
        levels: Sequence[int],
        dialogue: DialogueSettings | None = None,
        chat: ChatFormat | None = None,
    ) -> list[Episode]:
        make_world = self.world_of(goal)
        dialogue = dialogue or planning_dialogue(make_world().config.max_actions)
        return play(make_world, attempts_at(levels, 1, "eval"), policy, dialogue, chat, seed)

    def accuracy(self, memory: dict[str, Cached[str]]) -> dict[str, Any]:
        """Exact predictions of unseen steps, by level; steps that change something apart."""
        world, count = lake_of(self.recipe)(), self.recipe.play.held_out
        chosen = distinct_seeds(lake_of(self.recipe), "eval", count, self.recipe.evaluation.first_seed)
        shares: dict[str, Any] = {}
        for name, inside in {**memory, "no change": None}.items():
            by_level: list[list[float]] = []
            changed: list[list[float]] = []
            for record in random_play(world, chosen, "eval", 0):
                cases = transitions([record])
                if inside is None:
                    right = [case.state == case.after for case in cases]
                else:
                    answers = inside.predict([(case.state, case.action) for case in cases])
                    right = [answer[0].state == case.after for answer, case in zip(answers, cases, strict=True)]
                by_level.append([float(hit) for hit in right])
                moved = [float(hit) for hit, case in zip(right, cases, strict=True) if case.state != case.after]
                changed += [moved] if moved else []
            shares[name] = {
                "all": [float(np.mean(r)) for r in by_level],
                "changed": [float(np.mean(r)) for r in changed],
            }
        return shares


def task_of(world: Any) -> int | None:
    """What a value is asked about: the cell to reach, or the goal that the lake itself shows."""
    return world.target if isinstance(world, TargetLake) else None
