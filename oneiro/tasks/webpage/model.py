"""A trained language model at work on the web-page task, and what travels with its weights."""

from __future__ import annotations

from typing import Literal

from oneiro.models.metadata import ModelMetadata
from oneiro.sampling.engine import SamplingSettings
from oneiro.tasks.answering import AnsweringModel
from oneiro.tasks.webpage.predictor import WebPagePredictor, WebPagePredictorConfig
from oneiro.tasks.webpage.state import Situation


class WebPageMetadata(ModelMetadata):
    """How a predictor of web pages is prompted."""

    what = "a predictor of web pages"
    kind: Literal["web-page"] = "web-page"
    task: WebPagePredictorConfig
    sampling: SamplingSettings


class WebPageModel(AnsweringModel[WebPagePredictor, Situation]):
    """A predictor with the engine that answers its prompts."""
