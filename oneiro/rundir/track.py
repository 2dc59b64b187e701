"""Trackers: where metrics go besides `metrics.jsonl`, chosen by `track: [tensorboard]` in a recipe.

Other packages add trackers through the entry-point group `oneiro.trackers`: a class that is called with the run
directory and the recipe. A tracker gets what `Run.log` gets. The file stays the truth: after an interruption a tracker
may show steps twice.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

from oneiro.runtime import plugins
from oneiro.runtime.errors import OneiroError, nearest
from oneiro.runtime.seeds import derive


class Tracker(Protocol):
    """One place that shows curves."""

    def log(self, stage: str, step: int, values: Mapping[str, float]) -> None: ...

    def close(self) -> None: ...


def require(names: Sequence[str]) -> None:
    """Fail before any work is done if a tracker is unknown or not installed."""
    for name in names:
        tracker = _tracker(name)
        if name in TRACKERS and find_spec(name) is None:
            raise OneiroError(f"track=[{name}] needs the package {name}: pip install 'oneiro[track]'")
        if name not in TRACKERS and not callable(tracker):
            raise OneiroError(f"tracker '{name}' of another package is not a class with log and close")


def start(names: Sequence[str], path: Path, recipe: Mapping[str, Any]) -> list[Tracker]:
    """The trackers of a run, connected. `path` is the run directory; its name is the run's name everywhere."""
    return [_tracker(name)(path, recipe) for name in names]


def _tracker(name: str) -> Callable[[Path, Mapping[str, Any]], Tracker]:
    known = plugins.with_offered("trackers", TRACKERS)
    if name not in known:
        raise OneiroError(f"no tracker called '{name}' (key 'track'){nearest(name, known)}")
    tracker = known[name]
    return plugins.resolve(tracker, f"tracker '{name}'") if isinstance(tracker, str) else tracker


class TensorBoard:
    """Event files in `tensorboard/` of the run directory; `tensorboard --logdir runs` shows them."""

    def __init__(self, path: Path, recipe: Mapping[str, Any]) -> None:
        self._writer = importlib.import_module("tensorboard.summary").Writer(str(path / "tensorboard"))

    def log(self, stage: str, step: int, values: Mapping[str, float]) -> None:
        for key, value in values.items():
            self._writer.add_scalar(f"{stage}/{key}", value, step)
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()


class Trackio:
    """Trackio, a local dashboard: `trackio show --project oneiro`."""

    def __init__(self, path: Path, recipe: Mapping[str, Any]) -> None:
        self._run = importlib.import_module("trackio").init(
            project="oneiro", name=path.name, config=dict(recipe), resume="allow"
        )

    def log(self, stage: str, step: int, values: Mapping[str, float]) -> None:
        self._run.log({f"{stage}/step": step, **{f"{stage}/{key}": value for key, value in values.items()}})

    def close(self) -> None:
        self._run.finish()


class WandB(Trackio):
    """Weights & Biases; a resumed run goes on under the same id. WANDB_MODE=offline keeps it on this machine."""

    def __init__(self, path: Path, recipe: Mapping[str, Any]) -> None:
        place = f"{path.name}-{derive(str(path.resolve())) % 16**6:06x}"
        self._run = importlib.import_module("wandb").init(
            project="oneiro", name=path.name, id=place, dir=str(path), config=dict(recipe), resume="allow"
        )
        self._stages: set[str] = set()

    def log(self, stage: str, step: int, values: Mapping[str, float]) -> None:
        if stage not in self._stages:
            # Each stage counts its own steps.
            self._run.define_metric(f"{stage}/*", step_metric=f"{stage}/step")
            self._stages.add(stage)
        super().log(stage, step, values)


TRACKERS: dict[str, type[TensorBoard] | type[Trackio]] = {
    "tensorboard": TensorBoard,
    "wandb": WandB,
    "trackio": Trackio,
}
