"""Tasks that a language model answers in text: one question, one answer, one verified reward.

`AnsweringModel` is a model at work: situations in, answers out. `AnsweringTask` is what text games and web pages share
inside an RLVR run: data and `tiny`, SFT on true answers, groups of sampled answers, greedy answers to test cases.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, ClassVar, Generic, TypeVar, overload

import numpy as np

from oneiro.episode import Episode, FinishReason, Row, Sample, Segment, Tokens, given
from oneiro.learning import stages
from oneiro.learning.settings import SftSettings
from oneiro.learning.stages import Curve, Rollout
from oneiro.models import language as languages
from oneiro.models.chat import ChatFormat
from oneiro.models.language import LanguageModel
from oneiro.models.metadata import ModelMetadata
from oneiro.models.settings import ModelSettings
from oneiro.report.episodes import record
from oneiro.rundir.records import read_log
from oneiro.rundir.run import METRICS
from oneiro.runtime import seeds
from oneiro.runtime.clock import spent
from oneiro.sampling.engine import Engine, SamplingSettings
from oneiro.tasks.base import Predictor, Reward
from oneiro.tasks.recipe import AnsweringRecipe
from oneiro.tasks.task import AFTER, BEFORE, CONTROL, RL, Task

SFT = "sft"
CONTINUED, BUDGET = "sft-continued", "sft-continued-budget"
"""The control of RL, and the stage before it that decides how many updates fit into RL's seconds."""
AT_ONCE = 1024
"""Questions answered between two moves of a progress bar."""
CURVES = (
    Curve("Cross-entropy of SFT", "ce", {"SFT": SFT}),
    Curve("Unreadable answers", "malformed", {AFTER: RL}, "%"),
    Curve("Reward std within groups", "group_std", {AFTER: RL}),
    Curve("Entropy", "entropy", {AFTER: RL}),
    Curve("Tokens of an answer", "response_length", {AFTER: RL}),
    Curve("Largest sampler-learner difference in log-probability", "mismatch", {AFTER: RL}),
)
"""What the report plots of every answering task, after the task's own curves."""

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


def true_rows(task: Predictor[CaseT, Any, str, Any], chat: ChatFormat, cases: Iterable[CaseT]) -> list[Row]:
    """Prompts with their true answers as token rows."""
    return [chat.answer_row(chat.opening(task.prompt(case)[0]["content"]), task.target(case)) for case in cases]


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
    samples = model.sample(cases, group_size, seed)
    with spent("scoring"):
        return [
            episode(judge(case, model.text(sample)), sample, model.prompt(case), group, member)
            for group, (case, answers) in enumerate(zip(cases, samples, strict=True))
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


# In a run -------------------------------------------------------------------------------------------------------------


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


class AnsweringTask(Task, Generic[TaskT, CaseT]):
    """One subject inside one run of RLVR: the stages before RL, and what RL samples."""

    recipe: AnsweringRecipe
    validation_metric: ClassVar[str]
    """What chooses the weights that are kept, where `rl.select` names none."""

    @property
    @abstractmethod
    def predictor(self) -> TaskT:
        """What writes the questions and scores the answers."""

    @abstractmethod
    def record_data(self) -> dict[str, Any]:
        """The stage `data`."""

    @abstractmethod
    def create_tiny(self) -> LanguageModel:
        """`tiny` with random weights and a tokenizer of the task's own texts."""

    @property
    @abstractmethod
    def metadata(self) -> ModelMetadata:
        """What travels with the weights."""

    @abstractmethod
    def training_rows(self, chat: ChatFormat) -> tuple[Sequence[Row], Sequence[int] | None]:
        """What SFT learns from, and how many rows each group has whose prompts share a beginning."""

    def held_out_rows(self, chat: ChatFormat, count: int) -> Sequence[Row]:
        """What the loss of SFT is measured on."""
        return true_rows(self.predictor, chat, self.validation_cases(count))

    @abstractmethod
    def training_cases(self, chat: ChatFormat) -> Callable[[int], CaseT]:
        """The endless list of cases that RL goes through."""

    @abstractmethod
    def judge(self, case: CaseT, text: str) -> JudgedAnswer:
        """One answer with what it earned."""

    @abstractmethod
    def validation_cases(self, count: int) -> Sequence[CaseT]:
        """Cases that are answered during RL."""

    @abstractmethod
    def grade(self, case: CaseT, text: str) -> Mapping[str, float]:
        """What the means of an evaluation on the way are made of, by their metric."""

    def accuracy(self, model: AnsweringModel[TaskT, Any], cases: Sequence[CaseT], prefix: str) -> dict[str, float]:
        """Means over greedy answers to a few cases, as metrics `PREFIX_...`."""
        return means((self.grade(case, text) for case, text in zip(cases, model(cases), strict=True)), f"{prefix}_")

    @property
    def before(self) -> str:
        return "SFT" if self.recipe.sft_data.rows else BEFORE

    @property
    def first_stages(self) -> list[str]:
        return ["data", "model", *([SFT] if self.recipe.sft_data.rows else [])]

    def prepare(self) -> None:
        self.run.stage("data", self.record_data, main_only=True)
        create = self.create_tiny
        self.run.stage("model", lambda: stages.make_base(self.run, self.recipe.model, create), main_only=True)

    def supervise(self) -> str | None:
        if not self.recipe.sft_data.rows:
            return None
        self.run.stage(SFT, self._sft)
        return SFT

    def _sft(self) -> dict[str, Any]:
        """Learn right answers, as far as the recipe goes."""
        recipe, language = self.recipe, self.model(None)
        chat, seed, count = ChatFormat(language.tokenizer), seeds.derive(recipe.seed, "sft"), recipe.sft_data.held_out
        rows, group_sizes = self.training_rows(chat)
        held_out = self.held_out_rows(chat, count) if count else []
        steps = stages.supervise(self.run, SFT, "SFT", language, rows, held_out, recipe.sft, seed, group_sizes)
        return {"rows": len(rows), "steps": steps}

    @property
    def control_stages(self) -> list[str]:
        return [BUDGET, CONTINUED] if self.recipe.sft_continued else []

    def control(self, start: str | None) -> str | None:
        settings, recipe = self.recipe.sft_continued, self.recipe
        if settings is None:
            return None

        def begin() -> tuple[LanguageModel, list[Row]]:
            """The weights that RL started from, and the true answers to every prompt that it sampled answers to."""
            language = self.model(start)
            language = languages.merge_adapters(language) if recipe.merge_lora else language
            chat = ChatFormat(language.tokenizer)
            steps = max((row["step"] for row in read_log(self.run.path / METRICS) if row["stage"] == RL), default=1)
            cases = map(self.training_cases(chat), range(steps * recipe.rollout.prompts_per_step))
            return language, list(true_rows(self.predictor, chat, cases))

        def count() -> dict[str, Any]:
            seconds = stages.training_seconds(self.run, RL)
            return {"steps": stages.count_updates(*begin(), settings.learner, settings.batch, seconds)}

        def train() -> dict[str, Any]:
            language, rows = begin()
            sft = SftSettings(
                learner=settings.learner,
                batch=settings.batch,
                epochs=steps * settings.batch / len(rows),
                checkpoint_every=settings.checkpoint_every,
            )
            seed = seeds.derive(recipe.seed, CONTINUED)
            return {
                "rows": len(rows),
                "steps": stages.supervise(self.run, CONTINUED, CONTROL, language, rows, [], sft, seed),
            }

        # Its own stage: a run that is resumed makes as many updates as it would have made.
        steps = self.run.stage(BUDGET, count)["steps"]
        self.run.stage(CONTINUED, train)
        return CONTINUED

    def model(self, stage: str | None) -> LanguageModel:
        return self.metadata.write(stages.weights_after(self.run, [stage], self.recipe.model))

    def answering(self, engine: Engine) -> AnsweringModel[TaskT, Any]:
        return AnsweringModel(self.predictor, engine, self.recipe.sampling)

    def rollout(self, engine: Engine) -> Rollout:
        recipe, model = self.recipe, self.answering(engine)
        case = self.training_cases(model.chat)
        count, group_size = recipe.rollout.prompts_per_step, recipe.rollout.group_size

        def play_step(step: int) -> list[Episode]:
            cases = [case(number) for number in range(step * count, (step + 1) * count)]
            return play(model, cases, group_size, seeds.derive(recipe.seed, "rl", step), self.judge)

        def validate() -> dict[str, float]:
            cases = self.validation_cases(recipe.rl.select.cases if recipe.rl.select else 0)
            return self.accuracy(model, cases, "validation")

        return Rollout(
            play_step,
            record,
            describe,
            evaluate=lambda step: self.accuracy(model, self.validation_cases(recipe.evaluation.eval_subset), "eval"),
            max_tokens=recipe.sampling.max_tokens,
            validate=validate,
            validation_metric=self.validation_metric,
        )

    def answers(self, model: AnsweringModel[TaskT, Any], cases: Sequence[Any], stage: str) -> dict[str, str]:
        """The greedy answer to each case, by its id; kept as episodes of the stage."""
        with self.run.progress(stage, len(cases)) as bar:
            samples = model.greedy(cases, bar.advance)
        answers = {case.id: model.text(sample) for case, sample in zip(cases, samples, strict=True)}
        episodes = [
            episode(self.judge(case, answers[case.id]), sample, model.prompt(case), number)
            for number, (case, sample) in enumerate(zip(cases, samples, strict=True))
        ]
        self.run.episodes(stage, 0, [record(one) for one in episodes])
        return answers
