"""Text games: a predictor of whole steps, a policy from a few demonstrations, and search that uses both.

    data  ->  predictor (SFT, RL where asked for)  ->  policy (SFT on demonstrations)  ->  search

The policy proposes commands in true and predicted states, the predictor says what they lead to, the predicted score is
the value. Beside it: the policy alone, its vote with the planner's tokens, search in a memory of the training steps, in
a shuffled predictor and in the true game.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from oneiro.agents.planning.base import Root
from oneiro.agents.planning.policy import PlanningPolicy, VotePolicy, dialogue, make_planner, traces
from oneiro.agents.planning.proposals import PolicyProposals
from oneiro.agents.planning.textgames import observed, score_rule
from oneiro.agents.planning.values import RuleValue
from oneiro.agents.policies import Policy, ScriptedPolicy
from oneiro.agents.rollout import attempts_at, play
from oneiro.episode import Episode, Tokens
from oneiro.learning import stages
from oneiro.models.chat import ChatFormat
from oneiro.models.language import LanguageModel
from oneiro.rundir.run import Run
from oneiro.runtime import seeds
from oneiro.sampling.engine import Engine
from oneiro.systems.plan.recipe import PlanTextGameRecipe
from oneiro.systems.plan.tables import planning_table, write_traces
from oneiro.tasks.base import Cached, Dynamics, Shuffled
from oneiro.tasks.task import RL
from oneiro.tasks.textgame.dynamics import TextGameDynamics
from oneiro.tasks.textgame.rollout import true_predictor
from oneiro.tasks.textgame.task import TextGameTask
from oneiro.worlds.base import World
from oneiro.worlds.baselines import random_policy
from oneiro.worlds.levels import distinct_seeds
from oneiro.worlds.registry import make
from oneiro.worlds.textgame.state import Situation, Transition

__all__ = ["PlanTextGameRecipe", "run"]

POLICY = "policy"
POOL = 500
"""True states that a shuffled predictor answers for."""


def run(recipe: PlanTextGameRecipe, run: Run) -> None:
    """The whole pipeline inside a run directory."""
    PlanTextGame(recipe, run).all()


class PlanTextGame:
    """One run."""

    def __init__(self, recipe: PlanTextGameRecipe, run: Run) -> None:
        self.recipe, self.run = recipe, run
        self.task = TextGameTask(recipe, run)

    def all(self) -> None:
        rl = [RL] if self.recipe.rl.steps else []
        self.run.plan([*self.task.first_stages, *rl, POLICY, "evaluate", "compare"])
        self.task.prepare()
        start = self.task.supervise()
        if rl:
            self.run.stage(RL, lambda: self.task.reinforce(start))
        self.run.stage(POLICY, self.learn_policy)
        measured = self.run.stage("evaluate", partial(self.evaluate, rl[0] if rl else start))
        compared = self.run.stage("compare", partial(self.compare, measured))
        curves = [stages.Curve("Loss of the predictor", "loss", {"SFT": "sft"})]
        stages.summarise(self.run, compared, curves, compared["notes"])

    # The policy

    @cached_property
    def demonstrations(self) -> list[Transition]:
        """The steps on winning plans of the first training levels of each game."""
        levels = {f"{game}/train-{number}/" for game in self.recipe.data.trained for number in self._numbers}
        train = self.task.data.train
        rows = (train[number] for number, row in enumerate(train.rows) if row.on_plan)
        return [row for row in rows if f"{row.id.rpartition('/')[0]}/" in levels]

    @property
    def _numbers(self) -> range:
        return range(self.recipe.demonstrations)

    def prompt(self, chat: ChatFormat, state: Situation) -> Tokens:
        """The predictor's own words for a state, without a command."""
        return chat.opening(self.task.predictor.prompt(replace(_asked(state), action=""))[0]["content"])

    def learn_policy(self) -> dict[str, Any]:
        language = self._tiny_policy()
        chat = ChatFormat(language.tokenizer)
        rows = [chat.answered(self.prompt(chat, row), row.action) for row in self.demonstrations]
        seed = seeds.derive(self.recipe.seed, POLICY)
        steps = stages.supervise(self.run, POLICY, POLICY, language, rows, [], self.recipe.policy, seed)
        return {"rows": len(rows), "steps": steps}

    def _tiny_policy(self) -> LanguageModel:
        """The same weights that the predictor started from: they know its tokenizer."""
        return stages.base_weights(self.run, self.recipe.model)

    def proposals(self, samples: int) -> PolicyProposals[Situation]:
        chat = ChatFormat(self._policy.language.tokenizer)

        def prompt(root: Root[Situation]) -> Tokens:
            return self.prompt(chat, root.state)

        return PolicyProposals(
            self._policy, self.recipe.policy_sampling, samples, prompt, lambda text: text.strip() or None
        )

    @cached_property
    def _policy(self) -> Engine:
        return Engine(stages.weights_after(self.run, [POLICY], self.recipe.model), self.recipe.max_batch_size)

    # Measurements

    @cached_property
    def makers(self) -> dict[str, Callable[[], World]]:
        most = self.recipe.play.max_actions
        return {
            game: partial(make, f"textgame:{game}", max_actions=most, view="text") for game in self.recipe.data.trained
        }

    @cached_property
    def levels(self) -> dict[str, list[int]]:
        """Distinct evaluation levels, game by game, as many of each."""
        settings, each = self.recipe.play, max(1, self.recipe.play.levels // len(self.makers))
        return {game: distinct_seeds(maker, "eval", each, settings.first_seed) for game, maker in self.makers.items()}

    def evaluate(self, stage: str | None) -> dict[str, Any]:
        task = self.task.predictor
        model = self.task.answering(Engine(self.task.model(stage), self.recipe.max_batch_size))
        lookup = task.baselines(self.task.data.train)["lookup"]
        learned = Cached(TextGameDynamics(task, model))
        pool = [_asked(row) for row in self._some_states()]
        inside: dict[str, Dynamics[Situation]] = {
            "model": learned,
            "shuffled model": Shuffled(learned, pool, self.recipe.seed),
            "lookup": Cached(TextGameDynamics(task, lambda cases: [lookup(case) for case in cases])),  # type: ignore[arg-type]
            "true game": Cached(TextGameDynamics(task, true_predictor(task))),
        }
        found: dict[str, Any] = {"random": self.measure(ScriptedPolicy(random_policy))}
        policies = {f"beam, {name}": self.planning(dynamics) for name, dynamics in inside.items()}
        for name, policy in policies.items():
            found[name] = self.measure(policy)
            self.say(name, found[name])
        alone = self.measure(VotePolicy(self.proposals(1), observed))
        budget = found["beam, model"]["tokens"] / max(1.0, alone["tokens"])
        votes = max(1, min(self.recipe.play.vote_most, round(budget)))
        found["policy"] = alone
        found["policy, vote"] = self.measure(VotePolicy(self.proposals(votes), observed))
        for name in ("policy", "policy, vote"):
            self.say(name, found[name])
        found["best possible"] = {"success": self.best_possible(), "tokens": 0.0}
        self.trace(policies["beam, model"])
        return found

    def _some_states(self) -> list[Transition]:
        train = self.task.data.train
        step = max(1, len(train) // POOL)
        return [train[number] for number in range(0, len(train), step)]

    def planning(self, dynamics: Dynamics[Situation]) -> PlanningPolicy[Situation]:
        proposals, value = self.proposals(self.recipe.samples), RuleValue(score_rule)
        planner = make_planner(Cached(dynamics), proposals, value, self.recipe.planner)
        return PlanningPolicy(planner, observed, predicts=False)

    def measure(self, policy: Policy) -> dict[str, Any]:
        """Success on each level, the share of the highest score, and tokens for a decision."""
        episodes = self.played(policy, None)
        decisions = sum(len(episode.info["turns"]) for episode in episodes)
        spent = getattr(policy, "spent", None)
        return {
            "success": [float(episode.success) for episode in episodes],
            "score": [sum(episode.terms["world"]) for episode in episodes],
            "tokens": spent.tokens / max(1, decisions) if spent is not None else 0.0,
        }

    def played(self, policy: Policy, most: int | None) -> list[Episode]:
        predicts = not isinstance(policy, PlanningPolicy)  # votes and scripts write the states' places, if only blank
        asked, found = dialogue(self.recipe.play.max_actions, predicts), list[Episode]()
        for game, maker in self.makers.items():
            planned = attempts_at(self.levels[game][:most], 1, "eval")
            found += play(maker, planned, policy, asked, None, seeds.derive(self.recipe.seed, game))
        return found

    def best_possible(self) -> list[float]:
        found = []
        for game, maker in self.makers.items():
            world = maker()
            for seed in self.levels[game]:
                world.reset(seed=seed, options={"split": "eval"})
                found.append(world.ceiling() or 0.0)
        return found

    def trace(self, policy: PlanningPolicy[Situation]) -> None:
        episodes = self.played(policy, self.recipe.play.traces)
        write_traces(self.run, traces(policy, episodes, "beam search in the predictor"))

    def say(self, name: str, row: dict[str, Any]) -> None:
        self.run.say(f"{name}: success {np.mean(row['success']):.1%}, score {np.mean(row['score']):.1%}")

    def compare(self, measured: dict[str, Any]) -> dict[str, Any]:
        table, notes = planning_table("text games", [], measured)
        return {"tables": [table.data()], "notes": notes}


def _asked(state: Situation) -> Situation:
    """What a predictor may know of a recorded step."""
    return Situation(
        game=state.game,
        task=state.task,
        state=state.state,
        score=state.score,
        action="",
        uuid_base=state.uuid_base,
    )
