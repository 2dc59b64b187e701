"""A language model for text games: what travels with its weights, and `tiny` with a tokenizer of JSON states.

Whatever JSON states keep writing (`","uuid":4,`, `"isOpen":true`) is one token of `tiny`, and so is the name of a
thing. A prompt then has a hundred tokens instead of six hundred, which a small model on a CPU can learn to read, and a
thing in a command is the same token as in the state.
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
from oneiro.tasks.textgame.predictor import TextGamePredictor, TextGamePredictorConfig
from oneiro.worlds.textgame.state import Situation, Transition

TEXTS = 2000
"""Questions with their answers that the tokenizer of `tiny` is trained on."""
PIECES = 160
"""Fixed pieces of JSON that become one token each."""
NOUNS = 100
"""Names of things, without their numbers, that become one token each."""
NOUN = re.compile(r'"name":"([^"(]+?)(?: \(ID: \d+\))?"')
PIECE = re.compile(
    r'","uuid":\d+,"type":"'  # the uuid of an object repeats the number in its name
    r'|[^\w\s(]*"\w+":(?:true|false)?[\[{]*(?:"(?!\w+":))?'  # a key, what closes before it and what opens after it
    r'|","| \(ID: \d+\)'
)

TextGameModel = AnsweringModel[TextGamePredictor, Situation]
"""A predictor with the engine that answers its prompts."""


class TextGameMetadata(ModelMetadata):
    """How a text-game predictor is prompted."""

    what = "a predictor of text games"
    kind: Literal["text-game"] = "text-game"
    task: TextGamePredictorConfig
    sampling: SamplingSettings
    held_out: tuple[str, ...] = ()
    """Games it never saw."""


def create_tiny(
    settings: ModelSettings, task: TextGamePredictor, cases: Sequence[Transition], seed: int
) -> LanguageModel:
    openings = sorted({f"The game: {case.task}\n\n" for case in cases})
    return answering.create_tiny(
        settings, task, cases, seed, lambda texts: [*pieces(texts), *openings], roles=len(openings)
    )


def pieces(texts: Sequence[str]) -> list[str]:
    """The pieces of JSON that occur most often, and the names of things."""
    return [*most_often(PIECE, texts, PIECES), *most_often(NOUN, texts, NOUNS)]
