"""Play: a person acts; the learned world and the true one answer side by side.

A session has no memory on the server. It is its address (run, model, game, seed, mode, actions) and is played again
from there, so that it can be sent, taken back and forked at any step; what a model has answered is remembered.
"""

from __future__ import annotations

import contextlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from oneiro.board.folders import RunFolder
from oneiro.episode import FinishReason
from oneiro.models.locate import METADATA, newest_weights
from oneiro.rundir.records import write_episodes
from oneiro.runtime.errors import OneiroError
from oneiro.runtime.files import read_json
from oneiro.worlds.base import World
from oneiro.worlds.registry import make

if TYPE_CHECKING:
    from oneiro.agents.imagining import Candidate
    from oneiro.tasks.base import Cached
    from oneiro.tasks.textgame.world import TextGameDynamics

MAX_ACTIONS = 200
MAX_ACTION_CHARS = 300
MAX_SHOWN_ACTIONS = 400  # a text game understands hundreds of commands
MAX_OPEN = 2  # models in memory
STAGE = "play"

Mode = Literal["step", "free"]


@dataclass(frozen=True)
class Playable:
    """A checkpoint that predicts a world which a person can act in."""

    name: str
    kind: str
    world: str
    settings: dict[str, Any]
    weights: Path


def playable(run: RunFolder) -> list[Playable]:
    """World models first, then agents that predict: after SFT an agent still knows more actions than after RL."""
    models = []
    for folder in sorted((run.path / "checkpoints").glob("*/")):
        with contextlib.suppress(OneiroError, OSError, KeyError, TypeError, AttributeError):
            weights = newest_weights(run.file("checkpoints", folder.name))
            data = read_json(run.file(str((weights / METADATA).relative_to(run.path))))
            kind = data["kind"]
            if kind == "agent" and data["dialogue"]["world_model"]:
                world = dict(data["world"])
            elif kind == "grid":
                world = dict(data["task"]["world"])
            elif kind == "text-game" and data["task"]["transition"] == "full":
                world = {"name": "textgame"}
            else:
                continue
            settings = {
                key: value for key, value in world.items() if key not in ("name", "workers", "worker_timeout_s")
            }
            models.append(Playable(folder.name, kind, str(world["name"]), settings, weights))
    order = {"grid": 0, "text-game": 0, "agent": 1}
    return sorted(models, key=lambda model: (order[model.kind], not model.name.startswith("sft"), model.name))


@dataclass
class Table:
    """A model and its true world, ready to play; one prediction at a time."""

    dynamics: Cached[Any]
    make_world: Callable[[str], World]
    state_of: Callable[[World], Any]
    actions_of: Callable[[World], Sequence[str]]
    games: tuple[str, ...] = ()
    ask: Callable[[Any], list[Candidate]] | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)


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
                    self._open.popitem(last=False)
            self._open.move_to_end(key)
            return model, self._open[key]


def open_table(model: Playable) -> Table:
    """Load the weights, prompted as they were trained."""
    from oneiro.models import language as languages
    from oneiro.sampling.engine import Engine
    from oneiro.tasks.base import Cached

    language = languages.load(str(model.weights))
    if model.kind == "text-game":
        return textgame_table(_textgame_dynamics(language))

    def make_world(game: str) -> World:
        return make(model.world, **model.settings)

    if model.kind == "grid":
        from oneiro.tasks.grid.model import GridMetadata, GridModel
        from oneiro.tasks.grid.predictor import GridPredictor

        metadata = GridMetadata.model_validate(language.metadata)
        grid = GridModel(GridPredictor(metadata.task), Engine(language, 1), metadata.sampling)
        return Table(Cached(grid), make_world, _text, _words)
    from oneiro.agents.imagining import SAMPLES, ImaginingAgent
    from oneiro.agents.loading import AgentMetadata

    taught = AgentMetadata.model_validate(language.metadata)
    agent = ImaginingAgent(taught, Engine(language, SAMPLES), lambda: make_world(""))
    return Table(Cached(agent), make_world, _text, _words, ask=agent.candidates)


def _text(world: World) -> str:
    return world.render()


def _words(world: World) -> Sequence[str]:
    return world.actions or ()


def _textgame_dynamics(language: Any) -> TextGameDynamics:
    from oneiro.sampling.engine import Engine
    from oneiro.tasks.textgame.model import TextGameMetadata, TextGameModel
    from oneiro.tasks.textgame.predictor import TextGamePredictor
    from oneiro.tasks.textgame.world import TextGameDynamics
    from oneiro.worlds.textgame.crawl import own_rules

    metadata = TextGameMetadata.model_validate(language.metadata)
    task = TextGamePredictor(metadata.task, rules=own_rules())
    return TextGameDynamics(task, TextGameModel(task, Engine(language, 1), metadata.sampling))


def textgame_table(dynamics: TextGameDynamics) -> Table:
    """Every game of the package, as these dynamics predict it."""
    from oneiro.tasks.base import Cached
    from oneiro.worlds.textgame.games import GAMES
    from oneiro.worlds.textgame.world import TextGame

    def state_of(world: World) -> Any:
        assert isinstance(world, TextGame)
        return world.situation("")

    def actions_of(world: World) -> Sequence[str]:
        assert isinstance(world, TextGame)
        return world.commands()

    return Table(Cached(dynamics), lambda game: make(f"textgame:{game}"), state_of, actions_of, tuple(GAMES))


# A session


@dataclass(frozen=True)
class PlayedStep:
    """One action, what truly followed and what the model said would."""

    action: str
    before: str
    truth: str
    predicted: str | None
    """None: it could not be read, and changes nothing in the learned world."""
    exact: bool
    reward: float


@dataclass(frozen=True)
class Session:
    world: str
    level: str
    seed: int
    mode: Mode
    start: str
    steps: list[PlayedStep]
    actions: list[str]
    more_actions: int
    over: bool
    success: bool
    finish: FinishReason
    candidates: list[Candidate] | None

    @property
    def truth(self) -> str:
        return self.steps[-1].truth if self.steps else self.start

    @property
    def parted(self) -> int | None:
        """The first step, from 1, at which the two differ; None while they agree."""
        return next((number for number, step in enumerate(self.steps, 1) if not step.exact), None)

    @property
    def right(self) -> int:
        return sum(step.exact for step in self.steps)


def play(table: Table, game: str, seed: int, actions: Sequence[str], mode: Mode, ask: bool = False) -> Session:
    """Take all actions in the true world and, one by one, in the learned one.

    In step, the model is given the true state before each action, so that single errors count; free, it goes on from
    its own predictions, and drifts. Levels are of the evaluation split: no model trained on them.
    """
    from oneiro.tasks.base import Malformed

    if len(actions) > MAX_ACTIONS or any(len(action) > MAX_ACTION_CHARS for action in actions):
        raise OneiroError(f"a session has at most {MAX_ACTIONS} actions of {MAX_ACTION_CHARS} characters")
    dynamics, steps = table.dynamics, list[PlayedStep]()
    with table.lock, contextlib.closing(table.make_world(game)) as world:
        _, info = world.reset(seed=seed, options={"split": "eval"})
        truth = imagined = table.state_of(world)
        start, success, finish = dynamics.show(truth), False, FinishReason.TURNS
        for action in actions:
            if world.over:
                break
            before = imagined if mode == "free" else truth
            predicted = dynamics.predict([(before, action)])[0][0].state
            _, reward, terminated, truncated, told = world.step(action)
            truth, readable = table.state_of(world), not isinstance(predicted, Malformed)
            imagined = predicted if readable else before
            success = bool(told["success"])
            if terminated or truncated:
                finish = FinishReason.GOAL if success else FinishReason.FAILED if terminated else FinishReason.BUDGET
            steps.append(
                PlayedStep(
                    action,
                    dynamics.show(before),
                    dynamics.show(truth),
                    dynamics.show(predicted) if readable else None,
                    readable and dynamics.key(predicted) == dynamics.key(truth),
                    reward,
                )
            )
        known = list(table.actions_of(world)) if not world.over else []
        candidates = table.ask(truth) if ask and table.ask and not world.over else None
        return Session(
            world=world.name,
            level=str(info["key"]),
            seed=seed,
            mode=mode,
            start=start,
            steps=steps,
            actions=known[:MAX_SHOWN_ACTIONS],
            more_actions=max(0, len(known) - MAX_SHOWN_ACTIONS),
            over=world.over,
            success=success,
            finish=finish,
            candidates=candidates,
        )


def save(run: RunFolder, model: str, session: Session) -> int:
    """Write the session as an episode of the run's stage `play`; returns its step."""
    step = 1 + max(run.episodes.steps().get(STAGE, {-1: Path()}))
    turns = [
        {
            "message": "",
            "state": one.before,
            "reply": "",
            "actions": [one.action],
            "reward": one.reward,
            "prediction": one.predicted,
            "next_state": one.truth,
        }
        for one in session.steps
    ]
    record = {
        "world": session.world,
        "task": session.level,
        "seed": session.seed,
        "success": session.success,
        "finish_reason": str(session.finish),
        "score": sum(one.reward for one in session.steps),
        "player": "person",
        "model": model,
        "mode": session.mode,
        "parted": session.parted,
        "turns": turns,
    }
    write_episodes(run.path, STAGE, step, [record])
    return step
