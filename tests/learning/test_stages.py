"""What every pipeline shares."""

from __future__ import annotations

from pathlib import Path

import pytest

from oneiro.learning import stages
from oneiro.models.language import LanguageModel, ModelSettings
from oneiro.rundir.run import Run
from oneiro.runtime.errors import OneiroError
from tests.toy_system import ToyRecipe


def test_weights_without_a_tokenizer_are_refused_before_anything_is_played(tiny: LanguageModel, tmp_path: Path) -> None:
    tiny.save(tmp_path / "other" / "model")
    for file in (tmp_path / "other" / "model").glob("*token*"):
        file.unlink()
    settings = ModelSettings(name=str(tmp_path / "other"))
    with Run.open(tmp_path / "run", ToyRecipe(system="toy")) as run, pytest.raises(OneiroError, match="no tokenizer"):
        stages.make_base(run, settings, lambda: tiny)
