"""A page model from play without rewards; then search inside it for the page that a task asks for.

    demonstrations  ->  linear policy  ->  its play  ->  page model (pages and actions only)  ->  search

The policy proposes, the page model predicts, and the task's own check of the address values predicted pages. Beside it:
the policy alone, its vote with the planner's tokens, the policy that also learned its play's successes, and the same
search in a memory of the play, in a shuffled model and in copies of the true sites.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property, partial
from typing import Any

import numpy as np

from oneiro.agents.learners.pages import (
    WebLearner,
    by_episode,
    config_of,
    policy_dialogue,
    recorded,
    succeeded,
    world_of,
)
from oneiro.agents.learners.recipe import WebRecipe
from oneiro.agents.linear import LinearPolicy
from oneiro.agents.planning.policy import PlanningPolicy, VotePolicy, dialogue, make_planner, traces
from oneiro.agents.planning.values import RuleValue
from oneiro.agents.planning.webpages import PolicyRanking, PolicyVotes, address_rule, observed, page_goal
from oneiro.agents.policies import Policy, ScriptedPolicy
from oneiro.agents.rollout import attempts_at, play
from oneiro.episode import Episode
from oneiro.learning import stages
from oneiro.rundir.run import Run
from oneiro.runtime import seeds
from oneiro.systems.plan.recipe import PlanWebRecipe
from oneiro.systems.plan.tables import difference, planning_table, steps_table, write_traces
from oneiro.systems.webrl.linear import LinearAgent
from oneiro.tasks.base import Cached
from oneiro.tasks.webpage.dynamics import BrowsedPage, NextPages, PageDynamics, TrueWeb, looked_up, shuffled
from oneiro.tasks.webpage.lookup import Lookup
from oneiro.tasks.webpage.slot_model import right_kind
from oneiro.worlds.baselines import random_policy
from oneiro.worlds.levels import distinct_seeds
from oneiro.worlds.web.world import WebWorld

__all__ = ["PlanWebRecipe", "run"]

POOL = 200
"""True pages that a shuffled model answers for."""


def run(recipe: PlanWebRecipe, run: Run) -> None:
    """The whole pipeline inside a run directory."""
    repeats = range(recipe.repeats)
    per_repeat = ("policy", "play", "world-model", "evaluate")
    run.plan([*(f"{name}-{number}" for number in repeats for name in per_repeat), "reference", "compare"])
    measured = [Repeat(recipe, run, number).all() for number in repeats]
    reference = run.stage("reference", partial(measure_reference, recipe))
    compared = run.stage("compare", lambda: compare(measured, reference))
    curves = {f"repeat {number}": f"policy-{number}" for number in repeats}
    stages.summarise(run, compared, [stages.Curve("Loss of the policy", "loss", curves)], compared["notes"])


def task_seeds(recipe: WebRecipe, count: int, first: int) -> list[int]:
    """Distinct tasks on contents that training never has."""
    return distinct_seeds(world_of(recipe), "eval", count, first)


class Repeat(WebLearner):
    """One of the repeats, measured on the same tasks as the others."""

    recipe: PlanWebRecipe

    def all(self) -> dict[str, Any]:
        """Every stage; the measurements."""
        self.learn()
        return self.run.stage(f"evaluate-{self.number}", self.evaluate)

    def evaluate(self) -> dict[str, Any]:
        """How true the model is, and what search in it reaches."""
        cases, model, policy = self.steps, self.models.load(self.model_stage), self.policy()
        pool = list(dict.fromkeys(case.state for case in cases))[:POOL]
        lookup = Lookup(cases, 0)
        true_web = TrueWeb(branching_world(self.recipe))
        inside = {
            "model": PageDynamics(model),
            "lookup": PageDynamics(looked_up(lookup)),
            "shuffled model": PageDynamics(shuffled(model, pool, self.seed)),
            "true web": true_web,
        }
        found = {}
        for name, dynamics in inside.items():
            found[f"beam, {name}"] = self.measure(planning(self.recipe, dynamics, policy), f"beam, {name}")
        true_web.close()
        votes = max(1, min(self.recipe.evaluation.vote_most, round(found["beam, model"]["tokens"])))
        found["policy"] = self.measure(policy, "policy")
        found["policy, vote"] = self.measure(VotePolicy(PolicyVotes(policy, votes), observed), "policy, vote")
        found["policy, and its successes"] = self.measure(self.improved(), "policy, and its successes")
        if self.number == 0:
            self.trace(planning(self.recipe, inside["model"], policy))
        return {"rows": found, "steps": self.accuracy(model, lookup)}

    def measure(self, policy: Policy, name: str) -> dict[str, Any]:
        found = measure(self.recipe, policy, self.seed)
        self.run.say(f"repeat {self.number}, {name}: {np.mean(found['success']):.1%}")
        return found

    def improved(self) -> LinearPolicy:
        """The same data with its rewards and without a model: demonstrations and the successful play, imitated."""
        shown = by_episode(self.steps)
        agent = LinearAgent()
        self.imitate(agent, [steps for steps in shown if succeeded(steps)], f"improved-{self.number}")
        return LinearPolicy(0.0, agent.weights)

    def accuracy(self, model: NextPages, lookup: Lookup) -> dict[str, Any]:
        """Steps of the policy on test tasks: is the next address, or the change of the page, the right one?"""
        policy = self.policy(self.recipe.play.temperature)
        _, played = recorded(self.recipe, attempts_at(self.tasks, 1, "eval"), policy, self.seed)
        found: dict[str, Any] = {}
        ways: dict[str, NextPages] = {
            "no change": lambda cases: [case.state for case in cases],
            "lookup": looked_up(lookup),
            "model": model,
        }
        asked = [case for steps in played for case in steps if not case.stops]
        for name, pages in ways.items():
            told = iter(pages(asked))
            judged = [[(case, right_kind(next(told), case)) for case in steps if not case.stops] for steps in played]
            found[name] = {
                "all": [_share([hit for _, hit in steps]) for steps in judged],
                "changed": [_share([hit for case, hit in steps if case.state != case.after]) for steps in judged],
            }
        return found

    @cached_property
    def tasks(self) -> list[int]:
        return task_seeds(self.recipe, self.recipe.evaluation.tasks, self.recipe.evaluation.first_seed)

    def trace(self, policy: PlanningPolicy[BrowsedPage]) -> None:
        """A few episodes with all that was considered, for the report."""
        episodes = played_by(self.recipe, policy, self.seed, self.tasks[: self.recipe.evaluation.traces])
        write_traces(self.run, traces(policy, episodes, "beam search in the page model"))


def _share(hits: list[bool]) -> float | None:
    """None where there is nothing to count."""
    return float(np.mean(hits)) if hits else None


def branching_world(recipe: PlanWebRecipe) -> Callable[[], WebWorld]:
    """A factory of true worlds in which a planner's look ahead does not run out of actions."""
    config = config_of(recipe)
    most = config.max_actions + recipe.planner.depth
    return lambda: WebWorld(config.model_copy(update={"max_actions": most + 1}))


def planning(recipe: PlanWebRecipe, inside: PageDynamics, policy: LinearPolicy) -> PlanningPolicy[BrowsedPage]:
    """A planner with a cache of its own: what it costs does not depend on who asked before."""
    planner = make_planner(Cached(inside), PolicyRanking(policy), RuleValue(address_rule), recipe.planner)
    return PlanningPolicy(planner, observed, page_goal, predicts=False)


def measure(recipe: PlanWebRecipe, policy: Policy, seed: int) -> dict[str, Any]:
    """Success on each test task, and tokens for a decision."""
    settings = recipe.evaluation
    episodes = played_by(recipe, policy, seed, task_seeds(recipe, settings.tasks, settings.first_seed))
    decisions = sum(len(episode.info["turns"]) for episode in episodes)
    spent = getattr(policy, "spent", None)
    tokens = spent.tokens if spent is not None else decisions if isinstance(policy, LinearPolicy) else 0
    return {"success": [float(episode.success) for episode in episodes], "tokens": tokens / max(1, decisions)}


def played_by(recipe: PlanWebRecipe, policy: Policy, seed: int, chosen: Sequence[int]) -> list[Episode]:
    asked = policy_dialogue(recipe)
    if not isinstance(policy, LinearPolicy):
        asked = dialogue(config_of(recipe).max_actions, predicts=not isinstance(policy, PlanningPolicy))
    return play(world_of(recipe), attempts_at(chosen, 1, "eval"), policy, asked, None, seeds.derive(seed, "test"))


def measure_reference(recipe: PlanWebRecipe) -> dict[str, Any]:
    """Chance below, and above the best possible."""
    rows = {"random": measure(recipe, ScriptedPolicy(random_policy), recipe.seed)}
    return {**rows, "best possible": {"success": [1.0] * len(rows["random"]["success"]), "tokens": 0.0}}


def compare(measured: list[dict[str, Any]], reference: dict[str, Any]) -> dict[str, Any]:
    """The tables, and in words what search in the model reaches of search in the truth."""
    rows = [one["rows"] for one in measured]
    table, notes = planning_table("Tasks on the web", rows, reference)
    notes += [note for other in ("policy", "policy, vote") for note in difference("beam, model", other, rows)]
    tables = [table, steps_table([one["steps"] for one in measured], "the policy's steps on unseen tasks")]
    return {"tables": [one.data() for one in tables], "notes": notes}
