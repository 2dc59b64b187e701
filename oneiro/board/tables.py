"""What a person can play with: the checkpoints of a run that predict a world, each beside the true one."""

from __future__ import annotations

import contextlib
import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oneiro.board.folders import RunFolder
from oneiro.models.locate import METADATA, newest_weights
from oneiro.runtime.errors import OneiroError
from oneiro.runtime.files import read_json
from oneiro.worlds.base import World
from oneiro.worlds.registry import make

if TYPE_CHECKING:
    from oneiro.agents.planning.base import Planner
    from oneiro.agents.planning.policy import PlanningPolicy
    from oneiro.board.play import Playing
    from oneiro.tasks.base import Cached

MAX_OPEN = 2  # models in memory
ROWS = 64  # predictions made at once
ALIKE_DB = 25.0  # PSNR of two frames that show the same scene: without its arm, a frame of 64 pixels has 21
ARROWS = {"Up": "ArrowUp", "Down": "ArrowDown", "Left": "ArrowLeft", "Right": "ArrowRight"}
PUSHED = ("x", "y", "z", "gripper")  # the entries of the arm's action
LOADED = re.compile(r"<link\b[^>]*>|<script\b.*?</script>", re.DOTALL | re.IGNORECASE)
UNTOUCHABLE = "a, button, input, select, textarea { pointer-events: none; }"  # one acts beside the frame, not in it
PAGE_MODEL = "page_model.json"  # of a model that predicts pages without a language model


@dataclass(frozen=True)
class Playable:
    """A checkpoint that predicts a world which a person can act in."""

    name: str
    kind: str
    world: str
    weights: Path
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Of the true world, as far as the run knows and the weights do not."""


def playable(run: RunFolder) -> list[Playable]:
    """World models first, then agents that predict: after SFT an agent still knows more actions than after RL."""
    models = []
    for folder in sorted((run.path / "checkpoints").glob("*/")):
        with contextlib.suppress(OneiroError, OSError, KeyError, TypeError, AttributeError):
            weights = run.file("checkpoints", folder.name)
            if not (weights / PAGE_MODEL).is_file():
                weights = newest_weights(weights)
            data = read_json(run.file(str((weights / METADATA).relative_to(run.path))))
            kind = "page-model" if (weights / PAGE_MODEL).is_file() else data["kind"]
            known = _world(kind, data, run.recipe.get("data") or {})
            if known is not None:
                models.append(Playable(folder.name, kind, known[0], weights, known[1]))
    return sorted(models, key=lambda model: (model.kind == "agent", not model.name.startswith("sft"), model.name))


def _world(kind: str, data: Mapping[str, Any], drawn: Mapping[str, Any]) -> tuple[str, dict[str, Any]] | None:
    """The true world of a model, with the settings of its training data; None where there is none to play in."""
    if kind == "agent" and data["dialogue"]["world_model"]:
        return data["world"]["name"], {}
    if kind == "grid":
        return data["task"]["world"]["name"], {}
    if kind == "text-game" and data["task"]["transition"] == "full":
        return "textgame", {}
    if kind in ("web-page", "page-model"):
        return "web", {}
    if kind == "physics":
        return "physics", {"examples": max(drawn.get("context") or [16])}
    if kind == "rulebook":
        return "rulebook", {key: drawn[key] for key in ("names", "rules") if key in drawn}
    # Recorded videos have no world that could answer a person.
    if kind == "video" and drawn.get("name") == "drawer" and find_spec("mujoco"):
        return "robot", {}
    return None


@dataclass(frozen=True)
class Option:
    """An action that an agent or planner considers: what it expects, what that is worth, how often it says so."""

    action: str
    predicted: str | None
    value: float | None
    share: float | None = None


def _same(dynamics: Cached[Any]) -> Callable[[Any, Any], tuple[bool, str]]:
    def compare(predicted: Any, truth: Any) -> tuple[bool, str]:
        exact = dynamics.key(predicted) == dynamics.key(truth)
        return exact, "as it is" if exact else "differs"

    return compare


@dataclass
class Table:
    """A model and its true world, ready to play; one prediction at a time."""

    dynamics: Cached[Any]
    make_world: Callable[[str], World]
    state_of: Callable[[World], Any]
    actions_of: Callable[[World], Mapping[str, str]]
    """Action -> what a button says of it."""
    games: tuple[str, ...] = ()
    keys: Mapping[str, str] = field(default_factory=lambda: ARROWS)
    """Action -> the key that takes it."""
    ask: Callable[[World], list[Option]] | None = None
    compare: Callable[[Any, Any], tuple[bool, str]] | None = None
    """Predicted and true state -> whether they are the same, and in a word or two; by their keys where None."""
    carry: Callable[[str, Any, Any], str] = lambda action, truth, imagined: action
    """An action on the true state as it reads on the imagined one."""
    document: Callable[[World], str] | None = None
    """The true state as a page of its own, for a frame."""
    about: str = ""
    """What a player should know of this model."""
    lock: threading.Lock = field(default_factory=threading.Lock)
    playing: Playing | None = None
    """The last session, so that its next action needs one step and not all of them again."""

    def judge(self, predicted: Any, truth: Any) -> tuple[bool, str]:
        return (self.compare or _same(self.dynamics))(predicted, truth)

    def close(self) -> None:
        if self.playing is not None:
            self.playing.world.close()
        self.playing = None


class Tables:
    """The models that are open, the last used ones."""

    def __init__(self) -> None:
        self._open: OrderedDict[Hashable, Table] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, run: RunFolder, name: str) -> tuple[Playable, Table]:
        model = next((one for one in playable(run) if one.name == name), None)
        if model is None:
            raise OneiroError(f"{run.name} has no model called {name} that a person can play with")
        key = model.weights, model.weights.stat().st_mtime_ns
        with self._lock:
            if key not in self._open:
                self._open[key] = open_table(model)
                while len(self._open) > MAX_OPEN:
                    _, table = self._open.popitem(last=False)
                    with table.lock:
                        table.close()
            self._open.move_to_end(key)
            return model, self._open[key]


def open_table(model: Playable) -> Table:
    """Load the weights, prompted as they were trained."""
    makers = {"agent": _agent, "physics": _physics, "rulebook": _rulebook, "video": _video}
    return makers.get(model.kind, _planned)(model)


def _words(world: World) -> Mapping[str, str]:
    return {action: action for action in world.actions or ()}


# Kinds of models ------------------------------------------------------------------------------------------------------


def _planned(model: Playable) -> Table:
    """World models of grids, text games and pages: whatever can be planned in can be asked and played."""
    from oneiro.agents.planning.base import PlannerSettings
    from oneiro.agents.planning.loading import load_planner
    from oneiro_web.sites import SITES

    def load(world: str, **settings: Any) -> PlanningPolicy[Any]:
        return load_planner(str(model.weights), world, {}, PlannerSettings(**settings), ROWS).policy

    if model.kind == "text-game":
        return textgame_table(load("textgame:brew-tea", depth=1, proposals=ROWS))
    if model.kind == "grid":
        policy, choice = load(model.world), _grid_world(model)
        return Table(policy.planner.dynamics, choice, policy.observe, _words, ask=ask_planner(policy))
    return web_table(load("web", depth=2, proposals=6), tuple(SITES))


def _grid_world(model: Playable) -> Callable[[str], World]:
    from oneiro.tasks.grid.predictor import GridPredictorConfig

    maker = GridPredictorConfig.model_validate(read_json(model.weights / METADATA)["task"]).world.maker()
    return lambda game: maker()


def ask_planner(policy: PlanningPolicy[Any]) -> Callable[[World], list[Option]]:
    """What search in the model thinks of each action, the best first."""
    from oneiro.agents.planning.base import Root

    def ask(world: World) -> list[Option]:
        (decision,) = policy.planner.plan([Root(policy.observe(world), policy.task(world))])
        ranked = sorted(decision.candidates, key=lambda one: (one.action != decision.action, -one.value))
        return [Option(one.action, one.predicted, one.value) for one in ranked]

    return ask


def textgame_table(policy: PlanningPolicy[Any]) -> Table:
    """Every game of the package, as these dynamics predict it."""
    from oneiro.worlds.textgame.games import GAMES
    from oneiro.worlds.textgame.world import TextGame

    def actions_of(world: World) -> Mapping[str, str]:
        assert isinstance(world, TextGame)
        return {command: command for command in world.commands()}

    return Table(
        policy.planner.dynamics,
        lambda game: make(f"textgame:{game}"),
        policy.observe,
        actions_of,
        tuple(GAMES),
        ask=ask_planner(policy),
    )


def web_table(policy: PlanningPolicy[Any], sites: tuple[str, ...]) -> Table:
    """Tasks on our own sites, in the text browser; a click names the line of the true page."""
    from oneiro.agents.planning.webpages import offered_in
    from oneiro.tasks.webpage.dynamics import BrowsedPage
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

    return Table(
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


def _agent(model: Playable) -> Table:
    """An agent that writes the next state before it acts."""
    from oneiro.agents.imagining import SAMPLES, ImaginingAgent
    from oneiro.agents.loading import AgentMetadata
    from oneiro.agents.planning.grids import grid_rule
    from oneiro.models import language as languages
    from oneiro.sampling.engine import Engine
    from oneiro.tasks.base import Cached

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

    return Table(Cached(agent), lambda game: maker(), lambda world: world.render(), _words, ask=ask)


def _physics(model: Playable) -> Table:
    from oneiro.agents.planning.base import EveryAction, Judged, PlannerSettings
    from oneiro.agents.planning.policy import PlanningPolicy, make_planner
    from oneiro.agents.planning.values import RuleValue
    from oneiro.models import language as languages
    from oneiro.sampling.engine import Engine
    from oneiro.tasks.rules.dynamics import PhysicsDynamics, RoomState
    from oneiro.tasks.rules.physics import PhysicsPredictor
    from oneiro.tasks.rules.physics_task import PhysicsMetadata, PhysicsModel
    from oneiro.worlds.rules.physics import GOAL, WORDS

    def arrives(state: RoomState, task: Any) -> Judged:
        there = state.room.cells[state.room.walker] == GOAL
        return Judged(float(there), there)

    language = languages.load(str(model.weights))
    metadata = PhysicsMetadata.model_validate(language.metadata)
    task = PhysicsPredictor(metadata.task)
    dynamics = PhysicsDynamics(task, PhysicsModel(task, Engine(language, ROWS), metadata.sampling))
    search: Planner[RoomState] = make_planner(
        dynamics, EveryAction(lambda state: WORDS), RuleValue(arrives), PlannerSettings(depth=4)
    )
    policy = PlanningPolicy(search, RoomState.of)
    return Table(
        search.dynamics,
        lambda game: make("physics", **model.settings),
        policy.observe,
        _words,
        keys=dict(zip(WORDS, ARROWS.values(), strict=True)),
        ask=ask_planner(policy),
        about="The model says how far the walker comes. Doors, keys and boxes follow the true rules on both sides.",
    )


def _rulebook(model: Playable) -> Table:
    from oneiro.models import language as languages
    from oneiro.sampling.engine import Engine
    from oneiro.tasks.base import Cached, Malformed
    from oneiro.tasks.rules.dynamics import RulebookDynamics
    from oneiro.tasks.rules.rulebook.predictor import RulebookPredictor
    from oneiro.tasks.rules.rulebook.task import RulebookMetadata, RulebookModel
    from oneiro.worlds.rules.rulebook.world import RulebookWorld

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

    return Table(cached, lambda game: make("rulebook", **model.settings), dynamics.observe, actions_of, ask=ask)


def _video(model: Playable) -> Table:
    """The simulated arm by the keys of `oneiro play robot`."""
    from oneiro.sampling.engine import Engine
    from oneiro.tasks.base import Cached
    from oneiro.tasks.video import teleop
    from oneiro.tasks.video.dynamics import FilmedRobot, Footage, FrameDynamics, footage_of, likeness
    from oneiro.tasks.video.model import open_model
    from oneiro.tasks.video.world import LearnedFrames
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

    return Table(
        Cached(FrameDynamics(LearnedFrames(task, Engine(language, 1), metadata.sampling))),
        make_world,
        footage_of,
        lambda world: labels,
        tuple(Robot.variants),
        keys=keys,
        compare=compare,
        about=f"Frames count as the same from a PSNR of {ALIKE_DB:.0f} dB on. A key pushes the arm or the gripper.",
    )
