"""Names to predictors, as for worlds. Other packages add theirs through the entry-point group `oneiro.tasks`."""

from __future__ import annotations

from typing import Any

from oneiro.runtime import plugins
from oneiro.runtime.errors import OneiroError, nearest
from oneiro.tasks.base import Predictor

PREDICTORS: dict[str, str] = {
    "grid": "oneiro.tasks.grid.predictor:GridPredictor",
    "text-game": "oneiro.tasks.textgame.predictor:TextGamePredictor",
    "web-page": "oneiro.tasks.webpage.predictor:WebPagePredictor",
    "video": "oneiro.tasks.video.predictor:VideoPredictor",
}
"""Name -> `module:Class` of the predictors that come with the package."""


def names() -> list[str]:
    """Every known predictor, sorted."""
    return sorted(plugins.known("tasks", PREDICTORS))


def predictor_class(name: str) -> type[Predictor[Any, Any, Any, Any]]:
    """The class behind a name."""
    known = plugins.known("tasks", PREDICTORS)
    if name not in known:
        raise OneiroError(f"no predictor is called '{name}'{nearest(name, known)}")
    found = plugins.resolve(known[name], f"predictor '{name}'")
    if not (isinstance(found, type) and issubclass(found, Predictor)):
        raise OneiroError(f"predictor '{name}': {known[name]} is not a Predictor class")
    return found
