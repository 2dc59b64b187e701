"""A trained language model at work on a prediction task: situations in, answers out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Generic, TypeVar

from oneiro.episode import Tokens
from oneiro.models.chat import ChatFormat
from oneiro.models.language import LanguageModel
from oneiro.sampling.engine import Engine, Sample, SamplingSettings
from oneiro.tasks.base import Predictor

TaskT = TypeVar("TaskT", bound=Predictor[Any, Any, Any, Any])
SituationT = TypeVar("SituationT")


@dataclass
class AnsweringModel(Generic[TaskT, SituationT]):
    """A task whose prompts are messages, with the engine that answers them."""

    task: TaskT
    engine: Engine
    sampling: SamplingSettings

    @property
    def language(self) -> LanguageModel:
        return self.engine.language

    @cached_property
    def chat(self) -> ChatFormat:
        return ChatFormat(self.language.tokenizer)

    def prompt(self, case: SituationT) -> Tokens:
        return self.chat.opening(self.task.prompt(case)[0]["content"])

    def sample(self, cases: Sequence[SituationT], group_size: int, seed: int) -> list[list[Sample]]:
        """`group_size` answers to every case; a prompt is computed once for all of them."""
        return self.engine.generate([self.prompt(case) for case in cases], group_size, self.sampling, seed=seed)

    def text(self, sample: Sample) -> str:
        """An answer without its end token."""
        ended = len(sample.tokens) and int(sample.tokens[-1]) in self.language.end_tokens
        return self.language.decode(sample.tokens[:-1] if ended else sample.tokens)

    def greedy(self, cases: Sequence[SituationT]) -> list[Sample]:
        sampling = self.sampling.model_copy(update={"temperature": 0.0})
        found = self.engine.generate([self.prompt(case) for case in cases], 1, sampling)
        return [sample for (sample,) in found]

    def __call__(self, cases: Sequence[SituationT]) -> list[str]:
        """The greedy answer to each case: what evaluation and planning ask for."""
        return [self.text(sample) for sample in self.greedy(cases)]
