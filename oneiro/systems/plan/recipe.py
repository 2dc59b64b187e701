"""The recipes of planning: every setting. `planning_class` is the world's part of the pipeline, `module:Class`."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field, model_validator

from oneiro.agents.learners.recipe import LakeRecipe, WebRecipe
from oneiro.agents.planning.base import PlannerSettings
from oneiro.learning.settings import SftSettings
from oneiro.recipe import Settings
from oneiro.runtime.errors import OneiroError
from oneiro.sampling.settings import SamplingSettings
from oneiro.tasks.rules.recipe import PhysicsPredictorRecipe
from oneiro.tasks.textgame.recipe import TextGameRecipe


class PlanEvaluationSettings(Settings):
    levels: int = Field(200, ge=1)
    """Distinct evaluation levels."""
    first_seed: int = 0
    """Seed of the first level."""
    vote_most: int = Field(128, ge=1)
    """Samples of a vote, at most; below that it gets the tokens that beam search takes."""
    traces: int = Field(6, ge=0)
    """Episodes whose decisions the report shows."""


PIPELINE = "oneiro.systems.plan.pipeline"
Goal = Literal["goal", "target"]


class PlanLakeRecipe(LakeRecipe):
    """A model of the lake from random play, then search."""

    pipeline: ClassVar[str] = PIPELINE
    planning_class: ClassVar[str] = "oneiro.systems.plan.lake:LakePlanning"
    planner: PlannerSettings = PlannerSettings()
    mpc: PlannerSettings = PlannerSettings(name="mpc")
    """A second planner on the same model."""
    goals: list[Goal] = Field(["goal", "target"], min_length=1)
    """`goal`: the lake's own. `target`: another cell, of which the model never heard."""
    evaluation: PlanEvaluationSettings = PlanEvaluationSettings()


class PlanTextEvaluationSettings(PlanEvaluationSettings):
    levels: int = Field(24, ge=1)
    max_actions: int = Field(20, ge=1)
    """Commands of an episode."""


class PlanTextGameRecipe(TextGameRecipe):
    """The text-game predictor of `rlvr/text-game`, a policy from demonstrations, and search in the predictor.

    `rl.steps: 0` leaves the predictor as SFT made it. `evaluation` and `planning` are those of `rlvr/text-game`, which
    this recipe does not run; its own are `play`.
    """

    pipeline: ClassVar[str] = PIPELINE
    planning_class: ClassVar[str] = "oneiro.systems.plan.textgame:TextGamePlanning"
    repeats: ClassVar[int] = 1
    demonstrations: int = Field(8, ge=1)
    """Training levels of each game whose winning plans the policy learns."""
    policy: SftSettings = SftSettings()
    policy_sampling: SamplingSettings = SamplingSettings(max_tokens=24)
    """Of the policy."""
    samples: int = Field(8, ge=1)
    """Replies of the policy that proposals are taken from."""
    planner: PlannerSettings = PlannerSettings()
    play: PlanTextEvaluationSettings = PlanTextEvaluationSettings()

    @model_validator(mode="after")
    def _whole_steps(self) -> PlanTextGameRecipe:
        if self.task.transition != "full" or not self.data.own:
            raise OneiroError("plan/text-game predicts whole steps of our own games: task.transition=full, data=own")
        if self.model.name != "tiny":
            raise OneiroError(f"{self.system} trains its models from scratch: set model.name=tiny")
        return self


class PlanPhysicsEvaluationSettings(PlanEvaluationSettings):
    max_actions: int = Field(12, ge=1)
    """Words of an episode."""


class PlanPhysicsRecipe(PhysicsPredictorRecipe):
    """The predictor of `rlvr/physics` as SFT makes it, a policy from its weights, and search in the predictor.

    With `model` the folder of a trained predictor and `sft_data.rows: 0` nothing is trained but the policy.
    """

    pipeline: ClassVar[str] = PIPELINE
    planning_class: ClassVar[str] = "oneiro.systems.plan.physics:PhysicsPlanning"
    repeats: ClassVar[int] = 1
    policy_rows: int = Field(20_000, ge=1)
    """Best actions that the policy learns, each in a room and under rules of its own."""
    policy: SftSettings = SftSettings()
    planner: PlannerSettings = PlannerSettings(depth=12, width=25)
    play: PlanPhysicsEvaluationSettings = PlanPhysicsEvaluationSettings()


class PlanWebEvaluationSettings(Settings):
    tasks: int = Field(60, ge=1)
    """Distinct tasks on contents that training never has."""
    first_seed: int = 0
    """Seed of the first task."""
    vote_most: int = Field(256, ge=1)
    """Samples of a vote, at most; below that it gets the tokens that beam search takes."""
    traces: int = Field(4, ge=0)
    """Episodes whose decisions the report shows."""


class PlanWebRecipe(WebRecipe):
    """A page model from play without rewards, then search with a value from the same play and its rewards."""

    pipeline: ClassVar[str] = PIPELINE
    planning_class: ClassVar[str] = "oneiro.systems.plan.web:WebPlanning"
    planner: PlannerSettings = PlannerSettings(depth=3, width=3, proposals=5, prior=0.5, discount=1.0)
    least: float = Field(0.001, ge=0, le=1)
    """An action is proposed if its probability is at least this share of the likeliest one's."""
    value: Literal["learned", "address"] = "learned"
    """Who says what pages are worth: a value learned from the play and its rewards, or the task's own check, which
    tells the planner the address that no other row knows."""
    evaluation: PlanWebEvaluationSettings = PlanWebEvaluationSettings()


PlanRecipe = PlanLakeRecipe | PlanTextGameRecipe | PlanPhysicsRecipe | PlanWebRecipe
