"""What a person can play with: the checkpoints of a run that predict a world, each beside the true one."""

from __future__ import annotations

import contextlib
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

if TYPE_CHECKING:
    from oneiro.board.play import Playing
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
