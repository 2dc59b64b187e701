"""Validation cases are neither trained on nor part of the reported evaluation."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest

from oneiro import recipe as recipes
from oneiro.rundir.run import Run
from oneiro.runtime.errors import OneiroError
from oneiro.sampling.engine import Engine
from oneiro.systems.spa.recipe import SpaRecipe
from oneiro.systems.spa.variant_run import VariantRun
from oneiro.tasks.textgame.data import Data, record, with_validation
from oneiro.tasks.textgame.recipe import TextGameRecipe
from oneiro.worlds.levels import distinct_seeds
from oneiro.worlds.textgame.dataset import open_dataset
from tests.conftest import make_tiny


def variant(*overrides: str) -> VariantRun:
    recipe = recipes.load("spa/frozen-lake", ["preset=smoke", *overrides])
    return VariantRun(cast(SpaRecipe, recipe), cast(Run, None), "spa")


def test_agents_are_validated_on_other_levels_than_they_are_evaluated_on() -> None:
    run = variant("rl.select.cases=6", "evaluation.levels=10", "dialogue.max_turns=2", "sampling.max_tokens=8")
    world = run.world.maker()()

    def keys(seeds: list[int]) -> set[str]:
        return {world.reset(seed=seed, options={"split": "eval"})[1]["key"] for seed in seeds}

    chosen, evaluated = run.validation_seeds(), distinct_seeds(run.world.maker(), "eval", 10, 0)
    assert len(keys(chosen)) == 6 and len(keys(evaluated)) == 10 and not keys(chosen) & keys(evaluated)
    engine = Engine(make_tiny())
    first = run.validate(engine)
    assert list(first) == ["validation_success", "validation_reward"] and run.validate(engine) == first


def test_a_world_without_further_levels_says_so() -> None:
    run = variant("rl.select.cases=6", "evaluation.levels=100000", "world.size=2")
    with pytest.raises(OneiroError, match="no unseen levels beside"):
        run.validation_seeds()


def test_rows_of_text_games_leave_training_with_their_states(tmp_path: Path) -> None:
    recipe = cast(TextGameRecipe, recipes.load("rlvr/text-game", ["preset=smoke"]))
    record(recipe.data, tmp_path)
    train, test = open_dataset(tmp_path, "train"), open_dataset(tmp_path, "test")
    data = with_validation(Data(train, test, None, ()), 8, seed=0)
    assert len(data.validation) == 8 and data.test is test
    left, apart = {str(row.state) for row in data.train}, {str(row.state) for row in data.validation}
    assert left and not left & apart
    assert {row.id for row in data.train} | {row.id for row in data.validation} <= {row.id for row in train}
    assert with_validation(Data(train, test, None, ()), 8, seed=0).validation == data.validation


def test_video_refuses_what_it_cannot_do() -> None:
    with pytest.raises(OneiroError, match="no validation segments"):
        recipes.load("rlvr/video-single", ["rl.select.cases=4"])
    with pytest.raises(OneiroError, match="ends at its token limit"):
        recipes.load("rlvr/video-single", ["rl.mask_truncated=true"])
