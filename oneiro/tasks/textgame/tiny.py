"""`tiny` for text games: a small model whose tokenizer is trained on the run's own prompts.

Whatever JSON states keep writing (`","uuid":4,`, `"isOpen":true`) is one token, and so is the name of a thing. A prompt
then has a hundred tokens instead of six hundred, which a small model on a CPU can learn to read, and a thing in a
command is the same token as in the state.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence

from oneiro.models import language as languages
from oneiro.models.language import LanguageModel, ModelSettings
from oneiro.tasks.textgame.predictor import TextGamePredictor
from oneiro.worlds.textgame.state import Transition

TEXTS = 2000
"""Questions with their answers that a tokenizer is trained on."""
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


def create_tiny(
    settings: ModelSettings, task: TextGamePredictor, cases: Sequence[Transition], seed: int
) -> LanguageModel:
    """Random weights, and a tokenizer trained on the prompts and answers of `cases`."""
    texts = [text for case in cases for text in (task.prompt(case)[0]["content"], task.target(case))]
    openings = sorted({f"The game: {case.task}\n\n" for case in cases})
    roles = ["<|im_start|>user assistant\n<|im_end|>\n"] * len(openings)
    return languages.create_tiny(settings, [*texts, *roles], seed, [*pieces(texts), *openings])


def pieces(texts: Sequence[str]) -> list[str]:
    """The pieces of JSON that occur most often, and the names of things."""
    return [*most_often(PIECE, texts, PIECES), *most_often(NOUN, texts, NOUNS)]


def most_often(pattern: re.Pattern[str], texts: Iterable[str], most: int) -> list[str]:
    """What a pattern finds most often."""
    counts = Counter[str]()
    for text in texts:
        counts.update(pattern.findall(text))
    return [found for found, _ in sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:most]]
