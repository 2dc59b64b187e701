"""RLVR's recipe for rulebook games: every setting."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from oneiro.sampling.settings import SamplingSettings
from oneiro.tasks.recipe import AnswerEvaluationSettings, AnsweringRecipe
from oneiro.tasks.rules.rulebook.cases import RulebookDataSettings
from oneiro.tasks.rules.rulebook.predictor import RulebookPredictorConfig
from oneiro.tasks.rules.rulebook.written import WrittenDataSettings, WrittenPredictorConfig


class RulebookEvaluationSettings(AnswerEvaluationSettings):
    """Greedy answers to questions about test games."""

    lookup_rows: int = Field(20_000, ge=1)
    """Training questions that lookups look among, at most."""
    controls: bool = True
    """Ask each model twice more: with another game's rules, and with none."""


class RulebookRecipe(AnsweringRecipe):
    """Everything RLVR on rulebook games does, in order."""

    task_class: ClassVar[str] = "oneiro.tasks.rules.rulebook.task:RulebookTask"
    task: RulebookPredictorConfig = RulebookPredictorConfig()
    data: RulebookDataSettings = RulebookDataSettings()
    sampling: SamplingSettings = SamplingSettings(max_tokens=96)
    evaluation: RulebookEvaluationSettings = RulebookEvaluationSettings()


class WrittenEvaluationSettings(AnswerEvaluationSettings):
    """Greedily written rules of test games."""

    trajectories: int = Field(200, ge=0)
    """Test games in which somebody plans by search in the written rules."""


class WrittenRecipe(AnsweringRecipe):
    """Everything RLVR on written rules does, in order."""

    task_class: ClassVar[str] = "oneiro.tasks.rules.rulebook.written_task:WrittenTask"
    task: WrittenPredictorConfig = WrittenPredictorConfig()
    data: WrittenDataSettings = WrittenDataSettings()
    sampling: SamplingSettings = SamplingSettings(max_tokens=160)
    evaluation: WrittenEvaluationSettings = WrittenEvaluationSettings()
