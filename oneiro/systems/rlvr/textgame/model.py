"""The model of an RLVR run: made or loaded, asked and answering.

`tiny` gets a tokenizer trained on the run's own prompts, in which whatever JSON states keep writing (`","uuid":4,`,
`"isOpen":true`) is one token, and so is what a thing is called. A question then has a hundred tokens instead of six
hundred, which is what a small model on a CPU can learn to read, and a thing in a command is the same token as in the
state.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from oneiro import seeds
from oneiro.episode import Tokens
from oneiro.errors import OneiroError
from oneiro.models import language as languages
from oneiro.models.backbone import Backbone
from oneiro.models.chat import ChatFormat
from oneiro.models.language import LanguageModel
from oneiro.predictors.textgame.task import TextGamePredictor, TextGamePredictorConfig
from oneiro.recipe import Settings
from oneiro.run import Run
from oneiro.sampling.engine import Engine, Sample, SamplingSettings
from oneiro.systems.rlvr.textgame.data import Data, row_order
from oneiro.systems.rlvr.textgame.recipe import RlvrRecipe
from oneiro.worlds.textgame.state import Situation

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


class TextGameMetadata(Settings):
    """What travels with a predictor's weights (`oneiro.json`): how it was taught to be asked."""

    predictor: str
    task: TextGamePredictorConfig
    sampling: SamplingSettings
    held_out: tuple[str, ...] = ()
    """Games it never saw."""


@dataclass
class Answerer:
    """A language model at work on a task: situations in, texts out."""

    task: TextGamePredictor
    engine: Engine
    sampling: SamplingSettings

    @property
    def language(self) -> LanguageModel:
        return self.engine.language

    @cached_property
    def chat(self) -> ChatFormat:
        return ChatFormat(self.language.tokenizer)

    def prompt(self, case: Situation) -> Tokens:
        return self.chat.opening(self.task.prompt(case)[0]["content"])

    def sample(self, cases: Sequence[Situation], group_size: int, seed: int) -> list[list[Sample]]:
        """`group_size` answers to every case; a prompt is computed once for all of them."""
        return self.engine.generate([self.prompt(case) for case in cases], group_size, self.sampling, seed=seed)

    def text(self, sample: Sample) -> str:
        """An answer without its end token."""
        ended = len(sample.tokens) and int(sample.tokens[-1]) in self.language.end_tokens
        return self.language.decode(sample.tokens[:-1] if ended else sample.tokens)

    def greedy(self, cases: Sequence[Situation]) -> list[Sample]:
        sampling = self.sampling.model_copy(update={"temperature": 0.0})
        found = self.engine.generate([self.prompt(case) for case in cases], 1, sampling)
        return [sample for (sample,) in found]

    def __call__(self, cases: Sequence[Situation]) -> list[str]:
        """The greedy answer to each case: what evaluation and planning ask for."""
        return [self.text(sample) for sample in self.greedy(cases)]


def model_stage(recipe: RlvrRecipe, run: Run, data: Data) -> dict[str, Any]:
    """The weights training starts from; those of `tiny` are made here."""
    made = make_tiny(recipe, run, data) if recipe.model.name == "tiny" else languages.load(recipe.model)
    shape = made.backbone.shape
    run.say(f"model {recipe.model.name}: {shape.parameters:,} parameters, vocabulary {shape.vocabulary:,}")
    return {"parameters": shape.parameters, "vocabulary": shape.vocabulary}


def make_tiny(recipe: RlvrRecipe, run: Run, data: Data) -> LanguageModel:
    """Random weights and a tokenizer of the run's own text, saved as the run's base."""
    task = data.task(recipe)
    order = row_order(data.train, recipe.sampler, recipe.task.transition, seeds.derive(recipe.seed, "tokenizer"))
    cases = [data.train[order.row(i)] for i in range(TEXTS)]
    texts = [text for case in cases for text in (task.prompt(case)[0]["content"], task.target(case))]
    openings = sorted({f"The game: {case.task}\n\n" for case in cases})
    roles = ["<|im_start|>user assistant\n<|im_end|>\n"] * len(openings)
    made = languages.create_tiny(
        recipe.model, [*texts, *roles], seeds.derive(recipe.seed, "weights"), [*pieces(texts), *openings]
    )
    made.save(run.path / "checkpoints" / "base")
    return made


def pieces(texts: Sequence[str]) -> list[str]:
    """The pieces of JSON that occur most often, and the names of things."""
    return [*most_often(PIECE, texts, PIECES), *most_often(NOUN, texts, NOUNS)]


def most_often(pattern: re.Pattern[str], texts: Iterable[str], most: int) -> list[str]:
    """What a pattern finds most often."""
    counts = Counter[str]()
    for text in texts:
        counts.update(pattern.findall(text))
    return [found for found, _ in sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:most]]


def model_after(recipe: RlvrRecipe, run: Run, stage: str | None) -> LanguageModel:
    """The weights after a stage, or those training starts from; taught how it is to be asked."""
    if stage is not None:
        language = languages.load(str(run.path / "checkpoints" / stage))
    elif recipe.model.name == "tiny":
        language = languages.load(str(run.path / "checkpoints" / "base"))
        language = languages.with_lora(language, recipe.model.lora)
    else:
        language = languages.load(recipe.model)
    metadata = TextGameMetadata(
        predictor=TextGamePredictor.name, task=recipe.task, sampling=recipe.sampling, held_out=recipe.data.held_out
    )
    language.metadata = metadata.model_dump(mode="json")
    return language


def lora_merged(language: LanguageModel) -> LanguageModel:
    """The same model with its adapter lora_merged into the weights, all of which can then learn."""
    if not hasattr(language.model, "merge_and_unload"):
        return language
    model = language.model.merge_and_unload()
    model.requires_grad_(True)
    return LanguageModel(language.name, model, language.tokenizer, Backbone(model), language.metadata)


def metadata_of(language: LanguageModel, where: str | Path) -> TextGameMetadata | None:
    """How a loaded model was taught to be asked; None where it was never taught."""
    if not language.metadata:
        return None
    try:
        found = TextGameMetadata.model_validate(language.metadata)
    except ValueError as error:
        raise OneiroError(f"the model at {where} was not taught to predict text games (see its oneiro.json)") from error
    return found
