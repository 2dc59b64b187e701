"""Dyna's recipes: every setting. `variant_class` is the world's part of the pipeline, `module:Class`."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from oneiro.agents.learners.recipe import LakeRecipe, WebRecipe
from oneiro.learning.rl_settings import RlSettings, RolloutSettings
from oneiro.learning.settings import SftSettings
from oneiro.recipe import Settings

PIPELINE = "oneiro.systems.dyna.pipeline"
LakeVariantName = Literal["real-only", "dream-only", "mixed"]
Variant = Literal["real-only", "replay", "dream-only", "mixed"]


class DynaSettings(Settings):
    """Rounds of RL, and where their episodes are played."""

    rounds: int = Field(4, ge=1)
    """RL stages of `rl.steps` each; after each the model is refreshed and everything is measured."""
    real_share: float = Field(0.125, ge=0, le=1)
    """Part of the levels of `mixed` and `replay` that are played in the true world."""
    max_gap: float = Field(0.2, gt=0)
    """A variant that dreams stops when its success in dreams and its true success differ by more than this. Above the
    truth, the policy exploits the model; below it, the model cannot teach what the world allows."""


class DynaEvaluationSettings(Settings):
    levels: int = Field(128, ge=1)
    """Distinct evaluation levels."""
    samples: int = Field(2, ge=1)
    """Attempts at each."""
    first_seed: int = 0
    """Seed of the first level."""


class DynaLakeRecipe(LakeRecipe):
    """RL of a policy on a lake: in the true world, in a learned one, or in both."""

    pipeline: ClassVar[str] = PIPELINE
    variant_class: ClassVar[str] = "oneiro.systems.dyna.lake:LakeVariant"
    variants: list[LakeVariantName] = Field(["real-only", "dream-only", "mixed"], min_length=1)
    """Where RL plays: the true world, the model, or both."""
    dyna: DynaSettings = DynaSettings()
    refresh: SftSettings = SftSettings()
    """How the model goes on learning after each round, on all true steps so far."""
    rollout: RolloutSettings = RolloutSettings()
    rl: RlSettings = RlSettings()
    """One round of RL."""
    evaluation: DynaEvaluationSettings = DynaEvaluationSettings()


class WebRlSettings(Settings):
    """RL of the linear policy: GRPO, where a reply counts as one token."""

    steps: int = Field(3, ge=1)
    """Of a round."""
    epochs: int = Field(1, ge=1)
    """Passes over a step's replies."""
    rate: float = Field(0.015, gt=0)
    """Learning rate of the linear policy."""
    temperature: float = Field(1.0, gt=0)
    """Of the policy in RL."""


class DynaWebEvaluationSettings(Settings):
    tasks: int = Field(40, ge=1)
    """Distinct tasks on contents that training never has; one attempt each."""
    temperature: float = Field(1.0, ge=0)
    """Of the policy, as in RL; 0: greedy."""
    first_seed: int = 0
    """Seed of the first task."""


class DynaWebRecipe(WebRecipe):
    """RL of a linear policy on the web: in the true web, in a page model, or in both."""

    pipeline: ClassVar[str] = PIPELINE
    variant_class: ClassVar[str] = "oneiro.systems.dyna.web:WebVariant"
    variants: list[Variant] = Field(["real-only", "replay", "mixed"], min_length=1)
    """Where RL plays: the true web, the model, or both. `replay` is the control of `mixed`: as many true episodes, and
    in the place of dreams earlier true episodes.
    """
    dyna: DynaSettings = DynaSettings(real_share=0.25)
    refresh: SftSettings = SftSettings()
    """How a language model of pages goes on learning after each round, on all true steps so far."""
    rollout: RolloutSettings = RolloutSettings()
    rl: WebRlSettings = WebRlSettings()
    """One round of RL."""
    evaluation: DynaWebEvaluationSettings = DynaWebEvaluationSettings()
