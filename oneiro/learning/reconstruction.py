"""Training of video tokenizers: L1, perceptual distance and, if wanted, a discriminator with hinge loss.

    tokenizer      l1 |x - x'| + mse (x - x')^2 + lpips LPIPS(x, x') - adversarial D(x')
    discriminator  relu(1 - D(x)) + relu(1 + D(x')) + gradient_penalty (|D'(x)| - 1)^2

A step is one update of the tokenizer, whatever the discriminator does, and the learning rate is a function of it: a
cosine over `steps` ends where it says.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from oneiro.learning import checkpoint, finite
from oneiro.learning.optimiser import Optimiser, learning_rate
from oneiro.learning.settings import DiscriminatorLossSettings, ReconstructionSettings
from oneiro.models.language import read_state, write_state
from oneiro.models.randomness import seeded
from oneiro.models.video import tokenizer as tokenizers
from oneiro.models.video.blocks import Discriminator, backward, gradient_penalty, hinge
from oneiro.models.video.tokenizer import Reconstruction, Tokenizer
from oneiro.runtime import files, seeds
from oneiro.runtime.interrupt import Saving

Perceptual = Callable[[Tensor, Tensor], Tensor]
"""Two batches of frames [N, 3, H, W] in [0, 1] -> their distances [N]."""
DrawFrames = Callable[[int], Tensor]
"""Number of a batch -> its frames [N, T, 3, H, W] in [0, 1]; a pure function."""
Log = Callable[[int, dict[str, float]], None]


@dataclass
class Adversary:
    """The discriminator and its optimiser."""

    network: Discriminator
    optimiser: Optimiser
    settings: DiscriminatorLossSettings

    @classmethod
    def of(cls, settings: DiscriminatorLossSettings, seed: int, tokenizer: Tokenizer) -> Adversary:
        """A fresh one for the frames of a tokenizer."""
        size = min(tokenizer.settings.height, tokenizer.settings.width)
        with seeded(seed):
            network = Discriminator(settings.network, size).to(tokenizer.device)
        return cls(network, Optimiser(list(network.named_parameters()), settings.optimiser), settings)

    def plays(self, step: int, steps: int) -> bool:
        start = self.settings.start if self.settings.start >= 1 else self.settings.start * steps
        return step >= start

    def update(self, reconstruction: Reconstruction, step: int, steps: int) -> dict[str, float]:
        true, made = (
            both(reconstruction.true, reconstruction.true_context),
            both(reconstruction.made, reconstruction.context).detach(),
        )
        verdict, doubted = self.network(true), self.network(made)
        loss = hinge(verdict, doubted)
        if self.settings.gradient_penalty:
            loss = loss + self.settings.gradient_penalty * gradient_penalty(self.network, true)
        backward(loss)
        norm = self.optimiser.step(learning_rate(self.settings.optimiser, step, steps))
        right = (verdict > 0).float().mean() / 2 + (doubted < 0).float().mean() / 2
        return {"discriminator": float(loss.detach()), "discriminator_right": float(right), "discriminator_norm": norm}


def train(
    tokenizer: Tokenizer,
    settings: ReconstructionSettings,
    draw: DrawFrames,
    perceptual: Perceptual | None,
    folder: Path,
    seed: int,
    log: Log,
    rewind: Callable[[int], None] = lambda step: None,
    say: Callable[[str], object] = warnings.warn,
    saving: Saving | None = None,
) -> Path:
    """Train for `settings.steps` updates, resuming from `folder`; returns the folder of the finished tokenizer."""
    optimiser = Optimiser(list(tokenizer.named_parameters()), settings.optimiser)
    opponent = Adversary.of(settings.discriminator, seed, tokenizer) if settings.discriminator else None
    start = restore(folder, tokenizer, optimiser, opponent, say)
    rewind(start)
    tokenizer.train()
    saving = saving or Saving()
    with saving.defer():
        for step in range(start, settings.steps):
            with (
                finite.at_step(step + 1),
                seeded(seeds.derive(seed, "dropout", step), tokenizer.device),
                half_precision(tokenizer.device),
            ):
                playing = opponent if opponent is not None and opponent.plays(step, settings.steps) else None
                reconstruction = tokenizer.reconstruct(draw(2 * step))
                loss, terms = losses(reconstruction, settings, perceptual, playing)
                backward(loss)
                rate = learning_rate(settings.optimiser, step, settings.steps)
                norm = optimiser.step(rate)
                # Read only now: a GPU would have to be waited for before it was given the way back.
                statistics = {name: float(term) for name, term in terms.items()}
                statistics |= {"grad_norm": norm, "lr": rate, "codes_used": codes_used(reconstruction)}
                if playing is not None:
                    playing.optimiser.zero_grad()  # what the tokenizer's loss left there
                    if playing.settings.alternate:
                        with torch.no_grad():
                            reconstruction = tokenizer.reconstruct(draw(2 * step + 1))
                    statistics |= playing.update(reconstruction, step, settings.steps)
                finite.require(statistics)
            log(step + 1, statistics)
            if (step + 1) % settings.checkpoint_every == 0 or step + 1 == settings.steps or saving.due():
                with finite.at_step(step + 1):
                    finite.require_weights([tokenizer, *([opponent.network] if opponent else [])])
                save(folder, step + 1, tokenizer, optimiser, opponent)
                saving.done()
            saving.stop()
    tokenizer.eval()
    return checkpoint.last(folder) / "tokenizer"


def losses(
    reconstruction: Reconstruction,
    settings: ReconstructionSettings,
    perceptual: Perceptual | None,
    opponent: Adversary | None,
) -> tuple[Tensor, dict[str, Tensor]]:
    """The tokenizer's loss, and its terms; frames and contexts each have a mean of their own."""
    total, terms = reconstruction.made.new_zeros(()), dict[str, Tensor]()
    pairs = [("", reconstruction.made, reconstruction.true)]
    if reconstruction.context is not None and reconstruction.true_context is not None:
        pairs.append(("context_", reconstruction.context, reconstruction.true_context))
    for name, made, true in pairs:
        distance = (made - true).abs().mean()
        total, terms[f"{name}l1"] = total + settings.l1 * distance, distance.detach()
        if settings.mse:
            total = total + settings.mse * (made - true).square().mean()
        if settings.lpips and perceptual is not None:
            # Frames outside [0, 1] would be clamped later: what a person never sees is not compared.
            seen = perceptual(made.clamp(0, 1), true).mean()
            total, terms[f"{name}lpips"] = total + settings.lpips * seen, seen.detach()
    if opponent is not None:
        verdict = opponent.network(both(reconstruction.made, reconstruction.context)).mean()
        total, terms["verdict"] = total - opponent.settings.weight * verdict, verdict.detach()
    return total, {"loss": total.detach(), **terms}


def both(frames: Tensor, context: Tensor | None) -> Tensor:
    return frames if context is None else torch.cat([frames, context])


def codes_used(reconstruction: Reconstruction) -> float:
    """How many different codes the frames of a batch use."""
    return float(len(reconstruction.indices.unique())) if reconstruction.indices is not None else 0.0


def half_precision(device: torch.device) -> torch.autocast:
    """bfloat16 products on a GPU; float32 elsewhere."""
    return torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda")


# Checkpoints ----------------------------------------------------------------------------------------------------------


def save(folder: Path, step: int, tokenizer: Tokenizer, optimiser: Optimiser, opponent: Adversary | None) -> None:
    """The state after `step` steps in a folder of its own; old ones go."""

    def write(part: Path) -> None:
        tokenizer.save(part / "tokenizer")
        write_state(part / "optimiser.safetensors", optimiser.state())
        if opponent is not None:
            write_state(part / "discriminator.safetensors", dict(opponent.network.state_dict()))
            write_state(part / "discriminator-optimiser.safetensors", opponent.optimiser.state())
        files.write_json(part / "state.json", {"step": step})

    checkpoint.write(folder, step, write)


def restore(
    folder: Path,
    tokenizer: Tokenizer,
    optimiser: Optimiser,
    opponent: Adversary | None,
    say: Callable[[str], object] = warnings.warn,
) -> int:
    """Load the newest state; returns the step to go on with, 0 if there is none."""
    newest = checkpoint.intact(folder, say)
    if newest is None:
        return 0
    source, state = newest
    step = int(state["step"])
    trained: list[tuple[str, str, nn.Module, Optimiser, int]] = [
        ("tokenizer/" + tokenizers.WEIGHTS, "optimiser.safetensors", tokenizer, optimiser, step)
    ]
    if opponent is not None:
        names = "discriminator.safetensors", "discriminator-optimiser.safetensors"
        trained.append((*names, opponent.network, opponent.optimiser, 0))
    for weights, moments, network, own, updates in trained:
        saved, kept = read_state(source / weights, "weights"), read_state(source / moments, "optimiser state")
        checkpoint.check_weights(source, dict(network.state_dict()), saved)
        checkpoint.check_optimiser(source, own, kept, updates)
        network.load_state_dict(saved)
        own.restore(kept)
    checkpoint.drop_older(folder)
    return step
