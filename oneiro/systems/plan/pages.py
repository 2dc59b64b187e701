"""What planning and dreaming on the web start from: a policy from demonstrations, its play, a page model from the play.

The page model sees pages and actions; rewards are never shown to it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from oneiro.agents import reply as replies
from oneiro.agents.linear import LinearPolicy
from oneiro.agents.loading import AgentMetadata
from oneiro.agents.policies import Policy, ScriptedPolicy, mixture
from oneiro.agents.prompts import DialogueSettings
from oneiro.agents.rollout import Attempt, attempts, play
from oneiro.episode import Episode
from oneiro.predictors.webpage.dynamics import BrowsedPage
from oneiro.predictors.webpage.parquet import read_parquet, write_parquet
from oneiro.predictors.webpage.record import RecordedWeb
from oneiro.predictors.webpage.state import PageTransition
from oneiro.predictors.webpage.task import WebPagePredictor, WebPagePredictorConfig
from oneiro.rundir.run import Run
from oneiro.runtime import seeds
from oneiro.sampling.settings import SamplingSettings
from oneiro.systems.plan.page_models import PageModels, page_models
from oneiro.systems.plan.web_recipe import WebRecipe
from oneiro.systems.webrl.linear import LinearAgent
from oneiro.systems.webrl.trajectories import Step
from oneiro.worlds.choice import WorldChoice
from oneiro_web.env import WebConfig
from oneiro_web.plugin import WebWorld

Steps = list[PageTransition]


def config_of(recipe: WebRecipe) -> WebConfig:
    return WebConfig(**recipe.world_settings)


def world_of(recipe: WebRecipe) -> Callable[[], WebWorld]:
    """A factory of true web worlds."""
    config = config_of(recipe)
    return lambda: WebWorld(config)


def policy_dialogue(recipe: WebRecipe) -> DialogueSettings:
    """How the linear policy is asked: all past actions and the page."""
    return DialogueSettings(
        context="actions",
        compact=True,
        brief=True,
        think=False,
        world_model=False,
        max_turns=config_of(recipe).max_actions,
        actions_per_turn=1,
        format_penalty=0.0,
    )


def recorded(
    recipe: WebRecipe, planned: Sequence[Attempt], policy: Policy, seed: int
) -> tuple[list[Episode], list[Steps]]:
    """Attempts in the true web, with every step."""
    config, worlds = config_of(recipe), list[RecordedWeb]()

    def make_world() -> RecordedWeb:
        worlds.append(RecordedWeb(config))
        return worlds[-1]

    episodes = play(make_world, planned, policy, policy_dialogue(recipe), None, seed)
    return episodes, [list(world.steps) for world in worlds]


def browsed(steps: Sequence[PageTransition]) -> list[tuple[BrowsedPage, str]]:
    """An episode as who acted in it saw it: pages with what led to them, and the action on each."""
    found, past = [], tuple[str, ...]()
    for step in steps:
        found.append((BrowsedPage(step.site, step.objective, step.state, past, step.previous), step.action))
        past = (*past, step.action)
    return found


def as_replies(episodes: Sequence[Steps]) -> list[Step]:
    """Steps as the linear agent learns from them."""
    return [
        Step("\n".join([*state.past, state.text]), state.text, replies.write([action], think=False))
        for steps in episodes
        for state, action in browsed(steps)
    ]


def by_episode(cases: Sequence[PageTransition]) -> list[Steps]:
    return [list(steps) for _, steps in groupby(cases, key=lambda case: case.episode)]


def succeeded(steps: Sequence[PageTransition]) -> bool:
    return bool(steps) and steps[-1].reward >= 1.0


@dataclass
class WebLearner:
    """One of the repeats of a run: its own demonstrations, play and weights."""

    recipe: WebRecipe
    run: Run
    number: int

    @property
    def seed(self) -> int:
        return seeds.derive(self.recipe.seed, "repeat", self.number)

    def learn(self) -> None:
        """The stages that everything else starts from."""
        self.run.stage(f"policy-{self.number}", self.learn_policy)
        self.run.stage(f"play-{self.number}", self.play)
        self.run.stage(self.model_stage, self.learn_model)

    # The policy

    def learn_policy(self) -> dict[str, Any]:
        """SFT of a linear policy on the oracle's actions."""
        oracle = ScriptedPolicy(mixture(1.0), (1, 1), think=False, world_model=False)
        planned = attempts(self.recipe.play.demonstrations, 1, "train", seeds.derive(self.seed, "demonstrations"))
        _, shown = recorded(self.recipe, planned, oracle, self.seed)
        self.write(self.file("demonstrations"), shown)
        agent = LinearAgent()
        updates = self.imitate(agent, shown, f"policy-{self.number}")
        self.save_policy(self.checkpoint("policy"), agent)
        return {"updates": updates, "steps": sum(map(len, shown))}

    def imitate(self, agent: LinearAgent, episodes: Sequence[Steps], stage: str) -> int:
        settings, seed = self.recipe.policy, seeds.derive(self.seed, "imitate")
        self.run.rewind(stage, -1)
        return agent.imitate(
            as_replies(episodes), settings.epochs, settings.rate, seed, lambda step, v: self.run.log(stage, step, v)
        )

    def save_policy(self, folder: Path, agent: LinearAgent) -> None:
        """The policy as any agent: `oneiro eval agent --model` plays it."""
        agent.save(folder, self.metadata.model_dump(mode="json"))

    @property
    def metadata(self) -> AgentMetadata:
        return AgentMetadata(
            world=WorldChoice(name="web", **self.recipe.world_settings),
            dialogue=policy_dialogue(self.recipe),
            sampling=SamplingSettings(max_tokens=1, temperature=0.0),
            response_prefix="",
        )

    def policy(self, temperature: float = 0.0) -> LinearPolicy:
        return LinearPolicy.load(self.checkpoint("policy"), temperature)

    # Play

    def play(self) -> dict[str, Any]:
        """The policy, sampled, on training tasks."""
        settings = self.recipe.play
        planned = attempts(settings.episodes, 1, "train", seeds.derive(self.seed, "tasks"))
        policy = self.policy(settings.temperature)
        episodes, steps = recorded(self.recipe, planned, policy, seeds.derive(self.seed, "play"))
        self.write(self.file("play"), steps)
        success = sum(episode.success for episode in episodes) / len(episodes)
        return {"steps": sum(map(len, steps)), "success": success}

    def file(self, name: str) -> Path:
        return self.run.path / "data" / f"{name}-{self.number}.parquet"

    def write(self, path: Path, episodes: Sequence[Steps]) -> None:
        task = WebPagePredictor(WebPagePredictorConfig(brief=True))
        write_parquet(path, (step for steps in episodes for step in steps), task)

    def read(self, name: str) -> Steps:
        return read_parquet(self.file(name))

    # The page model

    @property
    def models(self) -> PageModels:
        return page_models(self.recipe, self.run, self.seed, self.metadata, self.policy)

    def learn_model(self) -> dict[str, Any]:
        """From demonstrations and play."""
        return self.models.learn(self.model_stage, self.steps, self.recipe.sft)

    @property
    def model_stage(self) -> str:
        return f"world-model-{self.number}"

    @property
    def steps(self) -> Steps:
        """The true steps that a repeat begins with."""
        return [*self.read("demonstrations"), *self.read("play")]

    def checkpoint(self, name: str) -> Path:
        return self.run.path / "checkpoints" / f"{name}-{self.number}"
