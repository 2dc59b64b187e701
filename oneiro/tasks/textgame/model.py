"""A trained language model at work on the text-game task, and what travels with its weights."""

from __future__ import annotations

from typing import Literal

from oneiro.models.metadata import ModelMetadata
from oneiro.sampling.engine import SamplingSettings
from oneiro.tasks.answering import AnsweringModel
from oneiro.tasks.textgame.predictor import TextGamePredictor, TextGamePredictorConfig
from oneiro.worlds.textgame.state import Situation


class TextGameMetadata(ModelMetadata):
    """How a text-game predictor is prompted."""

    what = "a predictor of text games"
    kind: Literal["text-game"] = "text-game"
    task: TextGamePredictorConfig
    sampling: SamplingSettings
    held_out: tuple[str, ...] = ()
    """Games it never saw."""


class TextGameModel(AnsweringModel[TextGamePredictor, Situation]):
    """A predictor with the engine that answers its prompts."""
