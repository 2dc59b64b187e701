"""A model of the lake from random play, without rewards; then search inside it, for two goals.

    random play  ->  world model (SFT)  ->  search for the lake's goal  ->  search for another goal, no new training

Beside search in the model: a policy from the same play (with its rewards), a vote of that policy with the planner's
tokens, search in a memory of the play, in a shuffled model and in the true lake.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from oneiro.agents.learners.lake import REPLY, LakeLearner, lake_of, random_play, read_action, transitions
from oneiro.agents.planning.grids import every_action, grid_rule
from oneiro.agents.planning.policy import PlanningPolicy, VotePolicy, dialogue, make_planner, traces
from oneiro.agents.planning.proposals import PolicyProposals
from oneiro.agents.planning.settings import PlannerSettings
from oneiro.agents.planning.values import RuleValue
from oneiro.agents.policies import ModelPolicy, Policy, ScriptedPolicy
from oneiro.agents.prompts import DialogueSettings
from oneiro.agents.rollout import attempts_at, play
from oneiro.episode import Episode
from oneiro.learning import stages
from oneiro.models.chat import ChatFormat
from oneiro.rundir.run import Run
from oneiro.sampling.engine import Engine
from oneiro.systems.plan.recipe import Goal, PlanLakeRecipe
from oneiro.systems.plan.tables import planning_table, steps_table, write_traces
from oneiro.tasks.base import Cached, Dynamics, Shuffled
from oneiro.tasks.grid.model import LookupModel, TrueLake
from oneiro.tasks.grid.predictor import Lookup
from oneiro.worlds.baselines import random_policy
from oneiro.worlds.grid.frozen_lake.target import TargetLake, best_possible, has_target
from oneiro.worlds.grid.frozen_lake.world import FrozenLake
from oneiro.worlds.levels import distinct_seeds

__all__ = ["PlanLakeRecipe", "run"]


def run(recipe: PlanLakeRecipe, run: Run) -> None:
    """The whole pipeline inside a run directory."""
    repeats = range(recipe.repeats)
    per_repeat = ("play", "world-model", "policy", "evaluate")
    run.plan([*(f"{name}-{number}" for number in repeats for name in per_repeat), "reference", "compare"])
    measured = [Repeat(recipe, run, number).all() for number in repeats]
    reference = run.stage("reference", partial(measure_reference, recipe))
    compared = run.stage("compare", lambda: compare(recipe, measured, reference))
    curves = {f"repeat {number}": f"world-model-{number}" for number in repeats}
    stages.summarise(run, compared, [stages.Curve("Loss of the world model", "loss", curves)], [*compared["notes"]])


def world_of(recipe: PlanLakeRecipe, goal: Goal = "goal") -> Callable[[], FrozenLake]:
    """A factory of lakes with a goal."""
    return partial(TargetLake, lake_of(recipe)().config) if goal == "target" else lake_of(recipe)


def task_of(world: Any) -> int | None:
    """What a value is asked about: the cell to reach, or the goal that the lake itself shows."""
    return world.target if isinstance(world, TargetLake) else None


def level_seeds(recipe: PlanLakeRecipe, goal: Goal) -> list[int]:
    """Distinct evaluation levels; for another goal those of them that have one."""
    settings = recipe.evaluation
    found = distinct_seeds(world_of(recipe), "eval", settings.levels, settings.first_seed)
    world = world_of(recipe, goal)()
    return [seed for seed in found if has_target(world, seed)] if isinstance(world, TargetLake) else found


class Repeat(LakeLearner):
    """One of the repeats, measured on the same levels as the others."""

    recipe: PlanLakeRecipe

    def all(self) -> dict[str, Any]:
        """Every stage; the measurements."""
        self.learn()
        return self.run.stage(f"evaluate-{self.number}", self.evaluate)

    def evaluate(self) -> dict[str, Any]:
        """How true the model is, and what search in it reaches."""
        model = self.grid_model(stages.weights_after(self.run, [f"world-model-{self.number}"], self.recipe.model))
        cases = transitions(self.played())
        lookup = LookupModel(self.predictor, Lookup(cases))
        memory = {"model": Cached(model), "lookup": Cached(lookup)}
        found: dict[str, Any] = {"steps": self.accuracy(memory), "goals": {}}
        pool = [case.state for case in cases[:2000]]
        shuffled = Shuffled(memory["model"], pool, self.seed)
        dynamics: dict[str, Dynamics[str]] = {**memory, "shuffled model": shuffled}
        for goal in self.recipe.goals:
            rows = {f"beam, {name}": inside for name, inside in dynamics.items()}
            planned = {
                name: measure(self.recipe, goal, planning(self.recipe, inside, self.recipe.planner), self.seed)
                for name, inside in rows.items()
            }
            mpc = planning(self.recipe, memory["model"], self.recipe.mpc)
            planned["mpc, model"] = measure(self.recipe, goal, mpc, self.seed)
            budget = planned["beam, model"]["tokens"]
            planned |= self.policies(goal, budget)
            found["goals"][goal] = planned
            self.run.say(
                f"repeat {self.number}, {goal}: "
                + ", ".join(f"{name} {np.mean(row['success']):.1%}" for name, row in planned.items())
            )
        if self.number == 0:
            self.trace(memory["model"])
        return found

    def accuracy(self, memory: dict[str, Cached[str]]) -> dict[str, Any]:
        """Exact predictions of unseen steps, by level; steps that change something apart."""
        world, count = world_of(self.recipe)(), self.recipe.play.held_out
        chosen = distinct_seeds(world_of(self.recipe), "eval", count, self.recipe.evaluation.first_seed)
        found: dict[str, Any] = {}
        for name, inside in {**memory, "no change": None}.items():
            by_level: list[list[float]] = []
            changed: list[list[float]] = []
            for record in random_play(world, chosen, "eval", 0):
                cases = transitions([record])
                if inside is None:
                    right = [case.state == case.after for case in cases]
                else:
                    told = inside.predict([(case.state, case.action) for case in cases])
                    right = [answer[0].state == case.after for answer, case in zip(told, cases, strict=True)]
                by_level.append([float(hit) for hit in right])
                moved = [float(hit) for hit, case in zip(right, cases, strict=True) if case.state != case.after]
                changed += [moved] if moved else []
            found[name] = {
                "all": [float(np.mean(r)) for r in by_level],
                "changed": [float(np.mean(r)) for r in changed],
            }
        return found

    def policies(self, goal: Goal, budget: float) -> dict[str, dict[str, Any]]:
        """The policy alone, and its vote with the tokens that a decision of the planner takes."""
        if not self.run.stage(f"policy-{self.number}", dict)["rows"]:
            return {}
        language = stages.weights_after(self.run, [f"policy-{self.number}"], self.recipe.model)
        engine, chat = Engine(language, self.recipe.max_batch_size), ChatFormat(language.tokenizer)
        alone = measure(self.recipe, goal, ModelPolicy(engine, REPLY), self.seed, self.policy_dialogue, chat)
        votes = max(1, min(self.recipe.evaluation.vote_most, round(budget / max(1.0, alone["tokens"]))))
        proposals = PolicyProposals[str](
            engine, REPLY, votes, prompt=lambda root: chat.opening(root.state), read=read_action
        )
        vote = VotePolicy(proposals, observe=lambda world: world.render())
        return {"policy": alone, "policy, vote": {**measure(self.recipe, goal, vote, self.seed), "votes": votes}}

    def trace(self, inside: Dynamics[str]) -> None:
        """A few episodes with all that was considered, for the report."""
        found = []
        for goal in self.recipe.goals:
            policy = planning(self.recipe, inside, self.recipe.planner)
            chosen = level_seeds(self.recipe, goal)[: self.recipe.evaluation.traces]
            episodes = played_by(self.recipe, goal, policy, self.seed, chosen)
            found += traces(policy, episodes, f"beam search in the model, {goal}")
        write_traces(self.run, found)


def planning(recipe: PlanLakeRecipe, inside: Dynamics[str], settings: PlannerSettings) -> PlanningPolicy[str]:
    """A planner with a cache of its own: what it costs does not depend on who asked before."""
    world = world_of(recipe)()
    value = RuleValue(grid_rule(world))
    planner = make_planner(Cached(inside), every_action(world), value, settings)
    return PlanningPolicy(planner, observe=lambda world: world.render(), task=task_of)


def measure(
    recipe: PlanLakeRecipe,
    goal: Goal,
    policy: Policy,
    seed: int,
    asked: DialogueSettings | None = None,
    chat: ChatFormat | None = None,
) -> dict[str, Any]:
    """Success on each evaluation level, and tokens for a decision."""
    episodes = played_by(recipe, goal, policy, seed, level_seeds(recipe, goal), asked, chat)
    decisions = sum(len(episode.info["turns"]) for episode in episodes)
    spent = getattr(policy, "spent", None)
    tokens = spent.tokens if spent is not None else sum(episode.sampled_tokens for episode in episodes)
    return {"success": [float(episode.success) for episode in episodes], "tokens": tokens / max(1, decisions)}


def played_by(
    recipe: PlanLakeRecipe,
    goal: Goal,
    policy: Policy,
    seed: int,
    chosen: Sequence[int],
    asked: DialogueSettings | None = None,
    chat: ChatFormat | None = None,
) -> list[Episode]:
    make_world = world_of(recipe, goal)
    planned = attempts_at(chosen, 1, "eval")
    return play(make_world, planned, policy, asked or dialogue(make_world().config.max_actions), chat, seed)


def measure_reference(recipe: PlanLakeRecipe) -> dict[str, Any]:
    """Chance below, and above the same search in the true lake and the best possible."""
    found: dict[str, Any] = {}
    for goal in recipe.goals:
        world = world_of(recipe)()
        script = ScriptedPolicy(random_policy)
        rows = {"random": measure(recipe, goal, script, recipe.seed)}
        for name, settings in (("beam, true lake", recipe.planner), ("mpc, true lake", recipe.mpc)):
            policy = planning(recipe, TrueLake(world), settings)
            rows[name] = measure(recipe, goal, policy, recipe.seed)
        best = best_possible(world_of(recipe, goal)(), level_seeds(recipe, goal))
        found[goal] = {**rows, "best possible": {"success": best, "tokens": 0.0}}
    return found


def compare(recipe: PlanLakeRecipe, measured: list[dict[str, Any]], reference: dict[str, Any]) -> dict[str, Any]:
    """The tables, and in words whether the goal was met."""
    tables = []
    notes = []
    for goal in recipe.goals:
        table, said = planning_table(goal, [one["goals"][goal] for one in measured], reference[goal])
        tables.append(table)
        notes += said
    tables.append(steps_table([one["steps"] for one in measured]))
    return {"tables": [table.data() for table in tables], "notes": notes}
