"""The optimiser against torch by hand, and what a resumed learner must have kept."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from oneiro.episode import Episode, Row, SamplingParams, Segment, given
from oneiro.learning.algorithms import Grpo
from oneiro.learning.learner import LearnerSettings
from oneiro.learning.loop import Callbacks, RlSettings, reinforce
from oneiro.learning.losses import LossSettings
from oneiro.learning.optimiser import Optimiser, OptimiserSettings
from tests.conftest import make_tiny

SHAPES = {"matrix": (3, 4), "norm": (4,), "bias": (3,)}


def parameters(dtype: torch.dtype = torch.float32) -> dict[str, torch.nn.Parameter]:
    torch.manual_seed(0)
    return {name: torch.nn.Parameter(torch.randn(shape).to(dtype)) for name, shape in SHAPES.items()}


def gradients(steps: int) -> Iterator[dict[str, torch.Tensor]]:
    """Of norms around 10, 0.1, 10, ...: some far above a clip of 1, some far below."""
    generator = torch.Generator().manual_seed(1)
    for step in range(steps):
        yield {n: torch.randn(s, generator=generator) * (3.0, 0.03)[step % 2] for n, s in SHAPES.items()}


def test_matrices_decay_and_norms_and_biases_do_not() -> None:
    """A step without any gradient: only decay moves weights, by lr times its rate."""
    own = parameters()
    start = {name: p.detach().clone() for name, p in own.items()}
    optimiser = Optimiser(list(own.items()), OptimiserSettings(lr=0.1, weight_decay=0.5))
    for parameter in own.values():
        parameter.grad = torch.zeros_like(parameter)
    optimiser.step(0.1)
    torch.testing.assert_close(own["matrix"].detach(), start["matrix"] * (1 - 0.1 * 0.5))
    assert torch.equal(own["norm"], start["norm"]) and torch.equal(own["bias"], start["bias"])


def test_steps_are_those_of_adamw_on_clipped_gradients() -> None:
    settings = OptimiserSettings(lr=1.0, betas=(0.8, 0.9), weight_decay=0.2, clip=1.0)
    own, moments = parameters(), {name: [torch.zeros(shape), torch.zeros(shape)] for name, shape in SHAPES.items()}
    plain = {name: p.detach().clone() for name, p in own.items()}
    optimiser = Optimiser(list(own.items()), settings)
    for step, found in enumerate(gradients(5), 1):
        rate = 0.1 / step
        norm = torch.cat([g.flatten() for g in found.values()]).norm()
        for name, gradient in found.items():
            own[name].grad = gradient.clone()
            clipped = gradient * min(1.0, float(1.0 / norm))
            mean, square = moments[name]
            mean.mul_(0.8).add_(0.2 * clipped)
            square.mul_(0.9).add_(0.1 * clipped**2)
            if plain[name].dim() > 1:
                plain[name] *= 1 - rate * 0.2
            plain[name] -= rate * (mean / (1 - 0.8**step)) / ((square / (1 - 0.9**step)).sqrt() + 1e-8)
        assert optimiser.step(rate) == pytest.approx(float(norm), rel=1e-5)
        for name in SHAPES:
            torch.testing.assert_close(own[name].detach(), plain[name], rtol=1e-4, atol=1e-5)
            assert own[name].grad is None


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_restored_optimiser_goes_on_as_if_it_had_never_stopped(dtype: torch.dtype) -> None:
    """Steps too small for bfloat16 live in the float32 masters: without these, a resumed run would lose them."""

    def go(optimiser: Optimiser, steps: list[dict[str, torch.Tensor]]) -> None:
        for found in steps:
            for name, parameter in zip(optimiser.names, optimiser.parameters, strict=True):
                parameter.grad = found[name].to(parameter.dtype)
            optimiser.step(3e-4)

    steps = list(gradients(12))
    own = parameters(dtype)
    whole = Optimiser(list(own.items()), OptimiserSettings(lr=3e-4))
    go(whole, steps[:6])
    kept = {name: tensor.clone() for name, tensor in whole.state().items()}
    weights = {name: p.detach().clone() for name, p in own.items()}
    go(whole, steps[6:])

    again = {name: torch.nn.Parameter(tensor) for name, tensor in weights.items()}
    resumed = Optimiser(list(again.items()), OptimiserSettings(lr=3e-4))
    resumed.restore(kept)
    go(resumed, steps[6:])
    for name in SHAPES:
        assert torch.equal(again[name], own[name]), name
    for a, b in zip(whole.masters, resumed.masters, strict=True):
        assert torch.equal(a, b)


class Killed(Exception):
    pass


@pytest.mark.parametrize("schedule", ["linear", "cosine"])
def test_a_resumed_run_goes_on_with_the_same_learning_rates(schedule: str, tmp_path: Path) -> None:
    def play(step: int) -> list[Episode]:
        rng = np.random.default_rng(step)
        replies = [
            Segment(rng.integers(3, 99, 4), True, logprobs=rng.normal(-3, 0.2, 4), params=SamplingParams())
            for _ in range(3)
        ]
        return [Episode([Row([given([5, 6, 7]), reply])], rewards=[rng.normal()]) for reply in replies]

    def rates(folder: Path, stop_at: int) -> list[float]:
        found: list[float] = []

        def play_or_die(step: int) -> list[Episode]:
            if step == stop_at:
                raise Killed
            return play(step)

        optimiser = OptimiserSettings(lr=1e-3, schedule=schedule, warmup=2)  # type: ignore[arg-type]
        settings = RlSettings(
            steps=6,
            algorithm=Grpo(),
            learner=LearnerSettings(optimiser=optimiser, loss=LossSettings()),
            epochs=2,
            checkpoint_every=2,
        )
        parts = Callbacks(play_or_die, lambda step, values: found.append(values["lr"]))
        with contextlib.suppress(Killed):
            reinforce(make_tiny(), settings, folder, 0, parts)
        return found

    whole = rates(tmp_path / "whole", -1)
    before = rates(tmp_path / "killed", 4)
    after = rates(tmp_path / "killed", -1)
    assert before + after == whole and len(set(whole)) >= 5
