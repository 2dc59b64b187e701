"""RLVR's recipe for web pages: every setting."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field, model_validator

from oneiro.recipe import Settings
from oneiro.runtime.errors import OneiroError
from oneiro.runtime.files import require_path
from oneiro.sampling.settings import SamplingSettings
from oneiro.tasks.recipe import AnsweringRecipe
from oneiro.tasks.webpage.predictor import WebPagePredictorConfig


class WebPageDataSettings(Settings):
    """Where the steps come from."""

    train: str = ""
    """A parquet file of training steps (`oneiro data web`); without one the run records its own."""
    test: str = ""
    """A parquet file of test steps, where `train` is one."""
    sites: tuple[str, ...] = ("reddit",)
    """Sites whose tasks are played."""
    policy: Literal["random", "oracle", "mixture", "tinker"] = "mixture"
    """Who plays. A mixture takes some of the oracle's actions and others at random; `tinker` tries the controls of a
    page instead."""
    oracle_share: float = Field(0.85, ge=0, le=1)
    """mixture, tinker: chance that an action is the oracle's."""
    content: bool = False
    """Keep only steps inside a page whose change is a copy, a permutation or a sum of what is shown."""
    episodes: int = Field(300, ge=1)
    """Training tasks: other content and other templates than the test tasks have."""
    test_episodes: int = Field(60, ge=1)
    """Test tasks."""
    steps: int = Field(12, ge=1)
    """Steps of an episode that are recorded."""
    probes: float = Field(0.15, ge=0, le=1)
    """Chance, before each step, of an action that should do nothing."""

    @model_validator(mode="after")
    def _both_files(self) -> WebPageDataSettings:
        if bool(self.train) != bool(self.test):
            raise OneiroError("data.train and data.test go together: give both parquet files, or neither")
        return self


class WebPageRecipe(AnsweringRecipe):
    """Everything RLVR on web pages does, in order."""

    task_class: ClassVar[str] = "oneiro.tasks.webpage.task:WebPageTask"
    task: WebPagePredictorConfig = WebPagePredictorConfig()
    data: WebPageDataSettings = WebPageDataSettings()
    sampling: SamplingSettings = SamplingSettings(max_tokens=512)
    changed_share: float = Field(0.85, ge=0, le=1)
    """Of the steps that SFT and RL sample, those that change the page."""
    max_prompt: int = Field(0, ge=0)
    """Longest prompt in tokens; training steps with longer ones are left out, as published. 0: all are kept."""

    def check_places(self) -> None:
        for key in ("train", "test"):
            if name := getattr(self.data, key):
                require_path(f"data.{key}", name)
