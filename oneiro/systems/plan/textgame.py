"""Planning in text games: a predictor of whole steps, a policy from a few demonstrations, and search that uses both.

    data  ->  predictor (SFT, RL where asked for)  ->  policy (SFT on demonstrations)  ->  search

The policy proposes commands in true and predicted states, the predictor says what they lead to, the predicted score is
the value. Beside it: the policy alone, its vote with the planner's tokens, search in a memory of the training steps, in
a shuffled predictor and in the true game.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property, partial
from typing import Any, ClassVar

import numpy as np

from oneiro.agents.planning.base import PolicyProposals, Root
from oneiro.agents.planning.policy import PlanningPolicy, VotePolicy, dialogue, make_planner, traces
from oneiro.agents.planning.rules import observe_game, score_rule
from oneiro.agents.planning.values import RuleValue
from oneiro.agents.policies import Policy, ScriptedPolicy
from oneiro.agents.rollout import attempts_at, play
from oneiro.episode import Episode, Tokens
from oneiro.learning import stages
from oneiro.models.chat import ChatFormat
from oneiro.rundir.run import Run
from oneiro.runtime import seeds
from oneiro.sampling.engine import Engine
from oneiro.systems.plan.pipeline import Planning
from oneiro.systems.plan.recipe import PlanTextGameRecipe
from oneiro.tasks.base import Cached, Dynamics, Shuffled
from oneiro.tasks.task import RL, SFT
from oneiro.tasks.textgame.data import open_data
from oneiro.tasks.textgame.model import TextGameDynamics
from oneiro.tasks.textgame.rollout import true_predictor
from oneiro.tasks.textgame.task import TextGameTask
from oneiro.worlds.base import World
from oneiro.worlds.baselines import random_policy
from oneiro.worlds.levels import distinct_seeds
from oneiro.worlds.registry import make
from oneiro.worlds.textgame.state import Situation, Transition

POLICY, TITLE = "policy", "text games"
POOL = 500
"""True states that a shuffled predictor answers for."""


class TextGamePlanning(Planning):
    """One run: search in the predictor of whole steps that RLVR trains."""

    recipe: PlanTextGameRecipe
    curve: ClassVar = ("Loss of the predictor", SFT)

    def __init__(self, recipe: PlanTextGameRecipe, run: Run, number: int) -> None:
        super().__init__(recipe, run, number)
        self.task = TextGameTask(recipe, run)
        self.stages = [*self.task.first_stages, *([RL] if recipe.rl.steps else []), POLICY]

    def name_stage(self, stage: str) -> str:
        return stage  # there is one repeat

    def learn(self) -> None:
        self.task.prepare()
        start = self.task.supervise()
        if self.recipe.rl.steps:
            self.run.stage(RL, lambda: self.task.reinforce(start))
        self.run.stage(POLICY, self.learn_policy)

    # The policy

    @cached_property
    def demonstrations(self) -> list[Transition]:
        """The steps on winning plans of the first training levels of each game."""
        numbers, train = range(self.recipe.demonstrations), open_data(self.recipe.data, self.run).train
        levels = {f"{game}/train-{number}/" for game in self.recipe.data.trained for number in numbers}
        rows = (train[number] for number, row in enumerate(train.rows) if row.on_plan)
        return [row for row in rows if f"{row.id.rpartition('/')[0]}/" in levels]

    def prompt(self, chat: ChatFormat, state: Situation) -> Tokens:
        """The predictor's own words for a state, without a command."""
        return chat.opening(self.task.predictor.prompt(replace(_without_command(state), action=""))[0]["content"])

    def learn_policy(self) -> dict[str, Any]:
        # The weights that the predictor started from: they know its tokenizer.
        language = stages.base_weights(self.run, self.recipe.model)
        chat = ChatFormat(language.tokenizer)
        rows = [chat.answer_row(self.prompt(chat, row), row.action) for row in self.demonstrations]
        seed = seeds.derive(self.recipe.seed, POLICY)
        steps = stages.supervise(self.run, POLICY, POLICY, language, rows, [], self.recipe.policy, seed)
        return {"rows": len(rows), "steps": steps}

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

    def evaluate(self) -> dict[str, Any]:
        task, stage = self.task.predictor, RL if self.recipe.rl.steps else SFT
        model = self.task.answering(Engine(self.task.model(stage), self.recipe.max_batch_size))
        lookup = task.baselines(self.task.data.train)["lookup"]
        learned = Cached(TextGameDynamics(task, model))
        pool = [_without_command(row) for row in self._some_states()]
        inside: dict[str, Dynamics[Situation]] = {
            "model": learned,
            "shuffled model": Shuffled(learned, pool, self.recipe.seed),
            "lookup": Cached(TextGameDynamics(task, lambda cases: [lookup(case) for case in cases])),  # type: ignore[arg-type]
            "true game": Cached(TextGameDynamics(task, true_predictor(task))),
        }
        policies = {f"beam, {name}": self.planner(dynamics) for name, dynamics in inside.items()}
        rows = {name: self.measure(policy) for name, policy in policies.items()}
        rows["policy"] = self.measure(VotePolicy(self.proposals(1), observe_game))
        votes = self.votes(rows["beam, model"]["tokens"], rows["policy"]["tokens"], self.recipe.play.vote_most)
        rows["policy, vote"] = self.measure(VotePolicy(self.proposals(votes), observe_game))
        for name, row in rows.items():
            self.run.say(f"{name}: success {np.mean(row['success']):.1%}, score {np.mean(row['score']):.1%}")
        searching = policies["beam, model"]
        episodes = self.play_levels(searching, self.recipe.play.traces)
        self.write_traces(traces(searching, episodes, "beam search in the predictor"))
        return {"rows": {TITLE: rows}}

    def reference(self) -> dict[str, Any]:
        """Chance below, and above the best possible."""
        best = {"success": self.best_possible(), "tokens": 0.0}
        return {TITLE: {"random": self.measure(ScriptedPolicy(random_policy)), "best possible": best}}

    def _some_states(self) -> list[Transition]:
        train = self.task.data.train
        step = max(1, len(train) // POOL)
        return [train[number] for number in range(0, len(train), step)]

    def planner(self, dynamics: Dynamics[Situation]) -> PlanningPolicy[Situation]:
        proposals, value = self.proposals(self.recipe.samples), RuleValue(score_rule)
        planner = make_planner(Cached(dynamics), proposals, value, self.recipe.planner)
        return PlanningPolicy(planner, observe_game, predicts=False)

    def measure(self, policy: Policy) -> dict[str, Any]:
        """Besides success, the share of the highest score."""
        episodes = self.play_levels(policy)
        return {**self.row(policy, episodes), "score": [sum(episode.terms["world"]) for episode in episodes]}

    def play_levels(self, policy: Policy, most: int | None = None) -> list[Episode]:
        predicts = not isinstance(policy, PlanningPolicy)  # votes and scripts write the states' places, if only blank
        form, episodes = dialogue(self.recipe.play.max_actions, predicts), list[Episode]()
        for game, maker in self.makers.items():
            planned = attempts_at(self.levels[game][:most], 1, "eval")
            episodes += play(maker, planned, policy, form, None, seeds.derive(self.recipe.seed, game))
        return episodes

    def best_possible(self) -> list[float]:
        ceilings = []
        for game, maker in self.makers.items():
            world = maker()
            for seed in self.levels[game]:
                world.reset(seed=seed, options={"split": "eval"})
                ceilings.append(world.ceiling() or 0.0)
        return ceilings


def _without_command(state: Situation) -> Situation:
    """What a predictor may know of a recorded step."""
    return Situation(
        game=state.game,
        task=state.task,
        state=state.state,
        score=state.score,
        action="",
        uuid_base=state.uuid_base,
    )
