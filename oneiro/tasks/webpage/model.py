"""A language model for web pages: what travels with its weights, and `tiny` with a tokenizer of pages.

A line's number with the line break before it is one token of `tiny`, and so is every item that keeps coming
(`button 'Upvote'`) and the opening of any other (`heading '`). A page of twenty lines then has about a hundred tokens.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

from oneiro.models.language import LanguageModel
from oneiro.models.metadata import ModelMetadata
from oneiro.models.settings import ModelSettings
from oneiro.sampling.settings import SamplingSettings
from oneiro.tasks import answering
from oneiro.tasks.answering import AnsweringModel, most_often
from oneiro.tasks.webpage.predictor import WebPagePredictor, WebPagePredictorConfig
from oneiro.tasks.webpage.prompt import HEADINGS
from oneiro.tasks.webpage.state import PageSituation, PageTransition

TEXTS = 1500
"""Questions with their answers that the tokenizer of `tiny` is trained on."""
LINES = 400
"""Items that become one token each."""
NUMBERS = 300
ROLES = 60
ITEM = re.compile(r"\] ([A-Za-z]+ '[^'\n]*'[^\n]*)")
OPENING = re.compile(r"( [A-Za-z]+ ['\"])")
NUMBER = re.compile(r"\n\[[.-]?\d+\]")

WebPageModel = AnsweringModel[WebPagePredictor, PageSituation]
"""A predictor with the engine that answers its prompts."""


class WebPageMetadata(ModelMetadata):
    """How a predictor of web pages is prompted."""

    what = "a predictor of web pages"
    kind: Literal["web-page"] = "web-page"
    task: WebPagePredictorConfig
    sampling: SamplingSettings


def create_tiny(
    settings: ModelSettings, task: WebPagePredictor, cases: Sequence[PageTransition], seed: int
) -> LanguageModel:
    return answering.create_tiny(settings, task, cases, seed, pieces)


def pieces(texts: Sequence[str]) -> list[str]:
    """Headings, numbers of lines, items and openings of items that occur more than once, most often first."""
    headings = [f"\n\n{heading}" for heading in HEADINGS[1:]] + ["\nNone", HEADINGS[0]]
    items = [f" {item}" for item in most_often(ITEM, texts, LINES, at_least=2)]
    numbers, openings = most_often(NUMBER, texts, NUMBERS, at_least=2), most_often(OPENING, texts, ROLES, at_least=2)
    return [*headings, *numbers, *items, *openings]
