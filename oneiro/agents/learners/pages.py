"""What planning and dreaming on the web start from: a policy from demonstrations, its play, a page model from the play.

The page model sees pages and actions; rewards are never shown to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, Protocol

from oneiro.agents import reply as replies
from oneiro.agents.learners import Repeat
from oneiro.agents.learners.recipe import SLOTS, WebRecipe
from oneiro.agents.linear import LinearPolicy, fit
from oneiro.agents.loading import AgentMetadata, load_agent
from oneiro.agents.policies import Policy, ScriptedPolicy
from oneiro.agents.prompts import DialogueSettings
from oneiro.agents.rollout import Attempt, attempts, play
from oneiro.episode import Episode
from oneiro.learning import stages
from oneiro.learning.settings import SftSettings
from oneiro.models import language as languages
from oneiro.models.chat import ChatFormat
from oneiro.models.language import METADATA, LanguageModel, write_folder
from oneiro.rundir.run import Run
from oneiro.runtime import distributed, files, seeds
from oneiro.sampling.engine import Engine
from oneiro.sampling.settings import SamplingSettings
from oneiro.tasks.answering import true_rows
from oneiro.tasks.webpage.model import (
    TEXTS,
    BrowsedPage,
    NextPages,
    WebPageMetadata,
    WebPageModel,
    create_tiny,
    pages_in,
)
from oneiro.tasks.webpage.parquet import read_parquet, write_parquet
from oneiro.tasks.webpage.predictor import WebPagePredictor, WebPagePredictorConfig
from oneiro.tasks.webpage.record import Advance, Collection, RecordingWeb, recorded_web, steps_of
from oneiro.tasks.webpage.slot_model import SlotModel
from oneiro.tasks.webpage.state import PageTransition
from oneiro.worlds.baselines import mixture
from oneiro.worlds.registry import WorldChoice
from oneiro_web.env import WebConfig
from oneiro_web.plugin import WebWorld

Policies = Callable[[], LinearPolicy]


class PageModels(Protocol):
    """A kind of page model."""

    def learn(
        self, stage: str, cases: Sequence[PageTransition], settings: SftSettings, before: str | None = None
    ) -> dict[str, Any]:
        """Learn from steps; `before` names the stage whose model goes on learning. `slots` begins anew and has
        settings of its own.
        """
        ...

    def load(self, stage: str) -> NextPages:
        """The model that a stage trained."""
        ...


def page_models(recipe: WebRecipe, run: Run, seed: int, metadata: AgentMetadata, policy: Policies) -> PageModels:
    """As `model.name` says. `policy` proposes in searches of the model (`oneiro eval agent --plan`)."""
    if recipe.model.name == SLOTS:
        return SlotModels(recipe, run, seed, metadata, policy)
    return LanguageModels(recipe, run, seed)


@dataclass(frozen=True)
class SlotModels:
    """Fitted anew on all steps, in seconds. The folder holds the policy besides, for search."""

    recipe: WebRecipe
    run: Run
    seed: int
    metadata: AgentMetadata
    policy: Policies

    def learn(
        self, stage: str, cases: Sequence[PageTransition], settings: SftSettings, before: str | None = None
    ) -> dict[str, Any]:
        own = self.recipe.page_model
        model = SlotModel.fit(cases, own.epochs, own.rate, seeds.derive(self.seed, "page model"))

        def write(part: Path) -> None:
            model.save(part)
            self.policy().save(part)
            files.write_json(part / METADATA, self.metadata.model_dump(mode="json"))

        write_folder(self._folder(stage), write, {})
        return {"cases": len(cases), "outcomes": len(model.outcomes), "features": len(model.places)}

    def load(self, stage: str) -> SlotModel:
        return SlotModel.load(self._folder(stage))

    def _folder(self, stage: str) -> Path:
        return self.run.path / "checkpoints" / stage


@dataclass(frozen=True)
class LanguageModels:
    """A language model that writes what an action changes, and the next address."""

    recipe: WebRecipe
    run: Run
    seed: int

    def learn(
        self, stage: str, cases: Sequence[PageTransition], settings: SftSettings, before: str | None = None
    ) -> dict[str, Any]:
        """SFT on true changes."""
        # A stop ends the episode and changes no page.
        cases = [case for case in cases if not case.stops]
        language = self._weights(before) if before else self._base(cases)
        rows = true_rows(self._task, ChatFormat(language.tokenizer), cases)
        title, seed = stage.replace("-", " "), seeds.derive(self.seed, stage)
        return {
            "cases": len(cases),
            "steps": stages.supervise(self.run, stage, title, language, rows, [], settings, seed),
        }

    def load(self, stage: str) -> NextPages:
        engine = Engine(self._weights(stage), self.recipe.max_batch_size)
        return pages_in(self._task, WebPageModel(self._task, engine, self.recipe.sampling))

    @property
    def _task(self) -> WebPagePredictor:
        return WebPagePredictor(self.recipe.task)

    def _weights(self, stage: str) -> LanguageModel:
        return self._with_metadata(stages.weights_after(self.run, [stage], self.recipe.model))

    def _base(self, cases: Sequence[PageTransition]) -> LanguageModel:
        if self.recipe.model.name != "tiny":
            return self._with_metadata(languages.load(self.recipe.model))
        seed = seeds.derive(self.seed, "page model")
        return self._with_metadata(create_tiny(self.recipe.model, self._task, cases[:TEXTS], seed))

    def _with_metadata(self, language: LanguageModel) -> LanguageModel:
        """With what travels beside the weights."""
        return WebPageMetadata(task=self.recipe.task, sampling=self.recipe.sampling).write(language)


Steps = list[PageTransition]


def config_of(recipe: WebRecipe) -> WebConfig:
    return WebConfig(**recipe.world_settings)


def world_of(recipe: WebRecipe) -> Callable[[], WebWorld]:
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


def record_episodes(
    recipe: WebRecipe, planned: Sequence[Attempt], policy: Policy, seed: int
) -> tuple[list[Episode], list[Steps]]:
    """Attempts in the true web, with every step."""
    config, worlds = config_of(recipe), list[RecordingWeb]()

    def make_world() -> RecordingWeb:
        worlds.append(RecordingWeb(config))
        return worlds[-1]

    with distributed.local():  # each rank needs the steps of all worlds
        episodes = play(make_world, planned, policy, policy_dialogue(recipe), None, seed)
    return episodes, [list(world.steps) for world in worlds]


def browsed_pages(steps: Sequence[PageTransition]) -> list[tuple[BrowsedPage, str]]:
    """An episode as who acted in it saw it: pages with what led to them, and the action on each."""
    views, past = [], tuple[str, ...]()
    for step in steps:
        views.append((BrowsedPage(step.site, step.objective, step.state, past, step.previous), step.action))
        past = (*past, step.action)
    return views


def as_turns(episodes: Sequence[Steps]) -> list[dict[str, str]]:
    """Steps as the linear agent learns from them."""
    return [
        {
            "message": "\n".join([*state.past, state.text]),
            "state": state.text,
            "reply": replies.write([action], think=False),
        }
        for steps in episodes
        for state, action in browsed_pages(steps)
    ]


def by_episode(cases: Sequence[PageTransition]) -> list[Steps]:
    return [list(steps) for _, steps in groupby(cases, key=lambda case: case.episode)]


def is_success(steps: Sequence[PageTransition]) -> bool:
    return bool(steps) and steps[-1].reward >= 1.0


class WebLearner(Repeat):
    """A linear policy from demonstrations, its play on the web, and a page model from both."""

    recipe: WebRecipe
    stages: Sequence[str] = ("policy", "play", "world-model")

    def learn(self) -> None:
        self.run.stage(self.name_stage("policy"), self.learn_policy)
        self.run.stage(self.name_stage("play"), self.play)
        self.run.stage(self.model_stage, self.learn_model)

    # The policy

    def learn_policy(self) -> dict[str, Any]:
        """SFT of a linear policy on the oracle's actions."""
        oracle = ScriptedPolicy(mixture(1.0), (1, 1), think=False, world_model=False)
        planned = attempts(self.recipe.play.demonstrations, 1, "train", seeds.derive(self.seed, "demonstrations"))
        _, shown = record_episodes(self.recipe, planned, oracle, self.seed)
        self.write(self.file("demonstrations"), shown)
        policy = LinearPolicy()
        updates = self.imitate(policy, shown, self.name_stage("policy"))
        self.save_policy(self.checkpoint("policy"), policy)
        return {"updates": updates, "steps": sum(map(len, shown))}

    def imitate(self, policy: LinearPolicy, episodes: Sequence[Steps], stage: str) -> int:
        settings, seed = self.recipe.policy, seeds.derive(self.seed, "imitate")
        self.run.rewind(stage, -1)  # fitting begins anew where it was cut off: it takes seconds
        lessons = [(turn, 1.0) for turn in as_turns(episodes)]
        epochs = max(1, round(settings.epochs))
        result = fit(
            policy, lessons, epochs, settings.rate, seed, log=lambda epoch, values: self.run.log(stage, epoch, values)
        )
        return int(result["updates"])

    def improve(self) -> LinearPolicy:
        """The same data with its rewards and without a model: demonstrations and the successful play, imitated."""
        policy = LinearPolicy(0.0)
        self.imitate(
            policy, [steps for steps in by_episode(self.steps) if is_success(steps)], f"improved-{self.number}"
        )
        return policy

    def save_policy(self, folder: Path, policy: LinearPolicy) -> None:
        policy.save(folder, self.metadata.model_dump(mode="json"))

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
        settings = self.recipe.play
        planned = attempts(settings.episodes, 1, "train", seeds.derive(self.seed, "tasks"))
        policy = self.policy(settings.temperature)
        episodes, steps = record_episodes(self.recipe, planned, policy, seeds.derive(self.seed, "play"))
        self.write(self.file("play"), steps)
        success = sum(episode.success for episode in episodes) / len(episodes)
        return {"steps": sum(map(len, steps)), "success": success}

    def file(self, name: str) -> Path:
        return self.run.path / "data" / f"{self.name_stage(name)}.parquet"

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
        return self.name_stage("world-model")

    @property
    def steps(self) -> Steps:
        """The true steps that a repeat begins with."""
        return [*self.read("demonstrations"), *self.read("play")]

    def checkpoint(self, name: str) -> Path:
        return self.run.path / "checkpoints" / self.name_stage(name)


AT_ONCE = 16
"""Episodes that a model plays side by side."""


def collect_steps(collection: Collection, advance: Advance = lambda episodes: None) -> Iterator[PageTransition]:
    """What `oneiro data web` writes: every step of a script or of an agent, which plays as it was trained to."""
    if collection.policy in collection.scripts:
        yield from steps_of(collection, advance)
        return
    agent = load_agent(collection.policy, collection.world, collection.settings)
    assert agent.policy is not None
    for start in range(0, collection.episodes, AT_ONCE):
        count = min(AT_ONCE, collection.episodes - start)
        worlds = [recorded_web(agent.world, agent.world_settings) for _ in range(count)]
        numbers = range(start, start + count)
        planned = [
            Attempt(seeds.derive(collection.seed, "web page", number), 0, number - start, collection.world_split)
            for number in numbers
        ]
        own = seeds.derive(collection.seed, "web agent", start)
        play(iter(worlds).__next__, planned, agent.policy, agent.dialogue, agent.chat, own, agent.response_prefix)
        for world in worlds:
            yield from world.steps[: collection.steps or None]
            world.close()
        advance(count)
