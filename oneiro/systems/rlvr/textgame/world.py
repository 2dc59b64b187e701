"""A trained predictor to play in: one of our text games whose every step is the model's word."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from oneiro.errors import OneiroError
from oneiro.models import language as languages
from oneiro.predictors.textgame.task import TextGamePredictor
from oneiro.predictors.textgame.world import LearnedTextGame
from oneiro.sampling.engine import Engine
from oneiro.systems.rlvr.textgame.model import Answerer, metadata_of
from oneiro.worlds.registry import config_for
from oneiro.worlds.textgame.crawl import own_rules


def open_world(model: str, world: str, settings: Mapping[str, Any] | None = None) -> LearnedTextGame:
    """The world `textgame:NAME` as the model (a run, a checkpoint) imagines it; asked as it was taught."""
    config = config_for(world, settings)  # before the model: a wrong name shows at once
    language = languages.load(model)
    metadata = metadata_of(language, model)
    if metadata is None or metadata.task.transition != "full":
        raise OneiroError(f"the model at {model} was not taught to predict whole steps of text games")
    task = TextGamePredictor(metadata.task, rules=own_rules())
    return LearnedTextGame(task, Answerer(task, Engine(language, 1), metadata.sampling), config)
