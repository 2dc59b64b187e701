"""Every predictor and every learned world keeps the same contract, whatever it predicts."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from oneiro.runtime.errors import OneiroError
from oneiro.tasks import base
from oneiro.tasks.base import LearnedWorld, Malformed, Predictor
from oneiro.tasks.grid import GridPredictor, LearnedFrozenLake, TrueLake
from oneiro.tasks.rules.physics import PhysicsPredictor
from oneiro.tasks.rules.physics_data import CaseSampler
from oneiro.tasks.textgame.model import LearnedTextGame
from oneiro.tasks.textgame.predictor import TextGamePredictor, TextGamePredictorConfig
from oneiro.tasks.textgame.rollout import true_predictor
from oneiro.tasks.webpage.evaluation import distinct
from oneiro.tasks.webpage.predictor import WebPagePredictor, WebPagePredictorConfig
from oneiro.tasks.webpage.rollout import true_predictor as page_predictor
from oneiro.tasks.webpage.world import LearnedPage
from oneiro.worlds.grid.frozen_lake.world import FrozenLake, FrozenLakeConfig
from oneiro.worlds.textgame.crawl import CrawlConfig, crawl
from oneiro.worlds.textgame.world import TextGameConfig
from oneiro_web.env import WebConfig
from tests.tasks.grid.test_grid import walk
from tests.tasks.webpage.cases import recorded


@dataclass
class Subject:
    predictor: Predictor[Any, Any, Any, Any]
    cases: list[Any]
    garbage: list[Any]


@pytest.fixture(scope="module", params=["text-game", "web-page", "grid", "physics"])
def subject(request: pytest.FixtureRequest) -> Subject:
    if request.param == "text-game":
        task = TextGamePredictor(TextGamePredictorConfig(rules="none", reward="shaped"))
        cases = list(crawl(["bake-bread"], "train", CrawlConfig(levels=2, max_steps=5)))[:24]
        return Subject(task, cases, ["", "[", "{}" * 500, '{"modified": 3}', "\ud800"])
    if request.param == "web-page":
        pages = WebPagePredictor(WebPagePredictorConfig(lines=14, brief=True))
        return Subject(pages, distinct(recorded()), ["", "New items:", "[1]" * 500, "{}", "\ud800"])
    if request.param == "grid":
        lake = FrozenLake(FrozenLakeConfig(view="spaced"))
        steps = [step for seed in range(4) for step in walk(lake, seed, np.random.default_rng(seed))]
        return Subject(GridPredictor(), steps, ["", "P", "G" * 10_000, "\ud800", steps[0].state + "\n_"])
    drawn = list(map(CaseSampler("train", 0, context=(0, 4)), range(24)))
    return Subject(PhysicsPredictor(), drawn, ["", " ", "UUUUU", "UD", "U R", "U" * 10_000, "\ud800"])


def test_the_target_is_read_and_no_answer_earns_more(subject: Subject) -> None:
    task, (low, high) = subject.predictor, subject.predictor.reward_range
    for case in subject.cases:
        best = task.reward(task.target(case), case)
        assert not isinstance(task.parse(task.target(case), case), Malformed)
        answers = [answer(case) for answer in task.baselines(subject.cases).values()]
        for answer in [*answers, *subject.garbage]:
            found = task.reward(answer, case)
            assert low <= found.value <= high and math.isfinite(found.value)
            assert found.value <= best.value + 1e-6


def test_anything_at_all_is_a_prediction_or_a_typed_flaw(subject: Subject) -> None:
    for answer in subject.garbage:
        assert isinstance(subject.predictor.parse(answer, subject.cases[0]), Malformed)
        assert subject.predictor.metrics(answer, subject.cases[0])["parsed"] == 0


def test_the_lookup_answers_a_training_case_with_its_own_outcome(subject: Subject) -> None:
    task = subject.predictor
    assert "lookup" not in task.baselines()
    lookup = task.baselines(subject.cases)["lookup"]
    for case in subject.cases:
        assert task.reward(lookup(case), case).value == pytest.approx(task.reward(task.target(case), case).value)


@pytest.fixture(params=["text-game", "web-page", "grid"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> LearnedWorld:
    if request.param == "text-game":
        task = TextGamePredictor(TextGamePredictorConfig(rules="none"))
        return LearnedTextGame(task, true_predictor(task), TextGameConfig(game="bake-bread", max_actions=6))
    if request.param == "web-page":
        pages = WebPagePredictor(WebPagePredictorConfig(lines=14, brief=True))
        return LearnedPage(pages, page_predictor(pages, recorded()), WebConfig(sites=("reddit",), max_actions=5))
    config = FrozenLakeConfig(max_actions=6)
    return LearnedFrozenLake(TrueLake(FrozenLake(config)), config)


def played(world: LearnedWorld, seed: int, member: int = 0) -> list[Any]:
    rng, seen = np.random.default_rng(seed), [world.reset(seed=seed, options={"split": "eval", "member": member})]
    while not world.over:
        seen.append(world.step(world.random_action(rng)))
    return seen


def test_a_learned_world_is_a_world_without_oracle_and_ceiling(world: LearnedWorld) -> None:
    first = played(world, seed=1)
    assert played(world, seed=1) == first and world.taken <= world.config.max_actions
    observation, reward, terminated, truncated, info = world.step("0 0")
    assert reward == 0 and info["valid"] is False and (terminated or truncated)
    assert world.oracle() is None and not world.has_oracle and world.ceiling() is None
    assert isinstance(world.instruction, str) and isinstance(observation, str)


def test_an_action_it_does_not_understand_costs_one_action_and_changes_nothing(world: LearnedWorld) -> None:
    world.reset(seed=1, options={"split": "eval"})
    _, reward, _, _, info = world.step("\x00 do what I mean " * 50)
    assert reward == 0 and not info["valid"] and not info["effective"] and world.taken == 1


@pytest.mark.parametrize("target", ["oneiro.tasks.base:Malformed", "oneiro.tasks.base:predictor_class"])
def test_a_name_that_leads_to_no_predictor_class_is_one_line(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert base.predictor_class("grid") is GridPredictor
    monkeypatch.setitem(base.PREDICTORS, "odd", target)
    with pytest.raises(OneiroError, match=f"predictor 'odd': {target} is not a Predictor class"):
        base.predictor_class("odd")
