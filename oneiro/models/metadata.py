"""What travels with a model's weights (`oneiro.json`): what it was trained for, and how it is used."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, Self

from oneiro.models.language import LanguageModel
from oneiro.models.locate import METADATA
from oneiro.recipe import Settings
from oneiro.runtime.errors import OneiroError


class ModelMetadata(Settings):
    """Base of each kind's metadata: an agent's, a predictor's."""

    what: ClassVar[str]
    """The kind in words, with its article: "an agent"."""
    kind: str
    """Decides whose metadata it is; a literal in each subclass."""

    @classmethod
    def read(cls, language: LanguageModel, where: str | Path) -> Self | None:
        """The metadata of a loaded model; None where it has none, an error where it is of another kind."""
        if not language.metadata:
            return None
        try:
            return cls.model_validate(language.metadata)
        except ValueError as error:
            kind = language.metadata.get("kind", "unknown")
            raise OneiroError(
                f"the model at {where} is not {cls.what}: its {METADATA} is of kind '{kind}' (try `oneiro eval {kind}`)"
            ) from error

    def write(self, language: LanguageModel) -> LanguageModel:
        """Put it on a model, which saves it beside its weights."""
        language.metadata = self.model_dump(mode="json")
        return language
