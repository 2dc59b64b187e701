"""What one subject fills into RLVR: data, prompts, rollouts, rewards, evaluation and baselines; and what subjects
share whose questions a language model answers in text.

A task belongs to one run: it reads the run's recipe and writes into its folder. `oneiro.systems.rlvr` decides the
order.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, Generic, TypeVar

from oneiro.episode import Episode, Row
from oneiro.learning import stages
from oneiro.learning.collapse import CollapseMonitor
from oneiro.learning.stages import BUDGET, CONTINUED, CONTROL, Curve, Lesson, Rollout
from oneiro.models.chat import ChatFormat
from oneiro.models.language import LanguageModel, merge_adapters
from oneiro.models.metadata import ModelMetadata
from oneiro.report.episodes import record
from oneiro.rundir.records import read_log
from oneiro.rundir.run import METRICS, Run
from oneiro.runtime import seeds
from oneiro.sampling.engine import Engine
from oneiro.tasks.answering import AnsweringModel, JudgedAnswer, LazyRows, describe, episode, means, play, true_rows
from oneiro.tasks.base import Predictor
from oneiro.tasks.recipe import AnsweringRecipe, RlvrRecipe

RL = "rl"
"""The stage of RL."""
BEFORE, AFTER = "base", "RLVR"
"""The two models that a run compares, by the names of their rows."""
SFT = "sft"
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
CaseT = TypeVar("CaseT")


def evaluation_stage(row: str) -> str:
    return {AFTER: "evaluate-rlvr", CONTROL: "evaluate-sft-continued"}.get(row, "evaluate-base")


class Task(ABC):
    """One modality inside one run."""

    curves: ClassVar[Sequence[Curve]]
    """What the report plots."""

    def __init__(self, recipe: RlvrRecipe, run: Run) -> None:
        self.recipe, self.run = recipe, run

    @property
    def before(self) -> str:
        """The row of the model that RL starts from."""
        return BEFORE

    @property
    @abstractmethod
    def first_stages(self) -> Sequence[str]:
        """The stages of `prepare` and `supervise`, in order."""

    @abstractmethod
    def prepare(self) -> None:
        """The stages before training: data, tokenizer, the weights that training starts from."""

    @abstractmethod
    def supervise(self) -> str | None:
        """Supervised training on true outcomes, as a stage; returns its name, or None where the recipe has none."""

    @abstractmethod
    def model(self, stage: str | None) -> LanguageModel:
        """The weights after a stage (None: those that training starts from), with their metadata."""

    @abstractmethod
    def rollout(self, engine: Engine) -> Rollout:
        """What a step of RL samples and how it is rewarded."""

    def reinforce(self, start: str | None) -> dict[str, Any]:
        """RL on the verified reward, from the weights after a stage; ends early when nothing is left to learn from."""
        recipe, language = self.recipe, self.model(start)
        return stages.reinforce(
            self.run,
            RL,
            AFTER,
            merge_adapters(language) if recipe.merge_lora else language,
            self.rollout,
            settings=recipe.rl,
            seed=seeds.derive(recipe.seed, "rl updates"),
            monitor=CollapseMonitor(recipe.collapse_monitor),
            max_batch_size=recipe.max_batch_size,
            evaluate_every=recipe.evaluation.every,
        )

    @property
    def control_stages(self) -> list[str]:
        return [BUDGET, CONTINUED] if self.recipe.sft_continued else []

    def control(self, start: str | None) -> str | None:
        """Train the control of RL from the weights after a stage; returns its stage, or None where there is none."""
        settings, recipe = self.recipe.sft_continued, self.recipe
        if settings is None:
            return None

        def begin() -> Lesson:
            """The weights that RL started from, and what the control learns."""
            language = self.model(start)
            language = merge_adapters(language) if recipe.merge_lora else language
            steps = max((row["step"] for row in read_log(self.run.path / METRICS) if row["stage"] == RL), default=1)
            return language, *self.control_rows(language, steps * settings.times)

        seconds = partial(stages.training_seconds, self.run, RL)
        stages.continue_sft(self.run, settings, begin, seconds, seeds.derive(recipe.seed, CONTINUED))
        return CONTINUED

    @abstractmethod
    def control_rows(self, language: LanguageModel, steps: int) -> tuple[Sequence[Row], Sequence[int] | None]:
        """What the control of so many steps of RL learns, in groups as `training_rows` has them."""

    @abstractmethod
    def evaluate(self, engine: Engine, name: str) -> dict[str, Any]:
        """The measurements of one model on held-out cases, as plain JSON."""

    @abstractmethod
    def compare(self, measured: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
        """`tables` (with baselines and ceiling), `notes`, and `images` where there are any."""


def intervals_apart(before: float | None, after: float | None) -> str:
    """What the upper bound of the first and the lower bound of the second say of the difference."""
    if before is None or after is None:
        return "too few cases to compare"
    return "the intervals do not overlap" if after > before else "the intervals overlap"


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

    def control_rows(self, language: LanguageModel, steps: int) -> tuple[Sequence[Row], Sequence[int] | None]:
        chat, settings = ChatFormat(language.tokenizer), self.recipe.sft_continued
        assert settings is not None  # else there is no control
        if settings.learns == "demonstrations":
            return self.training_rows(chat)
        case = self.training_cases(chat)
        prompts = steps * self.recipe.rollout.prompts_per_step
        answer = self.predictor.outcome if settings.learns == "outcomes" else self.predictor.target
        return LazyRows(lambda number: true_rows(self.predictor, chat, [case(number)], answer)[0], prompts), None

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
