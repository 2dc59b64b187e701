"""Tokenizer training: it learns, counts honestly, and a killed run ends where an undisturbed one would have."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from oneiro.learning import checkpoint
from oneiro.learning.optimiser import Optimiser, OptimiserSettings
from oneiro.learning.reconstruction import (
    Adversary,
    DiscriminatorLossSettings,
    ReconstructionSettings,
    codes_used,
    losses,
    restore,
    save,
    train,
)
from oneiro.models.video import tokenizer as tokenizers
from oneiro.models.video.blocks import Discriminator
from oneiro.models.video.tokenizer import (
    CompressiveTokenizerSettings,
    FrameTokenizerSettings,
    Reconstruction,
    TokenizerSettings,
)
from oneiro.runtime import seeds
from oneiro.runtime.errors import OneiroError
from oneiro.runtime.interrupt import Saving

SIZE: dict[str, Any] = {"height": 16, "width": 16, "patch": 4, "channels": (16, 16), "layers": 1, "latent": 8}
FRAME = FrameTokenizerSettings(**SIZE, levels=(8, 5, 5))
COMPRESSIVE = CompressiveTokenizerSettings(**SIZE, levels=(8, 5, 5), squares=1, dropout=0.05)
ADVERSARY = DiscriminatorLossSettings(start=0.4, alternate=True, network={"channels": (8, 8)})  # type: ignore[arg-type]


class Stopped(Exception):
    pass


def bars(number: int) -> torch.Tensor:
    """A bright bar that walks over a dark frame: [2, 3, 3, 16, 16]."""
    generator = torch.Generator().manual_seed(number)
    starts = torch.randint(0, 13, (2, 1), generator=generator) + torch.arange(3)
    column = torch.arange(16)
    lit = ((column >= starts[..., None]) & (column < starts[..., None] + 3)).float()
    return (0.2 + 0.6 * lit)[:, :, None, None, :].expand(2, 3, 3, 16, 16).contiguous()


def go(
    settings: TokenizerSettings, how: ReconstructionSettings, folder: Path, stop: int = 0
) -> list[tuple[int, dict[str, float]]]:
    logged: list[tuple[int, dict[str, float]]] = []

    def log(step: int, values: dict[str, float]) -> None:
        logged.append((step, values))
        if step == stop:
            raise Stopped

    train(tokenizers.create(settings, 3, "cpu"), how, bars, None, folder, 5, log)
    return logged


def schedule(steps: int, **more: Any) -> ReconstructionSettings:
    return ReconstructionSettings(steps=steps, lpips=0, checkpoint_every=2, **more)


@pytest.mark.parametrize(
    "settings", [FRAME, pytest.param(COMPRESSIVE, marks=pytest.mark.thorough)], ids=["frame", "compressive"]
)
def test_a_walking_bar_is_learned(settings: TokenizerSettings, tmp_path: Path) -> None:
    fast = {"lr": 5e-3, "schedule": "cosine", "warmup": 0.1, "weight_decay": 0.0}
    how = schedule(50, mse=5.0, optimiser=fast).model_copy(update={"checkpoint_every": 100})
    logged = go(settings, how, tmp_path)
    tokenizer = tokenizers.load(tmp_path, "cpu")
    frames = bars(1000)
    context, tokens = tokenizer.encode(frames)
    error = float((tokenizer.decode(context, tokens) - frames).abs().mean())
    # Grey would be 0.3 away, and the mean frame 0.18.
    assert logged[0][1]["l1"] > 0.2 and error < 0.16
    assert logged[-1][1]["codes_used"] > 1


@pytest.mark.parametrize("settings", [FRAME, COMPRESSIVE], ids=["frame", "compressive"])
def test_a_stopped_training_ends_with_the_same_weights(settings: TokenizerSettings, tmp_path: Path) -> None:
    how = schedule(7, discriminator=ADVERSARY)
    alone = go(settings, how, tmp_path / "alone")
    with pytest.raises(Stopped):
        go(settings, how, tmp_path / "stopped", stop=5)
    rest = go(settings, how, tmp_path / "stopped")
    assert [step for step, _ in rest] == [5, 6, 7] and rest == alone[4:]
    one, two = (tokenizers.load(tmp_path / name, "cpu") for name in ("alone", "stopped"))
    for (name, before), after in zip(one.state_dict().items(), two.state_dict().values(), strict=True):
        assert torch.equal(before, after), name


def test_steps_count_updates_of_the_tokenizer_and_the_cosine_ends_at_zero(tmp_path: Path) -> None:
    how = schedule(10, discriminator=ADVERSARY, optimiser={"lr": 1e-3, "schedule": "cosine", "warmup": 0})
    logged = go(FRAME, how, tmp_path)
    assert [step for step, _ in logged] == list(range(1, 11))
    rates = [values["lr"] for _, values in logged]
    assert rates[0] == 1e-3 and rates[5] == pytest.approx(5e-4) and rates[-1] == pytest.approx(2.447e-5, rel=1e-3)
    # The opponent takes part from four tenths of the way on.
    assert ["discriminator" in values for _, values in logged] == [False] * 4 + [True] * 6


def test_the_loss_adds_frames_and_contexts_by_hand() -> None:
    made, true = torch.full((2, 3, 4, 4), 0.5), torch.full((2, 3, 4, 4), 0.25)
    context, true_context = torch.zeros(1, 3, 4, 4), torch.full((1, 3, 4, 4), 0.5)
    found = Reconstruction(made, true, context, true_context)
    how = ReconstructionSettings(l1=1.0, mse=2.0, lpips=3.0)
    total, terms = losses(found, how, lambda a, b: (a - b).amax(dim=(1, 2, 3)).abs(), None)
    # Frames: 0.25 + 2 * 0.0625 + 3 * 0.25; context: 0.5 + 2 * 0.25 + 3 * 0.5.
    assert float(total) == pytest.approx(1.125 + 2.5)
    assert (terms["l1"], terms["context_l1"], terms["lpips"], terms["context_lpips"]) == (0.25, 0.5, 0.25, 0.5)


SMALL_SIZE: dict[str, Any] = {
    "height": 16,
    "width": 24,
    "patch": 4,
    "channels": (8, 8),
    "layers": 1,
    "latent": 4,
}


SMALL_FRAME = FrameTokenizerSettings(**SMALL_SIZE, levels=(5, 5))


SMALL_COMPRESSIVE = CompressiveTokenizerSettings(**SMALL_SIZE, levels=(5, 5), squares=1, dropout=0.3)


SGD = {"lr": 0.01, "betas": (0.0, 0.9), "weight_decay": 0.0, "clip": 0.5}


NETWORK = {"channels": (4, 4)}


def draw(number: int) -> torch.Tensor:
    return torch.rand(2, 3, 3, 16, 24, generator=torch.Generator().manual_seed(number))


class Adam:
    """Adam without momentum, decay or schedule: (the clipped gradient) / sqrt(moving mean of its square)."""

    def __init__(self, parameters: list[torch.nn.Parameter]) -> None:
        self.parameters, self.squares, self.count = parameters, [torch.zeros_like(p) for p in parameters], 0

    def step(self, loss: torch.Tensor, rate: float) -> float:
        found = torch.autograd.grad(loss, self.parameters, allow_unused=True)
        gradients = [torch.zeros_like(p) if g is None else g for p, g in zip(self.parameters, found, strict=True)]
        norm = float(torch.cat([g.flatten() for g in gradients]).norm())
        self.count += 1
        with torch.no_grad():
            for parameter, gradient, square in zip(self.parameters, gradients, self.squares, strict=True):
                clipped = gradient * min(1.0, 0.5 / (norm + 1e-6))
                square.mul_(0.9).add_(0.1 * clipped.square())
                parameter.sub_(rate * clipped / ((square / (1 - 0.9**self.count)).sqrt() + 1e-8))
        return norm


def distance(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return (a - b).square().flatten(1).sum(1).sqrt()


@pytest.mark.parametrize("alternate", [True, False], ids=["alternate", "same"])
@pytest.mark.parametrize("settings", [SMALL_FRAME, SMALL_COMPRESSIVE], ids=["frame", "compressive"])
def test_two_steps_with_an_opponent_are_those_worked_out_beside_them(
    settings: Any, alternate: bool, tmp_path: Path
) -> None:
    opponent = DiscriminatorLossSettings(
        weight=0.7,
        start=1,
        gradient_penalty=3.0,
        alternate=alternate,
        network=NETWORK,
        optimiser=SGD,  # type: ignore[arg-type]
    )
    how = ReconstructionSettings(steps=3, l1=2.0, mse=3.0, lpips=0.5, discriminator=opponent, optimiser=SGD)  # type: ignore[arg-type]
    logged: list[dict[str, float]] = []
    tokenizer = tokenizers.create(settings, 3, "cpu")
    rewound: list[int] = []
    folder = train(
        tokenizer, how, draw, distance, tmp_path, 5, lambda step, values: logged.append(values), rewound.append
    )
    assert folder == tmp_path / "step-000003" / "tokenizer" and rewound == [0] and not tokenizer.training

    again = tokenizers.create(settings, 3, "cpu").train()
    with torch.random.fork_rng():
        torch.manual_seed(5)
        network = Discriminator(opponent.network, 16)
    own, other = Adam(list(again.parameters())), Adam(list(network.parameters()))
    for step in range(3):
        expected: dict[str, float] = {}
        torch.manual_seed(seeds.derive(5, "dropout", step) % 2**63)
        found = again.reconstruct(draw(2 * step))
        total, seen, true = torch.zeros(()), [found.made], [found.true]
        pairs = {"": (found.made, found.true)}
        if settings is SMALL_COMPRESSIVE:
            assert found.context is not None and found.true_context is not None
            pairs["context_"] = found.context, found.true_context
            seen, true = [found.made, found.context], [found.true, found.true_context]
        for name, (a, b) in pairs.items():
            felt = distance(a.clamp(0, 1), b).mean()
            total = total + 2 * (a - b).abs().mean() + 3 * F.mse_loss(a, b) + 0.5 * felt
            expected |= {f"{name}l1": float((a - b).detach().abs().mean()), f"{name}lpips": float(felt.detach())}
        if step >= 1:
            verdict = network(torch.cat(seen)).mean()
            total = total - 0.7 * verdict
            expected["verdict"] = float(verdict)
        expected |= {"loss": float(total), "lr": 0.01, "codes_used": len(set(found.indices.flatten().tolist()))}  # type: ignore[union-attr]
        expected["grad_norm"] = own.step(total, 0.01)
        if step >= 1:
            if alternate:
                with torch.no_grad():
                    found = again.reconstruct(draw(2 * step + 1))
                seen, true = [found.made], [found.true]
                if settings is SMALL_COMPRESSIVE:
                    seen, true = [found.made, found.context], [found.true, found.true_context]  # type: ignore[list-item]
            real, fake = network(torch.cat(true)), network(torch.cat(seen).detach())
            shown = torch.cat(true).clone().requires_grad_()
            (slope,) = torch.autograd.grad(network(shown).sum(), shown, create_graph=True)
            penalty = (slope.flatten(1).square().sum(1).sqrt() - 1).square().mean()
            loss = (1 - real).clamp(min=0).mean() + (1 + fake).clamp(min=0).mean() + 3 * penalty
            right = torch.cat([(real > 0).flatten(), (fake < 0).flatten()]).float().mean()
            expected |= {"discriminator": float(loss), "discriminator_right": float(right)}
            expected["discriminator_norm"] = other.step(loss, 0.01)
        assert logged[step] == pytest.approx(expected, rel=2e-3, abs=1e-5), step
    for (name, a), b in zip(tokenizer.named_parameters(), again.parameters(), strict=True):
        if a.dim() > 1:  # the gradient of a bias before a norm is rounding
            torch.testing.assert_close(a, b, rtol=1e-2, atol=2e-3, msg=name)


def test_an_opponent_learns_as_published_where_nothing_is_set() -> None:
    settings = DiscriminatorLossSettings()
    assert (settings.weight, settings.gradient_penalty, settings.start, settings.alternate) == (0.1, 10.0, 0.0, False)
    optimiser = settings.optimiser
    assert (optimiser.lr, optimiser.betas, optimiser.weight_decay) == (5e-4, (0.9, 0.999), 0.0)


def test_an_opponent_plays_from_its_step_or_share_on() -> None:
    tokenizer = tokenizers.create(SMALL_FRAME, 0, "cpu")
    for start, first in ((0.0, 0), (0.25, 5), (0.26, 6), (1, 1), (7, 7)):
        opponent = Adversary.of(DiscriminatorLossSettings(start=start, network=NETWORK), 1, tokenizer)  # type: ignore[arg-type]
        assert [opponent.plays(step, 20) for step in range(20)] == [step >= first for step in range(20)]


def test_terms_that_weigh_nothing_are_left_out() -> None:
    found = Reconstruction(torch.full((1, 3, 2, 2), 1.5), torch.ones(1, 3, 2, 2))
    asked: list[torch.Tensor] = []

    def perceptual(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        asked.append(a)
        return (a - b).flatten(1).sum(1) + 7

    total, terms = losses(found, ReconstructionSettings(l1=2.0, lpips=0), perceptual, None)
    assert float(total) == 1.0 and set(terms) == {"loss", "l1"} and not asked
    total, terms = losses(found, ReconstructionSettings(l1=2.0, lpips=0.5), perceptual, None)
    # What lies beyond white is not compared: the distance is that of two white frames.
    assert float(total) == 1.0 + 3.5 and float(terms["lpips"]) == 7 and asked[0].max() == 1
    assert float(losses(found, ReconstructionSettings(l1=2.0), None, None)[0]) == 1.0
    assert codes_used(found) == 0
    assert codes_used(Reconstruction(found.made, found.true, indices=torch.tensor([[3, 1], [1, 4]]))) == 3


def test_a_checkpoint_holds_both_networks_and_both_optimisers_and_brings_them_back(tmp_path: Path) -> None:
    settings = DiscriminatorLossSettings(network=NETWORK)  # type: ignore[arg-type]

    def fresh(seed: int) -> tuple[tokenizers.Tokenizer, Optimiser, Adversary]:
        tokenizer = tokenizers.create(SMALL_FRAME, seed, "cpu")
        return (
            tokenizer,
            Optimiser(list(tokenizer.named_parameters()), ReconstructionSettings().optimiser),
            Adversary.of(settings, seed, tokenizer),
        )

    tokenizer, optimiser, opponent = fresh(1)
    assert restore(tmp_path, tokenizer, optimiser, opponent) == 0
    for parameter in (*tokenizer.parameters(), *opponent.network.parameters()):
        parameter.grad = torch.full_like(parameter, 0.1)
    optimiser.step(0.1)
    opponent.optimiser.step(0.1)
    for step in (4, 5, 6):
        save(tmp_path, step, tokenizer, optimiser, opponent)
    assert sorted(checkpoint.checkpoints(tmp_path)) == [5, 6]
    # A process may be killed before it removed the oldest: the next one does.
    (tmp_path / "step-000003").mkdir()
    other, moments, rival = fresh(2)
    assert restore(tmp_path, other, moments, rival) == 6
    assert sorted(checkpoint.checkpoints(tmp_path)) == [5, 6]
    for one, two in ((tokenizer, other), (opponent.network, rival.network)):
        for a, b in zip(one.state_dict().values(), two.state_dict().values(), strict=True):
            assert torch.equal(a, b)
    for first, second in ((optimiser, moments), (opponent.optimiser, rival.optimiser)):
        kept, found = first.state(), second.state()
        assert kept.keys() == found.keys() and len(kept) > 3
        assert all(torch.equal(kept[key], found[key]) for key in kept)
    # Without an opponent nothing of one is written or asked for.
    save(tmp_path / "alone", 1, tokenizer, optimiser, None)
    assert sorted(p.name for p in (tmp_path / "alone" / "step-000001").iterdir()) == [
        "manifest.json", "optimiser.safetensors", "state.json", "tokenizer",
    ]  # fmt: skip
    assert restore(tmp_path / "alone", *fresh(3)[:2], None) == 1


class Due(Saving):
    """Asks for one checkpoint out of turn, and remembers all that were written."""

    def __init__(self, at: int) -> None:
        super().__init__()
        self.at, self.step, self.kept = at, 0, list[int]()

    def log(self, step: int, values: dict[str, float]) -> None:
        self.step = step

    def due(self) -> bool:
        return self.step == self.at

    def done(self) -> None:
        self.kept.append(self.step)


@pytest.mark.parametrize(("every", "due", "expected"), [(2, 0, [2, 4, 5]), (9, 3, [3, 5])])
def test_checkpoints_come_as_often_as_asked_at_the_end_and_when_due(
    every: int, due: int, expected: list[int], tmp_path: Path
) -> None:
    saving = Due(due)
    how = ReconstructionSettings(steps=5, lpips=0, checkpoint_every=every)
    train(tokenizers.create(SMALL_FRAME, 3, "cpu"), how, draw, None, tmp_path, 5, saving.log, saving=saving)
    assert saving.kept == expected and sorted(checkpoint.checkpoints(tmp_path)) == [5]


def test_a_loss_that_is_not_finite_ends_the_training_and_names_the_step(tmp_path: Path) -> None:
    def broken(number: int) -> torch.Tensor:
        return draw(number) / (0 if number == 4 else 1)

    how = ReconstructionSettings(steps=5, lpips=0, checkpoint_every=1)
    with pytest.raises(OneiroError, match="step 3"):
        train(tokenizers.create(SMALL_FRAME, 3, "cpu"), how, broken, None, tmp_path, 5, lambda step, values: None)
    assert sorted(checkpoint.checkpoints(tmp_path)) == [1, 2]


def test_weights_that_are_not_finite_are_never_kept_and_the_step_is_named(tmp_path: Path) -> None:
    tokenizer = tokenizers.create(SMALL_FRAME, 3, "cpu")

    def spoil(step: int, values: dict[str, float]) -> None:
        if step == 3:
            with torch.no_grad():
                next(tokenizer.parameters()).fill_(float("nan"))

    how = ReconstructionSettings(steps=5, lpips=0, checkpoint_every=1)
    with pytest.raises(OneiroError, match="step 3: the weights"):
        train(tokenizer, how, draw, None, tmp_path, 5, spoil)
    assert sorted(checkpoint.checkpoints(tmp_path)) == [1, 2]


def test_an_opponent_whose_weights_are_not_finite_is_never_kept(tmp_path: Path) -> None:
    endless = OptimiserSettings(lr=1, weight_decay=1e39)  # its one loss is finite, its weights after that step are not
    opponent = DiscriminatorLossSettings(start=0, optimiser=endless, network=NETWORK)  # type: ignore[arg-type]
    how = ReconstructionSettings(steps=1, lpips=0, discriminator=opponent)
    with pytest.raises(OneiroError, match="step 1: the weights"):
        train(tokenizers.create(SMALL_FRAME, 3, "cpu"), how, draw, None, tmp_path, 5, lambda step, values: None)
    assert not checkpoint.checkpoints(tmp_path)
