"""Play: a person acts; the learned world and the true one answer side by side. First the checkpoints of a run that
predict a world, each with its true one; then sessions.

A session is its address (run, model, game, seed, mode, actions) and can be played again from there, so that it can be
sent, taken back and forked at any step. The server remembers the last one of each model, and what models answered.
"""

from __future__ import annotations

import contextlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from oneiro.board.folders import RunFolder
from oneiro.episode import FinishReason
from oneiro.models.locate import METADATA, newest_weights
from oneiro.rundir.records import write_episodes
from oneiro.runtime.errors import OneiroError
from oneiro.runtime.files import read_json
from oneiro.worlds.base import World

if TYPE_CHECKING:
    from oneiro.tasks.base import Cached

MAX_OPEN = 2  # models in memory
ARROWS = {"Up": "ArrowUp", "Down": "ArrowDown", "Left": "ArrowLeft", "Right": "ArrowRight"}
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
    if kind == "agent" and data["dialogue"]["world_model"] and not data.get("copies_state"):
        return data["world"]["name"], {}
    if kind == "grid":
        return data["task"]["world"]["name"], {}
    if kind == "text-game" and data["task"]["transition"] == "full":
        return "textgame", {}
    if kind in ("web-page", "page-model") and find_spec("oneiro_web"):
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
class PlayTable:
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
        self._open: OrderedDict[Hashable, PlayTable] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, run: RunFolder, name: str) -> tuple[Playable, PlayTable]:
        model = next((one for one in playable(run) if one.name == name), None)
        if model is None:
            raise OneiroError(f"{run.name} has no model called {name} that a person can play with")
        key = model.weights, model.weights.stat().st_mtime_ns
        from oneiro.board.kinds import open_table

        with self._lock:
            if key not in self._open:
                self._open[key] = open_table(model)
                while len(self._open) > MAX_OPEN:
                    _, table = self._open.popitem(last=False)
                    with table.lock:
                        table.close()
            self._open.move_to_end(key)
            return model, self._open[key]


MAX_ACTIONS = 200
MAX_ACTION_CHARS = 300
MAX_SHOWN_ACTIONS = 400  # a text game understands hundreds of commands
STAGE = "play"

Mode = Literal["step", "free"]


@dataclass(frozen=True)
class PlayedStep:
    """One action, what truly followed and what the model said would."""

    action: str
    before: str
    truth: str
    predicted: str | None
    """None: it could not be read, and changes nothing in the learned world."""
    exact: bool
    verdict: str
    reward: float


@dataclass(frozen=True)
class Session:
    world: str
    instruction: str
    level: str
    seed: int
    mode: Mode
    start: str
    steps: list[PlayedStep]
    actions: dict[str, str]
    """Action -> what a button says of it."""
    more_actions: int
    over: bool
    success: bool
    finish: FinishReason
    options: list[Option] | None
    document: str | None
    """The true page as HTML, for a frame."""

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


class Playing:
    """Both worlds at one point of a session.

    In step, the model is given the true state before each action, so that single errors count; free, it goes on from
    its own predictions, and drifts. Levels are of the evaluation split: no model trained on them.
    """

    def __init__(self, table: PlayTable, game: str, seed: int, mode: Mode) -> None:
        self.table, self.begun, self.mode = table, (game, seed, mode), mode
        self.world = table.make_world(game)
        _, info = self.world.reset(seed=seed, options={"split": "eval"})
        self.level = str(info["key"])
        self.truth = self.imagined = table.state_of(self.world)
        self.start = table.dynamics.show(self.truth)
        self.taken: list[str] = []
        self.steps: list[PlayedStep] = []
        self.success, self.finish = False, FinishReason.TURNS

    def act(self, action: str) -> None:
        """Take an action on both sides; nothing once the episode is over."""
        from oneiro.tasks.base import Malformed

        self.taken.append(action)
        if self.world.over:
            return
        table, dynamics = self.table, self.table.dynamics
        before = self.imagined if self.mode == "free" else self.truth
        predicted = dynamics.predict([(before, table.carry(action, self.truth, before))])[0][0].state
        _, reward, terminated, truncated, info = self.world.step(action)
        self.truth, readable = table.state_of(self.world), not isinstance(predicted, Malformed)
        self.imagined = predicted if readable else before
        self.success = bool(info["success"])
        if terminated or truncated:
            ended = FinishReason.FAILED if terminated else FinishReason.BUDGET
            self.finish = FinishReason.GOAL if self.success else ended
        exact, verdict = table.judge(predicted, self.truth) if readable else (False, "unreadable")
        shown = dynamics.show(predicted) if readable else None
        self.steps.append(
            PlayedStep(action, dynamics.show(before), dynamics.show(self.truth), shown, exact, verdict, reward)
        )


def play(table: PlayTable, game: str, seed: int, actions: Sequence[str], mode: Mode, ask: bool = False) -> Session:
    """Take all actions in the true world and, one by one, in the learned one."""
    if len(actions) > MAX_ACTIONS or any(len(action) > MAX_ACTION_CHARS for action in actions):
        raise OneiroError(f"a session has at most {MAX_ACTIONS} actions of {MAX_ACTION_CHARS} characters")
    with table.lock:
        now = table.playing
        if now is None or now.begun != (game, seed, mode) or now.taken != list(actions[: len(now.taken)]):
            table.close()
            now = Playing(table, game, seed, mode)
        table.playing = None  # a step that fails leaves a world that nobody should go on from
        for action in actions[len(now.taken) :]:
            now.act(action)
        world, table.playing = now.world, now
        known = dict(table.actions_of(world)) if not world.over else {}
        return Session(
            world=world.name,
            instruction=world.instruction,
            level=now.level,
            seed=seed,
            mode=mode,
            start=now.start,
            steps=list(now.steps),
            actions=dict(list(known.items())[:MAX_SHOWN_ACTIONS]),
            more_actions=max(0, len(known) - MAX_SHOWN_ACTIONS),
            over=world.over,
            success=now.success,
            finish=now.finish,
            options=table.ask(world) if ask and table.ask and not world.over else None,
            document=table.document(world) if table.document else None,
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
