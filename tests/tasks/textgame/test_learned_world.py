"""A trained predictor as a world to play in, in Python and from the terminal."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from oneiro import cli
from oneiro.models.language import LanguageModel
from oneiro.runtime.errors import OneiroError
from oneiro.sampling.engine import SamplingSettings
from oneiro.tasks.textgame.model import TextGameMetadata, open_world
from oneiro.tasks.textgame.predictor import TextGamePredictorConfig


def taught(language: LanguageModel, where: Path, **task: Any) -> str:
    """A model that was told how it will be asked, and has learned nothing yet."""
    config = TextGamePredictorConfig(rules="none", **task)
    metadata = TextGameMetadata(task=config, sampling=SamplingSettings(max_tokens=8))
    language.metadata = metadata.model_dump(mode="json")
    language.save(where)
    return str(where)


def test_where_a_model_says_nothing_sensible_nothing_happens(tiny: LanguageModel, tmp_path: Path) -> None:
    world = open_world(taught(tiny, tmp_path / "model", output="edits"), "textgame:brew-tea", {"max_actions": 2})
    first, _ = world.reset(seed=0, options={"split": "eval"})
    for last in (False, True):
        command = world.random_action(np.random.default_rng(0))
        shown, reward, terminated, truncated, info = world.step(command)
        assert (shown, reward, terminated, truncated) == (first, 0.0, False, last)
        assert info["valid"] and info["malformed"] and not info["effective"]


def test_only_whole_steps_can_be_played_in(tiny: LanguageModel, tmp_path: Path) -> None:
    model = taught(tiny, tmp_path / "model", transition="action")
    with pytest.raises(OneiroError, match="not trained to predict whole steps"):
        open_world(model, "textgame:brew-tea")


def test_a_learned_game_is_played_from_the_terminal(
    tiny: LanguageModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    model, words = taught(tiny, tmp_path / "model", output="edits"), iter(["wait", "q"])
    monkeypatch.setattr("builtins.input", lambda prompt: next(words))
    assert cli.main(["play", "textgame", "brew-tea", "--model", model]) == 0
    assert "the model's answer could not be read" in capsys.readouterr().out
    assert cli.main(["play", "sokoban", "--model", model]) == 2
    assert "no model of 'sokoban' can be played in" in capsys.readouterr().err
