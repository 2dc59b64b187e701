"""RLVR's recipes for drawn physics, rulebook games and written rules: every setting."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field, field_validator, model_validator

from oneiro.recipe import Settings
from oneiro.runtime.errors import OneiroError
from oneiro.sampling.settings import SamplingSettings
from oneiro.tasks.recipe import AnswerEvaluationSettings, AnsweringRecipe, OnTheWay, SupervisedRecipe
from oneiro.tasks.rules.physics import PhysicsPredictorConfig
from oneiro.tasks.rules.rulebook.cases import RulebookDataSettings
from oneiro.tasks.rules.rulebook.predictor import RulebookPredictorConfig
from oneiro.tasks.rules.rulebook.written import WrittenDataSettings, WrittenPredictorConfig
from oneiro.worlds.rules.rulebook.drawing import RULES


class PhysicsDataSettings(Settings):
    """How much of the drawn family is seen."""

    context: tuple[int, ...] = (0, 4, 8, 16)
    """Steps of the same physics that a prompt may show, four from one room."""
    test_physics: int = Field(64, ge=2)
    """Rules of the test: words and pairs of twists that training never has. Intervals are over these."""
    queries: int = Field(4, ge=1)
    """Questions about each of them, each with a context of its own."""
    lookup: int = Field(20_000, ge=1)
    """Training steps that the lookups remember."""

    @field_validator("context")
    @classmethod
    def _whole_rooms(cls, steps: tuple[int, ...]) -> tuple[int, ...]:
        if len(steps) < 2 or any(count < 0 or count % 4 for count in steps) or list(steps) != sorted(set(steps)):
            raise ValueError("give two or more rising multiples of 4: a room of the context shows four steps")
        return steps


class PhysicsEvaluationSettings(OnTheWay):
    """Greedy answers."""

    eval_subset: int = Field(96, ge=1)
    """Validation cases of an evaluation on the way."""


class PhysicsPredictorRecipe(SupervisedRecipe):
    """A predictor of drawn physics as SFT makes it: what `rlvr/physics` and `plan/physics` share."""

    task: PhysicsPredictorConfig = PhysicsPredictorConfig()
    data: PhysicsDataSettings = PhysicsDataSettings()
    sampling: SamplingSettings = SamplingSettings(max_tokens=4)
    full_share: float = Field(0.6, ge=0, le=1)
    """Of the prompts that SFT and RL learn from, those with the longest context; the others have any."""
    simple_share: float = Field(0.6, ge=0, le=1)
    """Of the rules that training draws, those with one twist or none: what a word does is plainer there."""
    free_share: float = Field(0.0, ge=0, le=1)
    """Of the rules that training draws, those whose words lead anywhere instead of each another way: a small model
    otherwise learns the few meanings of training by heart, and takes new ones for them."""


class PhysicsRecipe(PhysicsPredictorRecipe, AnsweringRecipe):
    """Everything RLVR on drawn physics does, in order."""

    task_class: ClassVar[str] = "oneiro.tasks.rules.physics_task:PhysicsTask"
    evaluation: PhysicsEvaluationSettings = PhysicsEvaluationSettings()  # type: ignore[assignment]


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

    @model_validator(mode="after")
    def _answerable(self) -> RulebookRecipe:
        if self.task.objects == "named" and self.data.rules[1] >= RULES[0]:
            raise OneiroError(
                f"task.objects=named hides objects that rules of the clock change; keep data.rules below {RULES[0]}"
            )
        return self


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
