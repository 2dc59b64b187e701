"""Learning rates and optimisers."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from oneiro.learning import finite
from oneiro.learning.learner import Learner, LearnerSettings
from oneiro.learning.optimiser import Muon, Optimiser, OptimiserSettings, learning_rate, orthogonal
from oneiro.models.language import LanguageModel
from oneiro.recipe import build
from oneiro.runtime.errors import OneiroError


def test_schedules_by_hand() -> None:
    cosine = OptimiserSettings(lr=1.0, schedule="cosine", warmup=2, final=0.1)
    rates = [learning_rate(cosine, step, 10) for step in (0, 1, 2, 6, 10)]
    np.testing.assert_allclose(rates, [0.5, 1.0, 1.0, 0.55, 0.1])
    linear = OptimiserSettings(lr=1.0, schedule="linear", warmup=0.2)
    np.testing.assert_allclose([learning_rate(linear, step, 10) for step in (0, 1, 2, 6, 10)], [0.5, 1, 1, 0.5, 0])
    # Half a step of warm-up is one step, and 0.07 * 100 = 7.000000000000001 is seven.
    assert learning_rate(OptimiserSettings(lr=1.0, warmup=0.05), 0, 10) == 1.0
    assert learning_rate(OptimiserSettings(lr=1.0, warmup=0.07), 6, 100) == 1.0
    np.testing.assert_allclose(
        [learning_rate(OptimiserSettings(lr=1.0, warmup=0.25), step, 10) for step in range(4)], [1 / 3, 2 / 3, 1, 1]
    )


def test_schedules_at_their_edges() -> None:
    # A warm-up of 1 is one step and not all of them; what comes after the end stays at the end.
    assert [learning_rate(OptimiserSettings(lr=1.0, warmup=1), step, 10) for step in (0, 1, 9)] == [1.0, 1.0, 1.0]
    for schedule in ("cosine", "linear"):
        chosen = OptimiserSettings(lr=1.0, schedule=schedule, warmup=2, final=0.1)
        np.testing.assert_allclose([learning_rate(chosen, step, 10) for step in (10, 12, 14)], [0.1] * 3)
        # One step is left after the warm-up: it has the full rate, and the next one the final.
        np.testing.assert_allclose([learning_rate(chosen, step, 3) for step in (1, 2, 3)], [1.0, 1.0, 0.1])
        # All is warm-up.
        np.testing.assert_allclose([learning_rate(chosen, step, 2) for step in (0, 1, 2, 3)], [0.5, 1.0, 1.0, 0.1])


@settings(max_examples=300, deadline=None)
@given(
    warmup=st.one_of(st.floats(0, 0.999), st.floats(1, 200)),
    steps=st.integers(1, 300),
    schedule=st.sampled_from(["constant", "cosine", "linear"]),
    final=st.floats(0, 1),
)
def test_warm_up_rises_by_equal_steps_to_the_rate_and_never_passes_it(
    warmup: float, steps: int, schedule: str, final: float
) -> None:
    chosen = OptimiserSettings(lr=0.5, warmup=warmup, schedule=schedule, final=final)  # type: ignore[arg-type]
    rates = np.array([learning_rate(chosen, step, steps) for step in range(steps)])
    assert (rates <= 0.5 * (1 + 1e-12)).all() and (rates >= 0).all()
    rising = next((step for step, rate in enumerate(rates) if rate >= 0.5 * (1 - 1e-12)), steps)
    np.testing.assert_allclose(np.diff(rates[: rising + 1]), rates[0], rtol=1e-9)  # as far from each other as from 0
    asked = warmup if warmup >= 1 else warmup * steps
    assert abs(rising + 1 - asked) < 1 or rising == steps or (asked < 1 and rising == 0)
    # After its top it falls, without a jump: by no more than its steepest step.
    if rising < steps:
        falls = -np.diff(rates[rising:])
        steepest = 0.5 * np.pi / 2 / max(1, steps - rising - 1)
        assert (falls >= -1e-12).all() and (falls <= steepest + 1e-12).all()


@pytest.mark.parametrize("lr", [1e8, float("inf"), float("nan"), 0.0])
def test_a_rate_that_only_destroys_is_refused(lr: float) -> None:
    with pytest.raises(OneiroError, match=r"^lr: "):
        build(OptimiserSettings, {"lr": lr})


def test_muon_takes_the_matrices_of_the_layers_and_adamw_the_rest(tiny: LanguageModel) -> None:
    learner = Learner(tiny.backbone, LearnerSettings(optimiser=OptimiserSettings(name="muon")), 1)
    muon, adamw = ({id(p) for g in part.param_groups for p in g["params"]} for part in learner.optimiser.parts)
    for name, parameter in tiny.trainable():
        inside = name.startswith("blocks") and parameter.dim() == 2
        assert (id(parameter) in muon, id(parameter) in adamw) == (inside, not inside), name
    assert tiny.backbone.head.weight is tiny.backbone.embedding.weight  # tied: one of them


def test_muon_moves_along_every_direction_alike() -> None:
    """The directions of the gradient differ twentyfold, those of the step hardly."""
    rng = np.random.default_rng(0)
    left, right = (np.linalg.qr(rng.normal(size=(size, size)))[0] for size in (12, 8))
    weight = torch.nn.Parameter(torch.zeros(12, 8))
    weight.grad = torch.from_numpy(left[:, :8] * np.geomspace(1, 20, 8) @ right).float()
    chosen = OptimiserSettings(name="muon", lr=0.1, weight_decay=0.0, clip=1e9)
    Optimiser([("w", weight)], chosen, ["w"]).step(0.1)
    # As large as AdamW's step: 0.2 * sqrt(12) * lr a direction, up to what Muon's five Newton-Schulz rounds leave.
    sizes = torch.linalg.svdvals(weight.detach()).numpy() / (0.1 * 0.2 * np.sqrt(12))
    assert sizes.min() > 0.6 and sizes.max() < 1.3


def test_muon_has_the_settings_of_a_recipe() -> None:
    weight, bias = torch.nn.Parameter(torch.zeros(4, 3)), torch.nn.Parameter(torch.zeros(4))
    chosen = OptimiserSettings(name="muon", lr=0.1, weight_decay=0.3, betas=(0.7, 0.8))
    muon, adamw = Optimiser([("w", weight), ("b", bias)], chosen, ["w"]).parts
    assert (muon.defaults["momentum"], muon.defaults["weight_decay"]) == (0.8, 0.3)
    assert adamw.defaults["betas"] == (0.7, 0.8) and [g["weight_decay"] for g in adamw.param_groups] == [0.3, 0.0]


@pytest.mark.parametrize("name", ["adamw", "muon"])
@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
def test_a_restored_optimiser_goes_on_as_if_nothing_had_happened(name: str, kind: torch.dtype) -> None:
    """Also where some parameters had no gradient yet, and so no state, and later ones had."""
    chosen = OptimiserSettings(name=name, weight_decay=0.1)  # type: ignore[arg-type]
    generator = torch.Generator().manual_seed(3)
    start = [torch.randn(shape, generator=generator).to(kind) for shape in ((4, 3), (3, 4), (4,))]
    pushes = [[torch.randn(p.shape, generator=generator).to(kind) for p in start] for _ in range(4)]

    def made() -> tuple[list[torch.nn.Parameter], Optimiser]:
        weights = [torch.nn.Parameter(p.clone()) for p in start]
        return weights, Optimiser([(f"p{i}", p) for i, p in enumerate(weights)], chosen, ["p0", "p1"])

    def go(weights: list[torch.nn.Parameter], optimiser: Optimiser, steps: range) -> None:
        for step in steps:
            for place, weight in enumerate(weights):
                weight.grad = None if place == 0 and step < 2 else pushes[step][place].clone()
            optimiser.step(0.01)
            assert all(p.grad is None for p in [*weights, *optimiser.masters])

    weights, optimiser = made()
    go(weights, optimiser, range(2))
    kept = {key: value.clone() for key, value in optimiser.state().items()}
    assert {key for key in kept if key.startswith("p0/")} == (set() if kind is torch.float32 else {"p0/master"})
    moved = [p.detach().clone() for p in weights]
    go(weights, optimiser, range(2, 4))
    again, other = made()
    if kind is torch.float32:  # else the masters bring the weights along
        with torch.no_grad():
            for weight, values in zip(again, moved, strict=True):
                weight.copy_(values)
    other.restore(kept)
    assert all(torch.equal(one, two) for one, two in zip(again, moved, strict=True))
    go(again, other, range(2, 4))
    assert all(torch.equal(one, two) for one, two in zip(again, weights, strict=True))
    assert optimiser.applied == 4 and other.applied == 2  # the count is the checkpoint's to restore


@pytest.mark.parametrize("name", ["adamw-8bit", "paged-adamw"])
def test_optimisers_of_a_gpu_are_refused_elsewhere(name: str) -> None:
    weight = torch.nn.Parameter(torch.zeros(2, 2))
    with pytest.raises(OneiroError, match=f"optimiser '{name}' needs a GPU; use adamw here"):
        Optimiser([("w", weight)], OptimiserSettings(name=name))  # type: ignore[arg-type]


def test_muon_is_for_layers() -> None:
    with pytest.raises(OneiroError, match="use adamw here"):
        Optimiser([("w", torch.nn.Parameter(torch.zeros(2, 2)))], OptimiserSettings(name="muon"))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("name", ["adamw-8bit", "paged-adamw"])
def test_optimisers_of_a_gpu_learn_and_resume(name: str) -> None:
    pytest.importorskip("bitsandbytes")
    torch.manual_seed(0)
    target = torch.randn(128, 64, device="cuda")

    def made() -> tuple[torch.nn.Parameter, Optimiser]:
        weight = torch.nn.Parameter(torch.zeros(128, 64, device="cuda", dtype=torch.bfloat16))
        return weight, Optimiser([("w", weight)], OptimiserSettings(name=name, weight_decay=0.0))  # type: ignore[arg-type]

    def go(weight: torch.nn.Parameter, optimiser: Optimiser, steps: int) -> None:
        for _ in range(steps):
            weight.grad = (weight.detach() - target).to(weight.dtype)
            optimiser.step(0.05)

    weight, optimiser = made()
    go(weight, optimiser, 10)
    kept = {key: value.detach().cpu().clone() for key, value in optimiser.state().items()}
    go(weight, optimiser, 30)
    again, other = made()
    other.restore(kept)
    go(again, other, 30)
    assert torch.equal(again, weight) and float((weight - target).abs().mean()) < 0.3


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


def test_rates_at_the_edges_of_their_schedules() -> None:
    def rates(steps: int, *at: int, **how: Any) -> list[float]:
        return [learning_rate(OptimiserSettings(lr=0.8, **how), step, steps) for step in at]

    assert rates(10, 0, 5, 9, 99) == [0.8] * 4
    # Two steps of warm-up, then eight of a line from 0.8 to a quarter of it.
    line = rates(10, 0, 1, 2, 6, 9, 10, 50, warmup=2, schedule="linear", final=0.25)
    assert line == pytest.approx([0.4, 0.8, 0.8, 0.8 * 0.625, 0.8 * (0.25 + 0.75 / 8), 0.2, 0.2])
    wave = rates(10, 2, 4, 6, 10, warmup=0.2, schedule="cosine")
    assert wave == pytest.approx([0.8, 0.8 * 0.8535534, 0.4, 0.0], abs=1e-7)
    assert rates(100, 6, 7, warmup=0.07, schedule="linear") == pytest.approx([0.8, 0.8])
    assert rates(1, 0, 1, warmup=5, schedule="linear") == pytest.approx([0.16, 0.32])
    assert rates(2, 2, warmup=2, schedule="linear") == [0.8]
    assert rates(10, 0, 1, warmup=1.5) == pytest.approx([0.4, 0.8]) and rates(10, 0, warmup=1.0) == [0.8]


def test_an_optimiser_counts_what_it_applied_and_returns_the_norm() -> None:
    weight, bias = torch.nn.Parameter(torch.ones(2, 2)), torch.nn.Parameter(torch.ones(2))
    still = torch.nn.Parameter(torch.ones(3))
    optimiser = Optimiser(
        [("weight", weight), ("bias", bias), ("still", still)], OptimiserSettings(lr=0.5, weight_decay=0.5)
    )
    weight.grad, bias.grad = torch.full((2, 2), 3.0), torch.full((2,), 4.0)
    assert (
        optimiser.applied == 0 and optimiser.step(0.125) == pytest.approx((36 + 32) ** 0.5) and optimiser.applied == 1
    )
    # The first step of Adam is the rate itself; matrices decay by rate x decay besides.
    assert weight.detach().flatten().tolist() == pytest.approx([1 - 0.0625 - 0.125] * 4, abs=1e-4)
    assert bias.detach().tolist() == pytest.approx([0.875] * 2, abs=1e-4) and still.detach().tolist() == [1, 1, 1]
    assert weight.grad is None and bias.grad is None
    assert sorted(optimiser.state()) == sorted(
        f"{n}/{k}" for n in ("weight", "bias") for k in ("step", "exp_avg", "exp_avg_sq")
    )
    weight.grad = torch.full((2, 2), torch.inf)
    with pytest.raises(finite.NotFiniteError, match="norm of the gradient is"):
        optimiser.step(0.1)
    assert weight.grad is None and optimiser.applied == 1
    assert weight.detach().flatten().tolist() == pytest.approx([1 - 0.0625 - 0.125] * 4, abs=1e-4)


def test_coarse_weights_without_a_gradient_stay_what_they_are() -> None:
    moved, still = (torch.nn.Parameter(torch.ones(2, dtype=torch.bfloat16)) for _ in range(2))
    optimiser = Optimiser([("moved", moved), ("still", still)], OptimiserSettings())
    moved.grad = torch.ones(2, dtype=torch.bfloat16)
    optimiser.step(0.25)
    assert moved.detach().tolist() == [0.75, 0.75] and still.detach().tolist() == [1, 1] and moved.grad is None
    assert set(optimiser.state()) == {
        "still/master",
        *(f"moved/{k}" for k in ("master", "step", "exp_avg", "exp_avg_sq")),
    }


def test_muon_and_adamw_get_the_settings_and_come_back_from_a_state() -> None:
    settings = OptimiserSettings(name="muon", lr=0.5, betas=(0.8, 0.7), weight_decay=0.03)

    def made() -> tuple[list[torch.nn.Parameter], Optimiser]:
        torch.manual_seed(0)
        parameters = [torch.nn.Parameter(torch.randn(3, 3)) for _ in range(2)] + [torch.nn.Parameter(torch.ones(3))]
        named = list(zip(("inside", "outside", "norm"), parameters, strict=True))
        return parameters, Optimiser(named, settings, hidden={"inside"})

    parameters, optimiser = made()
    (muon,), (matrices, vectors) = (part.param_groups for part in optimiser.parts)
    assert (muon["weight_decay"], muon["momentum"], muon["lr"]) == (0.03, 0.7, 0.5)
    assert (matrices["weight_decay"], vectors["weight_decay"], matrices["betas"]) == (0.03, 0.0, (0.8, 0.7))
    assert muon["params"] == parameters[:1] and matrices["params"] == parameters[1:2]
    again, other = made()

    def step(own: list[torch.nn.Parameter], optimiser: Optimiser, seed: int) -> None:
        torch.manual_seed(seed)
        for parameter in own:
            parameter.grad = torch.randn(parameter.shape)
        optimiser.step(0.1)

    step(parameters, optimiser, 1)
    other.restore({key: value.clone() for key, value in optimiser.state().items()})
    with torch.no_grad():
        for mine, theirs in zip(again, parameters, strict=True):
            mine.copy_(theirs)
    for own, each in ((parameters, optimiser), (again, other)):
        step(own, each, 2)
    assert all(torch.equal(a, b) for a, b in zip(parameters, again, strict=True))


def test_steps_are_those_of_torch_up_to_its_rounding() -> None:
    """torch's Muon rounds to bfloat16, and its rounds are steep where a singular value is small."""
    generator = torch.Generator().manual_seed(0)
    shapes = [(6, 6), (12, 5), (6, 6), (5, 12)]
    start = [torch.randn(shape, generator=generator) for shape in shapes]
    ours, theirs = ([torch.nn.Parameter(p.clone()) for p in start] for _ in range(2))
    own = Muon(ours, lr=0.05, weight_decay=0.1, momentum=0.9)
    other = torch.optim.Muon(theirs, lr=0.05, weight_decay=0.1, momentum=0.9, adjust_lr_fn="match_rms_adamw")
    for _ in range(4):
        for mine, peer in zip(ours, theirs, strict=True):
            mine.grad = torch.randn(mine.shape, generator=generator)
            peer.grad = mine.grad.clone()
        own.step()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a processor without bfloat16 says so
            other.step()
        for mine, peer, begin in zip(ours, theirs, start, strict=True):
            moved = (peer - begin).norm()
            assert (mine - peer).norm() < 0.12 * moved and moved > 0.05


def test_directions_come_out_alike_whatever_their_size_and_shape() -> None:
    generator = torch.Generator().manual_seed(1)
    for shape in ((3, 20), (20, 3), (8, 8)):
        matrices = torch.randn((2, *shape), generator=generator) * torch.tensor([1e-4, 1e4])[:, None, None]
        sizes = torch.linalg.svdvals(orthogonal(matrices))
        assert float(sizes.min()) > 0.3 and float(sizes.max()) < 1.3
    assert not torch.isnan(orthogonal(torch.zeros(1, 2, 3))).any()


def test_the_rounds_act_on_singular_values_alone() -> None:
    matrix = torch.randn((4, 7), generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    left, sizes, right = torch.linalg.svd(matrix, full_matrices=False)
    sizes = sizes / sizes.norm()
    for _ in range(5):
        sizes = 3.4445 * sizes - 4.7750 * sizes**3 + 2.0315 * sizes**5
    torch.testing.assert_close(orthogonal(matrix[None])[0], left * sizes @ right)


def test_a_matrix_without_a_gradient_stays() -> None:
    still, moved = (torch.nn.Parameter(torch.ones(2, 2)) for _ in range(2))
    moved.grad = torch.ones(2, 2)
    Muon([still, moved], lr=0.1, weight_decay=0.1, momentum=0.9).step()
    assert torch.equal(still, torch.ones(2, 2)) and not torch.equal(moved, torch.ones(2, 2))
