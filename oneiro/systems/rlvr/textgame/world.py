"""A trained predictor to play in: one of our text games whose every step is the model's word."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from oneiro.errors import OneiroError
from oneiro.models import language as languages
from oneiro.predictors.textgame.task import TextGame
from oneiro.predictors.textgame.world import ImaginedGame
from oneiro.sampling.engine import Engine
from oneiro.systems.rlvr.textgame.model import Answerer, habits_of
from oneiro.worlds.registry import config_for
from oneiro.worlds.textgame.crawl import own_rules


def open_world(model: str, world: str, settings: Mapping[str, Any] | None = None) -> ImaginedGame:
    """The world `textgame:NAME` as the model (a run, a checkpoint) imagines it; asked as it was taught."""
    config = config_for(world, settings)  # before the model: a wrong name shows at once
    language = languages.load(model)
    habits = habits_of(language, model)
    if habits is None or habits.task.transition != "full":
        raise OneiroError(f"the model at {model} was not taught to predict whole steps of text games")
    task = TextGame(habits.task, rules=own_rules())
    return ImaginedGame(task, Answerer(task, Engine(language, 1), habits.limits), config)
