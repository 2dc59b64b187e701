"""NaN and infinity stop a run, with the step and the cause, before anything is written."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from oneiro.episode import Episode, Row, given
from oneiro.learning import checkpoint, finite, sft
from oneiro.learning.batch import Example
from oneiro.learning.distributed import DataParallel
from oneiro.learning.finite import NotFiniteError
from oneiro.learning.learner import Learner, LearnerSettings
from oneiro.learning.loop import Callbacks, RlSettings, reinforce
from oneiro.learning.losses import LossSettings
from oneiro.learning.optimiser import Optimiser, OptimiserSettings
from oneiro.learning.settings import FilterSettings
from oneiro.models.language import LanguageModel
from oneiro.recipe import build
from oneiro.runtime.errors import OneiroError
from tests.conftest import make_tiny
from tests.learning.test_loop import play_with

ROWS = [Row([given([i % 9, 2, 3]), given([10 + i % 5, 11], ce=1.0)]) for i in range(16)]


def spoil(language: LanguageModel, value: float, part: str = "blocks.1") -> None:
    with torch.no_grad():
        next(p for name, p in language.trainable() if name.startswith(part)).view(-1)[3] = value


def steps_in(folder: Path) -> list[str]:
    return [path.name for path in folder.glob("step-*")]


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_no_numbers_do_not_begin_a_stage(tmp_path: Path, value: float) -> None:
    language = make_tiny()
    spoil(language, value)
    with pytest.raises(OneiroError, match=r"model tiny cannot be trained: the weights 'blocks.1"):
        sft.train(language, ROWS, [], sft.SftSettings(batch=8), tmp_path, 0, lambda step, values: None)
    with pytest.raises(OneiroError, match=r"the weights 'blocks.1"):
        reinforce(language, RlSettings(steps=1), tmp_path, 0, Callbacks(play_with(language), lambda step, values: None))
    assert not steps_in(tmp_path)


def test_a_loss_that_is_no_number_stops_sft_before_its_checkpoint(tmp_path: Path) -> None:
    language, logged = make_tiny(), []

    def log(step: int, values: dict[str, float]) -> None:
        logged.append(step)
        if step == 3:
            spoil(language, float("nan"), "norm")

    with pytest.raises(OneiroError, match=r"^step 4: ce is nan;") as caught:
        sft.train(language, ROWS, [], sft.SftSettings(batch=4, epochs=2, checkpoint_every=2), tmp_path, 0, log)
    assert "\n" not in str(caught.value) and logged == [1, 2, 3]
    assert steps_in(tmp_path) == ["step-000002"]


def test_weights_are_looked_at_before_they_are_written(tmp_path: Path) -> None:
    language = make_tiny()

    def log(step: int, values: dict[str, float]) -> None:
        if step == 4:
            spoil(language, float("inf"))

    with pytest.raises(OneiroError, match=r"step 4: the weights 'blocks.1"):
        sft.train(language, ROWS, [], sft.SftSettings(batch=4, epochs=2, checkpoint_every=2), tmp_path, 0, log)
    assert steps_in(tmp_path) == ["step-000002"]


@pytest.mark.parametrize(
    ("reward", "more", "cause"),
    [
        (float("nan"), {}, "step 2: a reward is nan"),
        (float("inf"), {}, "step 2: a reward is -inf"),
        (3e38, {"algorithm": {"name": "rloo"}}, "step 2: an advantage is"),
    ],
)
def test_a_reward_that_is_no_number_stops_rl(tmp_path: Path, reward: float, more: dict, cause: str) -> None:
    language = make_tiny()
    play = play_with(language)

    def spoiled(step: int) -> list[Episode]:
        episodes = play(step)
        if step == 1:
            for place, episode in enumerate(episodes):
                episode.rewards = [reward if place % 2 else -reward]
        return episodes

    how = build(RlSettings, {"steps": 3, "checkpoint_every": 1, **more})
    with np.errstate(all="ignore"), pytest.raises(OneiroError, match=cause):
        reinforce(language, how, tmp_path, 0, Callbacks(spoiled, lambda step, values: None))
    assert sorted(steps_in(tmp_path)) == ["step-000000", "step-000001"]


def test_an_infinite_penalty_stops_rl(tmp_path: Path) -> None:
    language = make_tiny()
    play = play_with(language)

    def spoiled(step: int) -> list[Episode]:
        episodes = play(step)
        for episode in episodes:
            segment = episode.rows[0].segments[1]
            assert segment.logprobs is not None
            segment.logprobs[:] = -np.inf
        return episodes

    with pytest.raises(OneiroError, match=r"step 1: a token's reward after its penalty is"):
        reinforce(
            language,
            RlSettings(steps=1, kl_in_reward=0.1, filter=FilterSettings(name="none")),
            tmp_path,
            0,
            Callbacks(spoiled, lambda step, values: None),
        )
    assert sorted(steps_in(tmp_path)) == ["step-000000"]


def test_a_gradient_that_is_no_number_changes_no_weight() -> None:
    weight = torch.nn.Parameter(torch.ones(2, 2))
    optimiser = Optimiser([("w", weight)], OptimiserSettings())
    weight.grad = torch.tensor([[1.0, torch.inf], [1.0, 1.0]])
    with pytest.raises(OneiroError, match=r"norm of the gradient is"):
        optimiser.step(0.1)
    assert torch.equal(weight.detach(), torch.ones(2, 2)) and weight.grad is None


@pytest.mark.parametrize(("field", "value"), [("kl", float("inf")), ("entropy", float("nan")), ("ce", float("-inf"))])
def test_settings_are_numbers(field: str, value: float) -> None:
    with pytest.raises(OneiroError, match=rf"{field}: got .*finite number"):
        build(LossSettings, {field: value})


def test_a_stopped_run_goes_on_from_its_last_good_checkpoint(tmp_path: Path) -> None:
    def go(folder: Path, spoil_at: int | None) -> LanguageModel:
        language = make_tiny()

        def log(step: int, values: dict[str, float]) -> None:
            if step == spoil_at:
                spoil(language, float("nan"))

        sft.train(language, ROWS, [], sft.SftSettings(batch=4, epochs=2, checkpoint_every=2), folder, 0, log)
        return language

    expected = go(tmp_path / "whole", None)
    with pytest.raises(OneiroError):
        go(tmp_path / "cut", 5)
    found = go(tmp_path / "cut", None)
    assert checkpoint.latest(tmp_path / "cut") is not None
    for (_, a), (_, b) in zip(expected.trainable(), found.trainable(), strict=True):
        assert torch.equal(a, b)


class Lost(DataParallel):
    """Ranks whose norm overflowed on its way back, though the update was made."""

    def step(self, learner: Learner, rate: float) -> float:
        super().step(learner, rate)
        return float("inf")


def test_every_metric_of_an_update_is_looked_at(tiny: LanguageModel) -> None:
    examples = [Example.of(row) for row in ROWS[:4]]
    learner = Learner(tiny.backbone, LearnerSettings(), 2)
    assert np.isfinite(learner.update(examples)["grad_norm"])
    learner.parallel = Lost()
    with pytest.raises(NotFiniteError, match=r"^grad_norm is inf$"):
        learner.update(examples)


def test_what_is_not_finite_is_named() -> None:
    finite.require({"a": 1.0})
    finite.require_array("a reward", [])
    with pytest.raises(finite.NotFiniteError, match=r"^b is nan$"):
        finite.require({"a": 1.0, "b": float("nan")})
    with pytest.raises(finite.NotFiniteError, match=r"^a reward is inf \(2 of 3\)$"):
        finite.require_array("a reward", [1.0, float("inf"), float("nan")])
    module = torch.nn.Linear(2, 2)
    finite.require_weights([module])
    with torch.no_grad():
        module.bias[1] = torch.nan
    with pytest.raises(finite.NotFiniteError, match="the weights 'bias' are not finite"):
        finite.require_weights([torch.nn.Linear(1, 1), module])
    with pytest.raises(OneiroError, match="model x cannot be trained: the weights 'bias'"):
        finite.require_start("x", [module])
