"""What the recipes of RLVR tasks share; read without torch."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field, model_validator

from oneiro.learning.rl_settings import RlSettings, RolloutSettings
from oneiro.learning.settings import CollapseMonitorSettings, SftContinuedSettings, SftSettings
from oneiro.models.settings import ModelSettings
from oneiro.recipe import Recipe, Settings
from oneiro.runtime.errors import OneiroError
from oneiro.sampling.settings import SamplingSettings


class OnTheWay(Settings):
    """Evaluation during RL."""

    every: int = Field(0, ge=0)
    """Steps of RL between evaluations on the way, the first before any update; 0: only at the end."""


class ControlSettings(SftContinuedSettings):
    """The control learns the true answers to RL's questions."""

    times: int = Field(1, ge=1)
    """Questions for each one that RL had. 1: exactly RL's. More: also those that RL would have had next, since SFT has
    time for many and learns the same few by heart.
    """


class RlvrRecipe(Recipe):
    """RL from verified rewards, whatever is predicted."""

    pipeline: ClassVar[str] = "oneiro.systems.rlvr"
    task_class: ClassVar[str]
    """`module:Class` of the `Task` that fills the pipeline in; imported when a run begins, because it needs torch."""
    sampling: SamplingSettings = SamplingSettings()
    max_batch_size: int = Field(256, ge=1)
    """Rows decoded at once."""
    rollout: RolloutSettings = RolloutSettings()
    rl: RlSettings = RlSettings()
    sft_continued: ControlSettings | None = None
    """Train and measure the control of RL too; None: no control."""
    collapse_monitor: CollapseMonitorSettings = CollapseMonitorSettings(every=0)
    evaluation: OnTheWay = OnTheWay()
    merge_lora: bool = True
    """Merge an adapter that supervised training learned into the weights before RL, which then updates all of them."""


class SftDataSettings(Settings):
    """What SFT learns from."""

    rows: int = Field(8_000, ge=0)
    """Cases sampled for SFT; 0: no SFT, RL starts from the model as it is."""
    held_out: int = Field(64, ge=0)
    """Validation cases on which the loss is measured at the end."""


class AnswerEvaluationSettings(OnTheWay):
    """Greedy answers."""

    rows: int = Field(0, ge=0)
    """Test cases that are answered, drawn evenly; 0: all."""
    eval_subset: int = Field(96, ge=1)
    """Validation cases of an evaluation on the way."""
    trajectories: int = Field(32, ge=0)
    """Episodes that are continued on the model's own predictions: accuracy against depth."""


class SupervisedRecipe(Recipe):
    """SFT of a language model that answers in text."""

    sampling: SamplingSettings = SamplingSettings()
    max_batch_size: int = Field(256, ge=1)
    """Rows decoded at once."""
    model: ModelSettings = ModelSettings()
    sft_data: SftDataSettings = SftDataSettings()
    sft: SftSettings = SftSettings()

    @property
    def weights(self) -> tuple[str, ...]:
        return (self.model.name,)

    @property
    def parameters(self) -> int | None:
        return self.model.parameters

    @model_validator(mode="after")
    def _knows_something(self) -> SupervisedRecipe:
        if self.model.name == "tiny" and not self.sft_data.rows:
            raise OneiroError("'tiny' knows nothing yet: set sft_data.rows to the number of rows that SFT learns from")
        return self


class AnsweringControlSettings(ControlSettings):
    """What the control of an answering task learns."""

    learns: Literal["questions", "demonstrations", "outcomes"] = "questions"
    """RL's questions with right answers. Or, where answers begin with reasons, which somebody must demonstrate and RL
    does without: the rows of SFT once more, or RL's questions with their outcomes alone.
    """


class AnsweringRecipe(SupervisedRecipe, RlvrRecipe):
    """RLVR of a language model that answers in text."""

    sft_continued: AnsweringControlSettings | None = None
    evaluation: AnswerEvaluationSettings = AnswerEvaluationSettings()

    @model_validator(mode="after")
    def _has_demonstrations(self) -> AnsweringRecipe:
        if self.sft_continued and self.sft_continued.learns == "demonstrations" and not self.sft_data.rows:
            raise OneiroError("sft_continued.learns=demonstrations: this recipe has none; set sft_data.rows")
        return self
