"""The page models in which web agents plan and dream: slots and frequencies (`slots`), or a language model.

Both learn from steps without rewards, are kept under the name of the stage that trained them, and predict pages.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from oneiro.agents.linear import LinearPolicy
from oneiro.agents.loading import AgentMetadata
from oneiro.learning import stages
from oneiro.learning.settings import SftSettings
from oneiro.models import language as languages
from oneiro.models.chat import ChatFormat
from oneiro.models.language import METADATA, LanguageModel, write_folder
from oneiro.rundir.run import Run
from oneiro.runtime import files, seeds
from oneiro.sampling.engine import Engine
from oneiro.systems.plan.web_recipe import SLOTS, WebRecipe
from oneiro.tasks.answering import true_rows
from oneiro.tasks.webpage.dynamics import NextPages, pages_in
from oneiro.tasks.webpage.model import TEXTS, WebPageMetadata, WebPageModel, create_tiny
from oneiro.tasks.webpage.predictor import WebPagePredictor
from oneiro.tasks.webpage.slot_model import SlotModel
from oneiro.tasks.webpage.state import PageTransition

Policies = Callable[[], LinearPolicy]


class PageModels(Protocol):
    """A kind of page model."""

    def learn(
        self, stage: str, cases: Sequence[PageTransition], settings: SftSettings, before: str | None = None
    ) -> dict[str, Any]:
        """Learn from steps; `before` names the stage whose model goes on learning. `slots` begins anew and has
        settings of its own.
        """
        ...

    def load(self, stage: str) -> NextPages:
        """The model that a stage trained."""
        ...


def page_models(recipe: WebRecipe, run: Run, seed: int, metadata: AgentMetadata, policy: Policies) -> PageModels:
    """As `model.name` says. `policy` proposes in searches of the model (`oneiro eval agent --plan`)."""
    if recipe.model.name == SLOTS:
        return SlotModels(recipe, run, seed, metadata, policy)
    return LanguageModels(recipe, run, seed)


@dataclass(frozen=True)
class SlotModels:
    """Fitted anew on all steps, in seconds. The folder holds the policy besides, for search."""

    recipe: WebRecipe
    run: Run
    seed: int
    metadata: AgentMetadata
    policy: Policies

    def learn(
        self, stage: str, cases: Sequence[PageTransition], settings: SftSettings, before: str | None = None
    ) -> dict[str, Any]:
        own = self.recipe.page_model
        model = SlotModel.fit(cases, own.epochs, own.rate, seeds.derive(self.seed, "page model"))

        def write(part: Path) -> None:
            model.save(part)
            self.policy().save(part)
            files.write_json(part / METADATA, self.metadata.model_dump(mode="json"))

        write_folder(self._folder(stage), write, {})
        return {"cases": len(cases), "outcomes": len(model.outcomes), "features": len(model.places)}

    def load(self, stage: str) -> SlotModel:
        return SlotModel.load(self._folder(stage))

    def _folder(self, stage: str) -> Path:
        return self.run.path / "checkpoints" / stage


@dataclass(frozen=True)
class LanguageModels:
    """A language model that writes what an action changes, and the next address."""

    recipe: WebRecipe
    run: Run
    seed: int

    def learn(
        self, stage: str, cases: Sequence[PageTransition], settings: SftSettings, before: str | None = None
    ) -> dict[str, Any]:
        """SFT on true changes."""
        cases = [case for case in cases if not case.stops]
        language = self._weights(before) if before else self._base(cases)
        rows = true_rows(self._task, ChatFormat(language.tokenizer), cases)
        title, seed = stage.replace("-", " "), seeds.derive(self.seed, stage)
        return {
            "cases": len(cases),
            "steps": stages.supervise(self.run, stage, title, language, rows, [], settings, seed),
        }

    def load(self, stage: str) -> NextPages:
        engine = Engine(self._weights(stage), self.recipe.max_batch_size)
        return pages_in(self._task, WebPageModel(self._task, engine, self.recipe.sampling))

    @property
    def _task(self) -> WebPagePredictor:
        return WebPagePredictor(self.recipe.task)

    def _weights(self, stage: str) -> LanguageModel:
        return self._named(stages.weights_after(self.run, [stage], self.recipe.model))

    def _base(self, cases: Sequence[PageTransition]) -> LanguageModel:
        if self.recipe.model.name != "tiny":
            return self._named(languages.load(self.recipe.model))
        seed = seeds.derive(self.seed, "page model")
        return self._named(create_tiny(self.recipe.model, self._task, cases[:TEXTS], seed))

    def _named(self, language: LanguageModel) -> LanguageModel:
        """With what travels beside the weights."""
        return WebPageMetadata(task=self.recipe.task, sampling=self.recipe.sampling).write(language)
