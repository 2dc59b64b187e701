"""What the recipes of all RLVR tasks share."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from oneiro.learning.rl_settings import RlSettings, RolloutSettings
from oneiro.learning.settings import CollapseMonitorSettings
from oneiro.recipe import Recipe, Settings
from oneiro.sampling.settings import SamplingSettings


class OnTheWay(Settings):
    """Evaluation during RL."""

    every: int = Field(0, ge=0)
    """Steps of RL between evaluations on the way, the first before any update; 0: only at the end."""


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
    collapse_monitor: CollapseMonitorSettings = CollapseMonitorSettings(every=0)
    evaluation: OnTheWay = OnTheWay()
    merge_lora: bool = True
    """Merge an adapter that supervised training learned into the weights before RL, which then updates all of them."""
