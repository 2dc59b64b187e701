"""What recipes of planning and dreaming share: how a world model and a policy are learned from play.

Read without torch.
"""

from __future__ import annotations

from typing import Any

from pydantic import Field, model_validator

from oneiro.learning.settings import SftSettings
from oneiro.models.settings import ModelSettings
from oneiro.recipe import Recipe, Settings
from oneiro.runtime.errors import OneiroError
from oneiro.sampling.settings import SamplingSettings
from oneiro.tasks.webpage.predictor import WebPagePredictorConfig
from oneiro.worlds.registry import WorldChoice, world_class
from oneiro_web.env import chosen_templates
from oneiro_web.templates.base import Template

SLOTS = "slots"
"""The page model that needs no language model (`oneiro.tasks.webpage.slot_model`)."""


class RandomPlaySettings(Settings):
    """The play that the model learns from. Its actions are random and its rewards are not used."""

    levels: int = Field(4000, ge=1)
    """Training levels, one episode each."""
    held_out: int = Field(300, ge=1)
    """Evaluation levels of which every step is predicted, for the accuracy of the model."""


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


class WebPlaySettings(Settings):
    """What everything is learned from."""

    demonstrations: int = Field(6, ge=1)
    """Training tasks whose oracle's actions the policy learns."""
    episodes: int = Field(200, ge=1)
    """Training tasks that the policy then plays, for the page model; their rewards are not used by it."""
    temperature: float = Field(1.0, gt=0)
    """Of the policy in this play."""


class LinearSettings(Settings):
    """SGD on a linear model, one step or case at a time."""

    epochs: int = Field(4, ge=1)
    """Passes over the demonstrations."""
    rate: float = Field(0.3, gt=0)
    """Learning rate."""


class WebRecipe(Recipe):
    """What recipes share that learn a page model and a linear policy."""

    world: WorldChoice = WorldChoice(name="web", max_actions=8)
    templates: tuple[str, ...] = ("map/show-way", "reddit/show-sorted", "gitlab/show-own")
    """Task templates; each must end on a page, whose address the task checks."""
    repeats: int = Field(3, ge=1)
    """Policies and models, each with its own demonstrations and play; the tables show their mean."""
    play: WebPlaySettings = WebPlaySettings()
    policy: LinearSettings = LinearSettings()
    """How the policy learns the demonstrations."""
    page_model: LinearSettings = LinearSettings(epochs=8)
    """How `slots` learns which outcome an action has."""
    model: ModelSettings = ModelSettings(name=SLOTS)
    """The page model: `slots`, or a language model. The policy is linear in either case."""
    task: WebPagePredictorConfig = WebPagePredictorConfig(brief=True, deletions="ids", heads=("url",))
    """How a language model is asked for a page."""
    sampling: SamplingSettings = SamplingSettings(max_tokens=768)
    max_batch_size: int = Field(256, ge=1)
    """Rows that a language model decodes at once."""
    sft: SftSettings = SftSettings()
    """How a language model learns the play's steps."""

    @model_validator(mode="after")
    def _pages(self) -> WebRecipe:
        if self.world.name != "web":
            raise OneiroError(f"{self.system} plays the world 'web', not '{self.world.name}'")
        if {"templates", "sites"} & set(self.world.settings):
            raise OneiroError("world: the tasks are named in templates")
        for template in chosen_templates((), self.templates):
            if type(template).url is Template.url:
                raise OneiroError(f"templates: {template.name} does not end on a page, so its address says nothing")
        if "url" not in self.task.heads:
            raise OneiroError("task.heads: tasks check addresses, so the page model has to predict them; add url")
        return self

    @property
    def weights(self) -> tuple[str, ...]:
        return () if self.model.name == SLOTS else (self.model.name,)

    @property
    def world_settings(self) -> dict[str, Any]:
        return {**self.world.settings, "templates": list(self.templates)}

    @property
    def parameters(self) -> int | None:
        return 0 if self.model.name == SLOTS else self.model.parameters
