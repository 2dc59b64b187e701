"""How each kind of world model is loaded and put beside its true world: one function a kind."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Mapping
from typing import Any

from oneiro.agents.loading import AgentMetadata
from oneiro.agents.planning.agent_model import SAMPLES, ImaginingAgent
from oneiro.agents.planning.base import EveryAction, Planner, PlannerSettings, Root
from oneiro.agents.planning.policy import PlanningPolicy, make_planner
from oneiro.agents.planning.rules import (
    every_action,
    grid_rule,
    observe_game,
    possible_commands,
    room_rule,
    score_rule,
)
from oneiro.agents.planning.values import RuleValue
from oneiro.board.play import ARROWS, Option, Playable, PlayTable
from oneiro.models import language as languages
from oneiro.runtime.errors import OneiroError
from oneiro.sampling.engine import Engine
from oneiro.tasks.base import Cached, Malformed
from oneiro.tasks.grid import GridMetadata, GridModel, GridPredictor
from oneiro.tasks.rules.physics import PhysicsPredictor, PhysicsSituation
from oneiro.tasks.rules.physics_dynamics import PhysicsDynamics, observe, read_tiles
from oneiro.tasks.rules.physics_task import PhysicsMetadata, PhysicsModel
from oneiro.tasks.rules.rulebook.evaluation import RulebookDynamics
from oneiro.tasks.rules.rulebook.predictor import RulebookPredictor
from oneiro.tasks.rules.rulebook.task import RulebookMetadata, RulebookModel
from oneiro.tasks.textgame.model import TextGameDynamics, TextGameMetadata, TextGameModel
from oneiro.tasks.textgame.predictor import TextGamePredictor
from oneiro.worlds.base import World
from oneiro.worlds.registry import make
from oneiro.worlds.rules.physics import WORDS
from oneiro.worlds.rules.rulebook.world import RulebookWorld
from oneiro.worlds.textgame.crawl import own_rules
from oneiro.worlds.textgame.games import GAMES
from oneiro.worlds.textgame.world import TextGame

ROWS = 64  # predictions made at once
ALIKE_DB = 25.0  # PSNR of two frames that show the same scene: without its arm, a frame of 64 pixels has 21
PUSHED = ("x", "y", "z", "gripper")  # the entries of the arm's action
LOADED = re.compile(r"<link\b[^>]*>|<script\b.*?</script>", re.DOTALL | re.IGNORECASE)
UNTOUCHABLE = "a, button, input, select, textarea { pointer-events: none; }"  # one acts beside the frame, not in it


def open_table(model: Playable) -> PlayTable:
    """Load the weights, prompted as they were trained."""
    makers = {
        "agent": _agent,
        "grid": _grid,
        "text-game": _textgame,
        "web-page": _pages,
        "page-model": _pages,
        "physics": _physics,
        "rulebook": _rulebook,
        "video": _video,
    }
    return makers[model.kind](model)


def _words(world: World) -> Mapping[str, str]:
    return {action: action for action in world.actions or ()}


# Grids and text games load without the web sandbox, so the loader of all planners, which needs it, is not used here,
# and what is imported for pages and for the arm is imported when they are opened.


def _grid(model: Playable) -> PlayTable:
    language = languages.load(str(model.weights))
    metadata = GridMetadata.model_validate(language.metadata)
    task, maker = GridPredictor(metadata.task), metadata.task.world.maker()
    dynamics = Cached(GridModel(task, Engine(language, ROWS), metadata.sampling))
    table = PlayTable(dynamics, lambda game: maker(), lambda world: world.render(), _words)
    with contextlib.suppress(OneiroError):  # worlds without a rule of what states are worth: nothing to search for
        value = RuleValue(grid_rule(task.world))
        search = make_planner(dynamics, every_action(task.world), value, PlannerSettings())
        table.ask = ask_planner(PlanningPolicy(search, table.state_of))
    return table


def _textgame(model: Playable) -> PlayTable:
    language = languages.load(str(model.weights))
    metadata = TextGameMetadata.model_validate(language.metadata)
    task = TextGamePredictor(metadata.task, rules=own_rules())
    dynamics = TextGameDynamics(task, TextGameModel(task, Engine(language, ROWS), metadata.sampling))
    settings = PlannerSettings(depth=1, proposals=ROWS)
    search = make_planner(dynamics, possible_commands(), RuleValue(score_rule), settings)
    return textgame_table(PlanningPolicy(search, observe_game))


def _pages(model: Playable) -> PlayTable:
    """Pages of a language model or of a page model, with the proposals that its planner has."""
    from oneiro.agents.planning.loading import load_planner
    from oneiro_web.sites import SITES

    settings = PlannerSettings(depth=2, proposals=6)
    return web_table(load_planner(str(model.weights), "web", {}, settings, ROWS).policy, tuple(SITES))


def ask_planner(policy: PlanningPolicy[Any]) -> Callable[[World], list[Option]]:
    """What search in the model thinks of each action, the best first."""

    def ask(world: World) -> list[Option]:
        (decision,) = policy.planner.plan([Root(policy.observe(world), policy.task(world))])
        ranked = sorted(decision.candidates, key=lambda one: (one.action != decision.action, -one.value))
        return [Option(one.action, one.predicted, one.value) for one in ranked]

    return ask


def textgame_table(policy: PlanningPolicy[Any]) -> PlayTable:
    """Every game of the package, as these dynamics predict it."""

    def actions_of(world: World) -> Mapping[str, str]:
        assert isinstance(world, TextGame)
        return {command: command for command in world.commands()}

    return PlayTable(
        policy.planner.dynamics,
        lambda game: make(f"textgame:{game}"),
        policy.observe,
        actions_of,
        tuple(GAMES),
        ask=ask_planner(policy),
    )


def web_table(policy: PlanningPolicy[Any], sites: tuple[str, ...]) -> PlayTable:
    """Tasks on our own sites, in the text browser; a click names the line of the true page."""
    from oneiro.agents.planning.webpages import offered_in
    from oneiro.tasks.webpage.model import BrowsedPage
    from oneiro.tasks.webpage.rollout import carry_over
    from oneiro_web.plugin import WebWorld
    from oneiro_web.sites.base import styles

    def actions_of(world: World) -> Mapping[str, str]:
        state = policy.observe(world)
        # Every text of a page could be an answer; what leads on comes first.
        offered = sorted(offered_in(state).actions, key=lambda action: action.startswith("stop"))
        return {action: state.situation(action).described for action in offered}

    def compare(predicted: BrowsedPage, truth: BrowsedPage) -> tuple[bool, str]:
        same = predicted.page == truth.page
        return same, "as it is" if same else "another address" if predicted.page.url != truth.page.url else "differs"

    def document(world: World) -> str:
        assert isinstance(world, WebWorld) and world.session is not None
        css = styles()["style.css"] + styles().get(f"{world.task.sites[0]}.css", "")
        # Scripts and links to style sheets would be refused by the frame's policy; without them it stays silent.
        page = LOADED.sub("", world.session.html())
        return f"<!doctype html><style>{css}{UNTOUCHABLE}</style>{page}"

    return PlayTable(
        policy.planner.dynamics,
        lambda site: make(f"web:{site}"),
        policy.observe,
        actions_of,
        sites,
        ask=ask_planner(policy),
        compare=compare,
        carry=lambda action, truth, imagined: carry_over(action, truth.page, imagined.page),
        document=document,
    )


def _agent(model: Playable) -> PlayTable:
    """An agent that writes the next state before it acts."""

    language = languages.load(str(model.weights))
    metadata = AgentMetadata.model_validate(language.metadata)
    maker = metadata.world.maker()
    agent = ImaginingAgent(metadata, Engine(language, SAMPLES), maker)

    def ask(world: World) -> list[Option]:
        rule = None
        with contextlib.suppress(OneiroError):  # worlds without a rule of what states are worth
            rule = grid_rule(world)
        return [
            Option(
                one.action,
                one.prediction,
                rule(one.prediction, None).value if rule and one.prediction else None,
                one.share,
            )
            for one in agent.candidates(world.render())
        ]

    return PlayTable(Cached(agent), lambda game: maker(), lambda world: world.render(), _words, ask=ask)


def _physics(model: Playable) -> PlayTable:
    language = languages.load(str(model.weights))
    metadata = PhysicsMetadata.model_validate(language.metadata)
    task = PhysicsPredictor(metadata.task)
    dynamics = PhysicsDynamics(task, PhysicsModel(task, Engine(language, ROWS), metadata.sampling))
    search: Planner[PhysicsSituation] = make_planner(
        dynamics, EveryAction(lambda state: WORDS), RuleValue(room_rule), PlannerSettings(depth=4)
    )
    return physics_table(PlanningPolicy(search, lambda world: observe(world, task.config.view)), model.settings)


def physics_table(policy: PlanningPolicy[Any], settings: Mapping[str, Any]) -> PlayTable:
    """Rooms of drawn physics. The model says only where the walker goes, so only that is compared."""

    def compare(predicted: PhysicsSituation, truth: PhysicsSituation) -> tuple[bool, str]:
        same = read_tiles(predicted.text).walker == read_tiles(truth.text).walker
        return same, "as it is" if same else "differs"

    return PlayTable(
        policy.planner.dynamics,
        lambda game: make("physics", **settings),
        policy.observe,
        _words,
        keys=dict(zip(WORDS, ARROWS.values(), strict=True)),
        ask=ask_planner(policy),
        compare=compare,
        about="The model says how far the walker comes. Doors, keys and boxes stay as they were on the true map that "
        "it saw last, and are not compared.",
    )


def _rulebook(model: Playable) -> PlayTable:
    language = languages.load(str(model.weights))
    metadata = RulebookMetadata.model_validate(language.metadata)
    task = RulebookPredictor(metadata.task)
    dynamics = RulebookDynamics(task, RulebookModel(task, Engine(language, ROWS), metadata.sampling))
    cached = Cached(dynamics)

    def actions_of(world: World) -> Mapping[str, str]:
        assert isinstance(world, RulebookWorld)
        return {action: action for action in world.game.actions()}

    def ask(world: World) -> list[Option]:
        """Every action, by the share of the goal that its predicted state has."""
        assert isinstance(world, RulebookWorld)
        here, actions, goal = dynamics.observe(world), world.game.actions(), world.goal
        options = []
        for action, (one,) in zip(actions, cached.predict([(here, action) for action in actions]), strict=True):
            if not isinstance(one.state, Malformed):
                held = sum(one.state.things[thing][place] == value for thing, place, value in goal)
                options.append(Option(action, dynamics.show(one.state), held / len(goal)))
        return sorted(options, key=lambda option: -(option.value or 0.0))

    return PlayTable(cached, lambda game: make("rulebook", **model.settings), dynamics.observe, actions_of, ask=ask)


def _video(model: Playable) -> PlayTable:
    """The simulated arm by the keys of `oneiro play robot`."""
    from oneiro.tasks.video import teleop
    from oneiro.tasks.video.model import (
        FilmedRobot,
        Footage,
        FrameDynamics,
        LearnedFrames,
        footage_of,
        likeness,
        open_model,
    )
    from oneiro.worlds.robot.drawer import Robot, RobotConfig, write_action

    language, task, metadata = open_model(model.weights)
    size, bins = task.tokenizer.settings.height, task.bins
    keys, labels = dict[str, str](), dict[str, str]()
    for number, key in enumerate([*(key for pair in teleop.KEYS[: len(bins.low)] for key in pair), teleop.STILL]):
        action = teleop.key_action(bins, key)
        assert action is not None
        written = write_action(action)
        keys[written] = key
        labels[written] = "wait" if key == teleop.STILL else f"{PUSHED[number // 2]} {'−+'[number % 2]}"

    def make_world(name: str) -> World:
        return FilmedRobot(
            RobotConfig(task=Robot.variants[name]["task"], size=size, action_repeat=metadata.action_repeat)
        )

    def compare(predicted: Footage, truth: Footage) -> tuple[bool, str]:
        decibels = likeness(predicted, truth)
        return decibels >= ALIKE_DB, f"{decibels:.1f} dB"

    return PlayTable(
        Cached(FrameDynamics(LearnedFrames(task, Engine(language, 1), metadata.sampling))),
        make_world,
        footage_of,
        lambda world: labels,
        tuple(Robot.variants),
        keys=keys,
        compare=compare,
        about=f"Frames count as the same from a PSNR of {ALIKE_DB:.0f} dB on. A key pushes the arm or the gripper.",
    )
