"""What one subject fills into RLVR: data, prompts, rollouts, rewards, evaluation and baselines.

A task belongs to one run: it reads the run's recipe and writes into its folder. `oneiro.systems.rlvr` decides the
order.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from oneiro.learning import stages
from oneiro.learning.collapse import CollapseMonitor
from oneiro.learning.stages import Curve, Rollout
from oneiro.models.language import LanguageModel, merge_adapters
from oneiro.rundir.run import Run
from oneiro.runtime import seeds
from oneiro.sampling.engine import Engine
from oneiro.tasks.recipe import RlvrRecipe

RL = "rl"
"""The stage of RL."""
BEFORE, AFTER = "base", "RLVR"
"""The two models that a run compares, by the names of their rows."""
CONTROL = "SFT continued"
"""The row of the control: the same seconds as RL, spent on SFT."""


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
    def control_stages(self) -> Sequence[str]:
        return ()

    def control(self, start: str | None) -> str | None:
        """Train the control of RL from the weights after a stage; returns its stage, or None where there is none."""
        return None

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
