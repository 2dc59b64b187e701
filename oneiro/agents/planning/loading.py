"""A planner as it comes from disk: a world model, whatever it predicts, and all that search in it needs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oneiro.agents.linear import LinearPolicy
from oneiro.agents.loading import AgentMetadata, LoadedAgent
from oneiro.agents.planning import webpages
from oneiro.agents.planning.agent_model import AgentModel
from oneiro.agents.planning.base import Planner, PlannerSettings, Propose
from oneiro.agents.planning.policy import PlanningPolicy, dialogue, make_planner
from oneiro.agents.planning.rules import every_action, grid_rule, observe_game, possible_commands, score_rule
from oneiro.agents.planning.values import RuleValue
from oneiro.models.chat import ChatFormat
from oneiro.models.language import LanguageModel, load
from oneiro.models.locate import METADATA
from oneiro.runtime.errors import OneiroError
from oneiro.runtime.files import read_json
from oneiro.sampling.engine import Engine
from oneiro.tasks.grid import GridMetadata, GridModel, GridPredictor, GridPredictorConfig
from oneiro.tasks.textgame.model import TextGameDynamics, TextGameMetadata, TextGameModel
from oneiro.tasks.textgame.predictor import TextGamePredictor
from oneiro.tasks.webpage.model import BrowsedPage, PageDynamics, WebPageMetadata, WebPageModel, pages_in
from oneiro.tasks.webpage.predictor import WebPagePredictor
from oneiro.tasks.webpage.slot_model import FILE as PAGE_MODEL
from oneiro.tasks.webpage.slot_model import SlotModel
from oneiro.worlds.registry import WorldChoice
from oneiro.worlds.textgame.crawl import own_rules


@dataclass
class LoadedPlanner(LoadedAgent):
    """Everything an evaluation needs."""

    policy: PlanningPolicy[Any]

    @classmethod
    def of(cls, choice: WorldChoice, policy: PlanningPolicy[Any]) -> LoadedPlanner:
        """In a world: a turn for each action that it allows."""
        make_world = choice.maker()
        form = dialogue(make_world().config.max_actions, policy.predicts)
        return cls(choice.name, choice.settings, make_world, form, policy)


def load_planner(
    model: str, world: str, settings: dict[str, Any], planner: PlannerSettings, max_batch_size: int = 256
) -> LoadedPlanner:
    """Search with the model at `model` in `world`: a predictor of grids, text games or pages, or an agent.

    The world has the settings that the model was trained with, and over them `settings`.
    """
    folder = Path(model).expanduser()
    if (folder / PAGE_MODEL).is_file():
        return _web(*_slot_model(folder, world, settings), planner)
    language = load(model)
    kind = language.metadata.get("kind")
    if kind == "web-page":
        return _web(*_page_predictor(language, model, world, settings, max_batch_size), planner)
    makers = {"grid": _grid, "text-game": _text_game, "agent": _agent}
    if kind not in makers:
        known = ", ".join([*makers, "web-page"])
        raise OneiroError(
            f"planning needs a world model: {model} is of kind '{kind}', not {known}; train one with plan/frozen-lake"
        )
    choice, search, observe = makers[kind](language, model, world, settings, planner, max_batch_size)
    predicts = kind != "text-game"  # states of text games are shown without what the game answered in words
    return LoadedPlanner.of(choice, PlanningPolicy(search, observe, predicts=predicts))


def _grid(
    language: LanguageModel, model: str, world: str, settings: dict[str, Any], planner: PlannerSettings, rows: int
) -> tuple[WorldChoice, Planner[Any], Any]:
    metadata = GridMetadata.read(language, model)
    assert metadata is not None
    choice = _trained_world(metadata.task.world, world, settings)
    task = GridPredictor(GridPredictorConfig(world=choice))
    dynamics = GridModel(task, Engine(language, rows), metadata.sampling)
    value = RuleValue(grid_rule(task.world))
    return choice, make_planner(dynamics, every_action(task.world), value, planner), _render


def _agent(
    language: LanguageModel, model: str, world: str, settings: dict[str, Any], planner: PlannerSettings, rows: int
) -> tuple[WorldChoice, Planner[Any], Any]:
    metadata = AgentMetadata.read(language, model)
    assert metadata is not None
    if not metadata.dialogue.world_model or not metadata.dialogue.think:
        raise OneiroError(
            f"the agent at {model} predicts no states, so nothing can be planned with it; take one with a world model"
        )
    choice = _trained_world(metadata.world, world, settings)
    scratch = choice.maker()()
    agent = AgentModel(
        Engine(language, rows),
        ChatFormat(language.tokenizer),
        metadata.sampling,
        metadata.dialogue,
        scratch,
        metadata.response_prefix,
        samples=2 * planner.proposals,
    )
    value = RuleValue(grid_rule(scratch))
    return choice, make_planner(agent, agent.propose, value, planner), _render


def _text_game(
    language: LanguageModel, model: str, world: str, settings: dict[str, Any], planner: PlannerSettings, rows: int
) -> tuple[WorldChoice, Planner[Any], Any]:
    metadata = TextGameMetadata.read(language, model)
    assert metadata is not None
    if metadata.task.transition != "full":
        raise OneiroError(f"the model at {model} was not trained to predict whole steps of text games")
    if world.partition(":")[0] != "textgame":
        raise OneiroError(f"the model at {model} predicts text games; give --world textgame:NAME, not {world}")
    task = TextGamePredictor(metadata.task, rules=own_rules())
    dynamics = TextGameDynamics(task, TextGameModel(task, Engine(language, rows), metadata.sampling))
    search = make_planner(dynamics, possible_commands(), RuleValue(score_rule), planner)
    return WorldChoice(name=world, **settings), search, observe_game


def _slot_model(
    folder: Path, world: str, settings: dict[str, Any]
) -> tuple[WorldChoice, PageDynamics, Propose[BrowsedPage]]:
    """A page model of `plan/web`, with the linear policy that lies beside it."""
    metadata = AgentMetadata.model_validate(read_json(folder / METADATA))
    choice = _trained_world(metadata.world, world, settings)
    return choice, PageDynamics(SlotModel.load(folder)), webpages.PolicyRanking(LinearPolicy.load(folder))


def _page_predictor(
    language: LanguageModel, model: str, world: str, settings: dict[str, Any], rows: int
) -> tuple[WorldChoice, PageDynamics, Propose[BrowsedPage]]:
    """A language model that predicts pages. It has no policy: what shares words with the objective is tried first."""
    metadata = WebPageMetadata.read(language, model)
    assert metadata is not None
    if world.partition(":")[0] != "web":
        raise OneiroError(f"the model at {model} predicts web pages; give --world web, not {world}")
    task = WebPagePredictor(metadata.task.model_copy(update={"retrieve": 0}))
    pages = pages_in(task, WebPageModel(task, Engine(language, rows), metadata.sampling))
    return WorldChoice(name=world, **settings), PageDynamics(pages), webpages.objective_first


def _web(
    choice: WorldChoice, dynamics: PageDynamics, propose: Propose[BrowsedPage], planner: PlannerSettings
) -> LoadedPlanner:
    if choice.maker()().config.view != "accessibility":
        raise OneiroError("pages are predicted as accessibility trees: leave out the view html")
    search = make_planner(dynamics, propose, RuleValue(webpages.address_rule), planner)
    policy = PlanningPolicy(search, webpages.observe, webpages.page_goal, predicts=False)
    return LoadedPlanner.of(choice, policy)


def _trained_world(taught: WorldChoice, world: str, settings: dict[str, Any]) -> WorldChoice:
    """The world as the model knows it; another variant of it in the model's view."""
    if taught.name == world:
        return WorldChoice(name=world, **{**taught.settings, **settings})
    if taught.name.partition(":")[0] != world.partition(":")[0]:
        raise OneiroError(
            f"the model was trained on {taught.name} and cannot plan in {world}; give --world {taught.name}"
        )
    return WorldChoice(name=world, **settings).in_view_of(taught)


def _render(world: Any) -> str:
    return str(world.render())
