"""`tiny` for web pages: a small model whose tokenizer is trained on the run's own pages.

A line's number with the line break before it is one token, and so is every item that keeps coming (`button 'Upvote'`)
and the opening of any other (`heading '`). A page of twenty lines then has about a hundred tokens.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence

from oneiro.models import language as languages
from oneiro.models.language import LanguageModel
from oneiro.models.settings import ModelSettings
from oneiro.tasks.webpage.predictor import WebPagePredictor
from oneiro.tasks.webpage.prompt import HEADINGS
from oneiro.tasks.webpage.state import PageTransition

TEXTS = 1500
"""Questions with their answers that a tokenizer is trained on."""
LINES = 400
"""Items that become one token each."""
NUMBERS = 300
ROLES = 60
ITEM = re.compile(r"\] ([A-Za-z]+ '[^'\n]*'[^\n]*)")
OPENING = re.compile(r"( [A-Za-z]+ ['\"])")
NUMBER = re.compile(r"\n\[[.-]?\d+\]")


def create_tiny(
    settings: ModelSettings, task: WebPagePredictor, cases: Sequence[PageTransition], seed: int
) -> LanguageModel:
    """Random weights, and a tokenizer trained on the prompts and answers of `cases`."""
    texts = [text for case in cases for text in (task.prompt(case)[0]["content"], task.target(case))]
    roles = ["<|im_start|>user assistant\n<|im_end|>\n"] * 8
    return languages.create_tiny(settings, [*texts, *roles], seed, pieces(texts))


def pieces(texts: Sequence[str]) -> list[str]:
    """Headings, numbers of lines, items and openings of items that occur most often."""
    headings = [f"\n\n{heading}" for heading in HEADINGS[1:]] + ["\nNone", HEADINGS[0]]
    items = [f" {item}" for item in most_often(ITEM, texts, LINES)]
    return [*headings, *most_often(NUMBER, texts, NUMBERS), *items, *most_often(OPENING, texts, ROLES)]


def most_often(pattern: re.Pattern[str], texts: Iterable[str], most: int) -> list[str]:
    """What a pattern finds most often, and more than once."""
    counts = Counter[str]()
    for text in texts:
        counts.update(pattern.findall(text))
    ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return [found for found, count in ranked[:most] if count > 1]
