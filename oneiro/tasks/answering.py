"""A language model that answers in text: one question, one answer, one verified reward.

`AnsweringModel` is a model at work: situations in, answers out. Beside it: the token rows that it learns from, and
answers as episodes. `oneiro.tasks.task.AnsweringTask` puts them together.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, Generic, TypeVar, overload

import numpy as np

from oneiro.episode import Episode, FinishReason, Row, Sample, Segment, Tokens, given
from oneiro.models import language as languages
from oneiro.models.chat import ChatFormat
from oneiro.models.language import LanguageModel
from oneiro.models.settings import ModelSettings
from oneiro.runtime import seeds
from oneiro.runtime.clock import spent
from oneiro.sampling.engine import Engine, SamplingSettings
from oneiro.tasks.base import Predictor, Reward

AT_ONCE = 1024
"""Questions answered between two moves of a progress bar."""

TaskT = TypeVar("TaskT", bound=Predictor[Any, Any, Any, Any])
SituationT = TypeVar("SituationT")
CaseT = TypeVar("CaseT")


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
        return self.language.text(sample.tokens)

    def greedy(
        self, cases: Sequence[SituationT], advance: Callable[[int], object] = lambda count: None
    ) -> list[Sample]:
        sampling, samples = self.sampling.model_copy(update={"temperature": 0.0}), list[Sample]()
        for start in range(0, len(cases), AT_ONCE):
            prompts = [self.prompt(case) for case in cases[start : start + AT_ONCE]]
            samples += [sample for (sample,) in self.engine.generate(prompts, 1, sampling)]
            advance(len(prompts))
        return samples

    def __call__(self, cases: Sequence[SituationT]) -> list[str]:
        """The greedy answer to each case: what evaluation and planning ask for."""
        return [self.text(sample) for sample in self.greedy(cases)]


def true_rows(
    task: Predictor[CaseT, Any, str, Any],
    chat: ChatFormat,
    cases: Iterable[CaseT],
    answer: Callable[[CaseT], str] | None = None,
) -> list[Row]:
    """Prompts with their true answers (`Predictor.target`, or what else is named) as token rows."""
    answer = answer or task.target
    return [chat.answer_row(chat.opening(task.prompt(case)[0]["content"]), answer(case)) for case in cases]


def dense_row(chat: ChatFormat, pieces: Iterable[tuple[str, bool]], target: str) -> Row:
    """A prompt with its answer, and loss also on those pieces of the prompt that are marked: where a context shows
    outcomes, a row then teaches each length of context.
    """
    parts = [(chat.before_user, False), *pieces, (chat.to_reply, False), (target, True)]
    tokens = [chat.encode(text) for text, _ in parts]
    weights = [np.full(len(ids), learned, np.float32) for ids, (_, learned) in zip(tokens, parts, strict=True)]
    end = np.array([chat.end], np.int32)
    ids, ce = np.concatenate([*tokens, end]), np.concatenate([*weights, np.ones(1, np.float32)])
    return Row([Segment(ids, role="assistant", weights={"ce": ce})])


class LazyRows(Sequence[Row]):
    """Rows of SFT, made when they are learned: each has rules of its own, and there may be hundreds of thousands."""

    def __init__(self, make: Callable[[int], Row], rows: int) -> None:
        self.make, self.rows = make, rows

    def __len__(self) -> int:
        return self.rows

    @overload
    def __getitem__(self, number: int) -> Row: ...
    @overload
    def __getitem__(self, number: slice) -> list[Row]: ...
    def __getitem__(self, number: int | slice) -> Row | list[Row]:
        if isinstance(number, slice):
            return [self[place] for place in range(self.rows)[number]]
        return self.make(range(self.rows)[number])


class SharedPrompts:
    """Token rows whose prompts begin alike: that part is a segment of its own, which a group of rows shares."""

    def __init__(self, chat: ChatFormat) -> None:
        self.chat = chat
        self.shared = lru_cache(maxsize=512)(self._shared)

    def row(self, shared: str, own: str, answer: str) -> Row:
        """The two parts of a prompt, and its answer: the loss is on the answer and its end."""
        chat = self.chat
        return Row(
            [
                given(self.shared(shared)),
                given(np.concatenate([chat.encode(own), chat.encode(chat.to_reply)])),
                given(chat.encode(answer), "assistant", ce=1.0),
                given([chat.end], "assistant", ce=1.0),
            ],
            shared_segments=1,
        )

    def _shared(self, text: str) -> Tokens:
        return np.concatenate([self.chat.encode(self.chat.before_user), self.chat.encode(text)])


def create_tiny(
    settings: ModelSettings,
    task: Predictor[CaseT, Any, str, Any],
    cases: Sequence[CaseT],
    seed: int,
    pieces: Callable[[Sequence[str]], Sequence[str]],
    roles: int = 8,
) -> LanguageModel:
    """Random weights, and a tokenizer trained on the prompts and answers of `cases`, in which each of the `pieces`
    found in these texts is one token.
    """
    texts = [text for case in cases for text in (task.prompt(case)[0]["content"], task.target(case))]
    return languages.create_tiny(settings, [*texts, *[languages.ROLES] * roles], seed, pieces(texts))


def most_often(pattern: re.Pattern[str], texts: Iterable[str], most: int, at_least: int = 1) -> list[str]:
    """What a pattern finds most often, and no less than `at_least` times."""
    counts = Counter[str]()
    for text in texts:
        counts.update(pattern.findall(text))
    ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return [piece for piece, count in ranked[:most] if count >= at_least]


# Answers as episodes --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class JudgedAnswer:
    """An answer with what it earned."""

    task: str
    """Which case was asked about."""
    world: str
    state: str
    action: str | None
    """None: nobody acted, the question is about the state alone."""
    reply: str
    prediction: str | None
    """What the reply says; None: it cannot be read."""
    next_state: str
    reward: Reward
    success: bool
    parts: Mapping[str, float]
    """What the means of a step are made of, by their metric."""

    @property
    def turn(self) -> dict[str, Any]:
        """What records and viewers show."""
        return {
            "state": self.state,
            "actions": [] if self.action is None else [{"action": self.action}],
            "reply": self.reply,
            "prediction": self.prediction,
            "next_state": self.next_state,
            "reward": self.reward.value,
        }


def play(
    model: AnsweringModel[Any, CaseT],
    cases: Sequence[CaseT],
    group_size: int,
    seed: int,
    judge: Callable[[CaseT, str], JudgedAnswer],
) -> list[Episode]:
    """`group_size` sampled answers to each case, one episode each; a case is a group."""
    prompts = list(map(model.prompt, cases))
    samples = model.engine.generate(prompts, group_size, model.sampling, seed=seed)
    with spent("scoring"):
        return [
            episode(judge(case, model.text(sample)), sample, prompt, group, member)
            for group, (case, prompt, answers) in enumerate(zip(cases, prompts, samples, strict=True))
            for member, sample in enumerate(answers)
        ]


def episode(judged: JudgedAnswer, sample: Sample, prompt: Tokens, group: int = 0, member: int = 0) -> Episode:
    """The episode of one answer: its prompt was given, its tokens were sampled."""
    return Episode(
        rows=[Row([given(prompt), *sample.segments(turn=1)])],
        rewards=[judged.reward.value],
        terms={name: [value] for name, value in judged.reward.terms.items()},
        success=judged.success,
        finish_reason=FinishReason.LENGTH if sample.finish_reason is FinishReason.LENGTH else FinishReason.TURNS,
        member=member,
        group=group,
        task=judged.task,
        world=judged.world,
        info={"turns": [judged.turn], "parts": {**judged.parts, "malformed": float(judged.prediction is None)}},
    )


def means(rows: Iterable[Mapping[str, float]], prefix: str = "") -> dict[str, float]:
    parts: dict[str, list[float]] = {}
    for row in rows:
        for name, value in row.items():
            parts.setdefault(prefix + name, []).append(value)
    return {name: sum(values) / len(values) for name, values in sorted(parts.items())}


def describe(episodes: Sequence[Episode]) -> dict[str, float]:
    """What a step's answers were like."""
    return means({**e.info["parts"], "truncated": float(e.finish_reason is FinishReason.LENGTH)} for e in episodes)


def some(cases: Sequence[CaseT], count: int, seed: int, name: str) -> list[CaseT]:
    """At most `count` cases, drawn evenly and in their order; 0: all. `name` belongs to the seed."""
    if not count or count >= len(cases):
        return list(cases)
    return [cases[int(i)] for i in sorted(seeds.generator(seed, name).permutation(len(cases))[:count])]
