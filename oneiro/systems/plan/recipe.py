"""The recipes of planning: every setting."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field, model_validator

from oneiro.agents.planning.settings import PlannerSettings
from oneiro.learning.settings import SftSettings
from oneiro.models.settings import ModelSettings
from oneiro.recipe import Recipe, Settings
from oneiro.runtime.errors import OneiroError
from oneiro.sampling.settings import SamplingSettings
from oneiro.tasks.textgame.recipe import TextGameRecipe
from oneiro.worlds.choice import WorldChoice
from oneiro.worlds.registry import world_class


class RandomPlaySettings(Settings):
    """The play that the model learns from. Its actions are random and its rewards are not used."""

    levels: int = Field(4000, ge=1)
    """Training levels, one episode each."""
    held_out: int = Field(300, ge=1)
    """Evaluation levels of which every step is predicted, for the accuracy of the model."""


class PlanEvaluationSettings(Settings):
    levels: int = Field(200, ge=1)
    """Distinct evaluation levels."""
    first_seed: int = 0
    vote_most: int = Field(128, ge=1)
    """Samples of a vote, at most; below that it gets the tokens that beam search takes."""
    traces: int = Field(6, ge=0)
    """Episodes whose decisions the report shows."""


Goal = Literal["goal", "target"]


class LakeRecipe(Recipe):
    """What recipes share that learn a model of the lake and a policy from random play."""

    world: WorldChoice = WorldChoice(name="frozen-lake", view="spaced")
    model: ModelSettings = ModelSettings()
    """World model and policy, each of this size."""
    repeats: int = Field(3, ge=1)
    """Models trained from scratch, each with its own play, weights and order; the tables show their mean."""
    play: RandomPlaySettings = RandomPlaySettings()
    sft: SftSettings = SftSettings()
    """How the world model learns."""
    policy: SftSettings = SftSettings()
    """How the policy learns from the same play: the best actions that its successful episodes know of."""
    sampling: SamplingSettings = SamplingSettings(max_tokens=48)
    """Of the world model."""
    max_batch_size: int = Field(512, ge=1)
    """Rows decoded at once."""

    @model_validator(mode="after")
    def _lakes(self) -> LakeRecipe:
        if world_class(self.world.name).name != "frozen-lake":
            raise OneiroError(f"{self.system} is about lakes; world.name is {self.world.name}, set frozen-lake")
        if self.model.name != "tiny":
            raise OneiroError(f"{self.system} trains its models from scratch: set model.name=tiny")
        return self

    @property
    def parameters(self) -> int | None:
        return self.model.parameters


class PlanLakeRecipe(LakeRecipe):
    """A model of the lake from random play, then search."""

    pipeline: ClassVar[str] = "oneiro.systems.plan.frozen_lake"
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

    pipeline: ClassVar[str] = "oneiro.systems.plan.text_game"
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
