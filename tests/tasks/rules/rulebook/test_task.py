"""RLVR on rulebook games: a whole small run, its rows and its tables."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from oneiro import recipe as recipes
from oneiro.models.chat import ChatFormat
from oneiro.models.language import create_tiny
from oneiro.models.settings import ModelSettings
from oneiro.report import page
from oneiro.rundir.run import METRICS
from oneiro.tasks.answering import true_rows
from oneiro.tasks.rules.rulebook.cases import RulebookDataSettings, Scenes
from oneiro.tasks.rules.rulebook.predictor import RulebookPredictor
from oneiro.tasks.rules.rulebook.recipe import RulebookRecipe
from oneiro.tasks.rules.rulebook.task import SceneRows


def test_rows_of_a_scene_share_rules_and_objects_and_equal_plain_rows() -> None:
    predictor, scenes = RulebookPredictor(), Scenes(RulebookDataSettings(), 0, "sft", False, 4, 0)
    cases = [case for number in range(3) for case in scenes.draw(number)]
    texts = [predictor.shown(case) for case in cases]
    chat = ChatFormat(create_tiny(ModelSettings(vocabulary=400), texts, 0).tokenizer)
    rows = SceneRows(predictor, chat, scenes, 10)
    assert rows.group_sizes == [4, 4, 2] and len(rows) == len(rows[:]) == 10
    for row, plain in zip(rows[:], true_rows(predictor, chat, cases), strict=False):
        assert np.array_equal(row.tokens, plain.tokens)
        assert np.array_equal(row.weights("ce"), plain.weights("ce"))
    assert np.array_equal(rows[0].prefix, rows[3].prefix) and not np.array_equal(rows[3].prefix, rows[4].prefix)
    assert len(rows[0].prefix) > 0.7 * len(rows[0].tokens)


@pytest.fixture(scope="module")
def smoke(finished: Callable[[str, str], Path]) -> Path:
    return finished("rlvr/rules", "smoke")


def test_a_small_run_learns_in_every_stage(smoke: Path) -> None:
    logged = [json.loads(line) for line in (smoke / METRICS).read_text().splitlines()]
    for stage in ("sft", "rl"):
        assert any(row.get("grad_norm", 0.0) > 0 for row in logged if row["stage"] == stage), stage


def test_its_tables_have_floors_controls_and_ceiling(smoke: Path) -> None:
    exact, wanted = page.tables(smoke)[:2]
    rows = {str(row[0].value): row for row in exact.rows}
    assert next(iter(rows)) == "no change" and list(rows)[-1] == "perfect"
    for name in ("SFT", "RLVR"):
        assert {name, f"{name}, another game's rules", f"{name}, no rules"} <= rows.keys()
    changed = list(exact.columns).index("changed")
    assert rows["no change"][changed].value == 0.0 and rows["perfect"][changed].value == 1.0
    conflicts, coverage = (row[1].value for row in wanted.rows)
    assert isinstance(conflicts, float) and conflicts >= 0.5 and coverage == 0.0


def test_the_recipe_for_a_pretrained_model_has_new_names() -> None:
    recipe = recipes.load("rlvr/rules", ["model=smollm2-135m"], RulebookRecipe)
    assert isinstance(recipe, RulebookRecipe)
    assert recipe.data.names == "new" and not recipe.task.focus
    tiny = recipes.load("rlvr/rules", (), RulebookRecipe)
    assert isinstance(tiny, RulebookRecipe) and tiny.data.names == "shared"
