"""Validation levels are not part of the reported evaluation."""

from __future__ import annotations

from typing import cast

import pytest

from oneiro import recipe as recipes
from oneiro.rundir.run import Run
from oneiro.runtime.errors import OneiroError
from oneiro.sampling.engine import Engine
from oneiro.systems.spa.pipeline import VariantRun
from oneiro.systems.spa.recipe import SpaRecipe
from oneiro.worlds.levels import distinct_seeds
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
