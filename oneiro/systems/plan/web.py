"""Planning on the web: a page model from play without rewards; then search inside it for the page that a task asks for.

    demonstrations  ->  linear policy  ->  its play  ->  page model (pages and actions only)  ->  search

The policy that also learned its play's successes proposes, the page model predicts, and a value learned from the same
play and rewards judges predicted pages: nobody is told where a task ends, unless `value: address` says so. Beside it:
the policies alone, a vote with the planner's tokens, and the same search in a model in which nothing changes, in a
memory of the play, in a shuffled model and in copies of the true sites.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from oneiro.agents.learners.pages import (
    WebLearner,
    browsed_pages,
    by_episode,
    config_of,
    is_success,
    policy_dialogue,
    record_episodes,
    world_of,
)
from oneiro.agents.linear import LinearPolicy
from oneiro.agents.planning.page_values import PageValue, lessons_of
from oneiro.agents.planning.policy import PlanningPolicy, VotePolicy, dialogue, make_planner, traces
from oneiro.agents.planning.values import RuleValue
from oneiro.agents.planning.webpages import PolicyRanking, PolicyVotes, address_rule, observe, page_goal
from oneiro.agents.policies import Policy, ScriptedPolicy
from oneiro.agents.rollout import attempts_at, play
from oneiro.episode import Episode
from oneiro.runtime import seeds
from oneiro.systems.plan.pipeline import Planning
from oneiro.systems.plan.recipe import PlanWebRecipe
from oneiro.tasks.base import Cached
from oneiro.tasks.webpage.lookup import PageLookup
from oneiro.tasks.webpage.model import BrowsedPage, NextPages, PageDynamics, TrueWeb, look_up_pages, shuffle_pages
from oneiro.tasks.webpage.slot_model import right_kind
from oneiro.tasks.webpage.state import PageSituation, PageState
from oneiro.worlds.baselines import random_policy
from oneiro.worlds.levels import distinct_seeds
from oneiro_web.plugin import WebWorld

POOL = 200
"""True pages that a shuffled model answers for."""
TITLE = "Tasks on the web"


class WebPlanning(WebLearner, Planning):
    """One of the repeats, measured on the same tasks as the others."""

    recipe: PlanWebRecipe
    curve: ClassVar = ("Loss of the policy", "policy")
    steps_title: ClassVar[str] = "the policy's steps on unseen tasks"
    beside: ClassVar = (
        *("policy", "policy, and its successes", "policy, vote"),
        *("beam, no change", "beam, shuffled model", "beam, lookup"),
    )

    def evaluate(self) -> dict[str, Any]:
        """How true the model is, and what search in it reaches."""
        cases, model, improved = self.steps, self.models.load(self.model_stage), self.improve()
        pool = list(dict.fromkeys(case.state for case in cases))[:POOL]
        lookup, true_web = PageLookup(cases, 0), TrueWeb(self.branching_world)
        inside = {
            "model": PageDynamics(model),
            "no change": PageDynamics(predict_no_change),
            "lookup": PageDynamics(look_up_pages(lookup)),
            "shuffled model": PageDynamics(shuffle_pages(model, pool, self.seed)),
            "true web": true_web,
        }
        rows = {f"beam, {name}": self.measure(self.planner(one, improved)) for name, one in inside.items()}
        true_web.close()
        votes = self.votes(rows["beam, model"]["tokens"], 1.0, self.recipe.evaluation.vote_most)
        rows["policy"] = self.measure(self.policy())
        rows["policy, and its successes"] = self.measure(improved)
        rows["policy, vote"] = self.measure(VotePolicy(PolicyVotes(improved, votes), observe))
        for name, row in rows.items():
            self.run.say(f"repeat {self.number}, {name}: {np.mean(row['success']):.1%}")
        if self.number == 0:
            searching = self.planner(inside["model"], improved)
            episodes = self.play_tasks(searching, self.seed, self.tasks[: self.recipe.evaluation.traces])
            self.write_traces(traces(searching, episodes, "beam search in the page model"))
        return {"rows": {TITLE: rows}, "steps": self.accuracy(model, lookup)}

    def reference(self) -> dict[str, Any]:
        """Chance below, and above the best possible."""
        chance = self.measure(ScriptedPolicy(random_policy), self.recipe.seed)
        best = {"success": [1.0] * len(chance["success"]), "tokens": 0.0}
        return {TITLE: {"random": chance, "best possible": best}}

    def accuracy(self, model: NextPages, lookup: PageLookup) -> dict[str, Any]:
        """Steps of the policy on test tasks: is the next address, or the change of the page, the right one?"""
        policy = self.policy(self.recipe.play.temperature)
        _, played = record_episodes(self.recipe, attempts_at(self.tasks, 1, "eval"), policy, self.seed)
        shares: dict[str, Any] = {}
        ways: dict[str, NextPages] = {
            "no change": predict_no_change,
            "lookup": look_up_pages(lookup),
            "model": model,
        }
        situations = [case for steps in played for case in steps if not case.stops]
        for name, pages in ways.items():
            predicted = iter(pages(situations))
            judged = [
                [(case, right_kind(next(predicted), case)) for case in steps if not case.stops] for steps in played
            ]
            shares[name] = {
                "all": [_share([hit for _, hit in steps]) for steps in judged],
                "changed": [_share([hit for case, hit in steps if case.state != case.after]) for steps in judged],
            }
        return shares

    # What is played

    @cached_property
    def tasks(self) -> list[int]:
        """Distinct tasks on contents that training never has."""
        settings = self.recipe.evaluation
        return distinct_seeds(world_of(self.recipe), "eval", settings.tasks, settings.first_seed)

    def branching_world(self) -> WebWorld:
        """A true world in which a planner's look ahead does not run out of actions."""
        config = config_of(self.recipe)
        most = config.max_actions + self.recipe.planner.depth + 1
        return WebWorld(config.model_copy(update={"max_actions": most}))

    def planner(self, inside: PageDynamics, policy: LinearPolicy) -> PlanningPolicy[BrowsedPage]:
        """A planner with a cache of its own: what it costs does not depend on who asked before."""
        knows_address = self.recipe.value == "address"
        value = RuleValue(address_rule) if knows_address else self.value
        planner = make_planner(Cached(inside), PolicyRanking(policy, self.recipe.least), value, self.recipe.planner)
        return PlanningPolicy(planner, observe, page_goal if knows_address else lambda world: None, predicts=False)

    @cached_property
    def value(self) -> PageValue:
        """From the demonstrations and the play with its rewards, which the improved policy has too."""
        episodes = by_episode(self.steps)
        lessons = [one for steps in episodes for one in lessons_of(browsed_pages(steps), is_success(steps))]
        return PageValue(lessons, seeds.derive(self.seed, "value"))

    def measure(self, policy: Policy, seed: int | None = None) -> dict[str, Any]:
        row = self.row(policy, self.play_tasks(policy, self.seed if seed is None else seed, self.tasks))
        return {**row, "tokens": 1.0} if isinstance(policy, LinearPolicy) else row  # a reply counts as one token

    def play_tasks(self, policy: Policy, seed: int, tasks: Sequence[int]) -> list[Episode]:
        form = policy_dialogue(self.recipe)
        if not isinstance(policy, LinearPolicy):
            form = dialogue(config_of(self.recipe).max_actions, predicts=not isinstance(policy, PlanningPolicy))
        planned = attempts_at(tasks, 1, "eval")
        return play(world_of(self.recipe), planned, policy, form, None, seeds.derive(seed, "test"))


def predict_no_change(cases: Sequence[PageSituation]) -> list[PageState | None]:
    """A model in which nothing ever changes: what search and value add without one."""
    return [case.state for case in cases]


def _share(hits: list[bool]) -> float | None:
    """None where there is nothing to count."""
    return float(np.mean(hits)) if hits else None
