"""A language model as the page model of planning and dreaming: it learns true pages, goes on learning, and many dreams
ask it together.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from oneiro.agents.learners.pages import LanguageModels, WebLearner, policy_dialogue
from oneiro.agents.learners.recipe import WebRecipe
from oneiro.agents.policies import DreamingPolicy, ScriptedPolicy
from oneiro.agents.rollout import attempts, play
from oneiro.learning.settings import LearnerSettings, OptimiserSettings, SftSettings
from oneiro.recipe import load
from oneiro.report.episodes import record
from oneiro.rundir.run import Run
from oneiro.runtime.errors import OneiroError
from oneiro.tasks.webpage.model import Remembered
from oneiro.tasks.webpage.record import RecordingWeb
from oneiro.tasks.webpage.slot_model import right_kind
from oneiro.tasks.webpage.state import PageSituation, PageState, PageTransition
from oneiro.tasks.webpage.world import DreamedWeb, predict_together
from oneiro.worlds.baselines import random_policy
from oneiro_web.env import WebConfig

CONFIG = WebConfig(templates=("map/show-way",), max_actions=8)
SETTINGS = [
    "preset=smoke",
    "model=tiny",
    "model.width=64",
    "model.mlp=128",
    "model.layers=2",
    "task.lines=20",
    "sampling.max_tokens=220",
    "sft.batch=4",
    "sft.epochs=30",
    "sft.learner.optimiser.lr=0.01",
]


def oracle_steps(seed: int) -> list[PageTransition]:
    world = RecordingWeb(CONFIG)
    world.reset(seed=seed)
    while not world.over:
        world.step(world.oracle() or "")
    world.close()
    return world.steps


@pytest.fixture(scope="module")
def learned(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, WebRecipe, list[PageTransition]]:
    """A page model that learned one task's pages by heart."""
    recipe: Any = load("plan/web", SETTINGS)
    cases = oracle_steps(3)
    run = Run.open(tmp_path_factory.mktemp("run") / "run", recipe)
    models = LanguageModels(recipe, run, 0)
    run.stage("world-model-0", lambda: models.learn("world-model-0", cases, recipe.sft))
    return run, recipe, cases


def test_a_language_model_learns_which_pages_come(learned: tuple[Run, WebRecipe, list[PageTransition]]) -> None:
    run, recipe, cases = learned
    asked = [case for case in cases if not case.stops]
    assert len(asked) > 2 and any(not case.state.same_document(case.after) for case in asked)
    told = LanguageModels(recipe, run, 0).load("world-model-0")([case.situation() for case in asked])
    assert [right_kind(page, case) for page, case in zip(told, asked, strict=True)] == [True] * len(asked)
    moved = [page for page, case in zip(told, asked, strict=True) if not case.state.same_document(case.after)]
    assert all(page is not None and page.url in {case.after.url for case in asked} for page in moved)


def test_a_refreshed_model_goes_on_from_its_own_weights(learned: tuple[Run, WebRecipe, list[PageTransition]]) -> None:
    run, recipe, _cases = learned
    gentle = SftSettings(batch=4, epochs=1.0, learner=LearnerSettings(optimiser=OptimiserSettings(lr=1e-6)))
    models, stage = LanguageModels(recipe, run, 0), "refresh-mixed-0-1"
    run.stage(stage, lambda: models.learn(stage, oracle_steps(4), gentle, "world-model-0"))
    before, after = (models._weights(stage).backbone.state_dict() for stage in ("world-model-0", "refresh-mixed-0-1"))
    moved = max(float((after[name] - before[name]).abs().max()) for name in before)
    assert 0 < moved < 1e-3  # a new model would be far away


def test_dreams_on_the_web_are_predicted_together_and_come_out_the_same() -> None:
    calls: list[int] = []

    def pages(cases: Sequence[PageSituation]) -> list[PageState | None]:
        calls.append(len(cases))
        return [case.state if "[7]" in case.action else None for case in cases]

    asked = policy_dialogue(load("plan/web", ["templates=[map/show-way]"]))  # type: ignore[arg-type]
    script = ScriptedPolicy(random_policy, think=False, world_model=False)

    def dream(batched: bool) -> tuple[list[int], list[Any]]:
        calls.clear()
        shared = Remembered(pages)
        policy = DreamingPolicy(script, partial(predict_together, shared), asked) if batched else script
        played = play(
            lambda: DreamedWeb(shared, lambda page: False, CONFIG), attempts(3, 2, "train", 0), policy, asked, None, 0
        )
        return list(calls), [record(episode) for episode in played]

    one_by_one, plain = dream(batched=False)
    together, batched = dream(batched=True)
    assert plain == batched
    assert len(together) <= 8 < len(one_by_one)
    assert sum(together) == sum(one_by_one)


def test_a_page_model_has_to_predict_addresses() -> None:
    with pytest.raises(OneiroError, match="add url"):
        load("plan/web", ["model=tiny", "task.heads=[]"])


def test_the_kind_of_page_model_follows_the_recipe(tmp_path: Path) -> None:
    recipe: Any = load("dyna/web", ["preset=smoke", "model=tiny"])
    with Run.open(tmp_path / "run", recipe) as run:
        assert isinstance(WebLearner(recipe, run, 0).models, LanguageModels)
    assert recipe.parameters > 0 and load("dyna/web").parameters == 0
