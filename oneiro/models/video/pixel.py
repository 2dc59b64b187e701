"""A small network that reads numbers off a single frame: what to do now, or how far a drawer is open.

Pixel policies and success judges are both regressions from a frame, and both are used on frames that a model drew. So
training frames are blurred, brightened and roughened now and then: what such frames look like.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import avg_pool2d, smooth_l1_loss

from oneiro.models.randomness import seeded
from oneiro.models.video.blocks import backward
from oneiro.models.video.tokenizer import pixels
from oneiro.recipe import Settings
from oneiro.runtime import files, seeds
from oneiro.runtime.errors import OneiroError

WEIGHTS, CONFIG = "model.safetensors", "config.json"
CHUNK = 256
"""Frames read at once."""


class PixelSettings(Settings):
    """Size and training of a frame reader."""

    channels: tuple[int, ...] = (16, 32, 64, 64)
    """Of the convolutions; each halves the frame."""
    hidden: int = Field(default=256, ge=1)
    steps: int = Field(default=800, ge=1)
    batch: int = Field(default=64, ge=1)
    lr: float = Field(default=1e-3, gt=0)
    """Greatest learning rate; it warms up and falls to zero along a cosine."""
    weight_decay: float = Field(default=1e-4, ge=0)
    augment: float = Field(default=0.5, ge=0, le=1)
    """Share of training frames that are disturbed."""


class PixelReader(nn.Module):
    """Frame -> numbers. `scale` and `shift` are those of the targets, so that the network itself works in unit size."""

    scale: Tensor
    shift: Tensor

    def __init__(self, size: tuple[int, int], outputs: int, settings: PixelSettings) -> None:
        super().__init__()
        self.size, self.outputs, self.settings = size, outputs, settings
        layers: list[nn.Module] = []
        channels, (height, width) = 3, size
        for out in settings.channels:
            layers += [nn.Conv2d(channels, out, 3, stride=2, padding=1), nn.GroupNorm(min(8, out), out), nn.SiLU()]
            channels, height, width = out, (height + 1) // 2, (width + 1) // 2
        self.eye = nn.Sequential(*layers, nn.Flatten())
        self.mind = nn.Sequential(
            nn.Linear(channels * height * width, settings.hidden), nn.SiLU(), nn.Linear(settings.hidden, outputs)
        )
        self.register_buffer("scale", torch.ones(outputs))
        self.register_buffer("shift", torch.zeros(outputs))

    def forward(self, frames: Tensor) -> Tensor:
        """Float frames `[N, 3, H, W]` in [0, 1] -> `[N, outputs]`."""
        return self.mind(self.eye(2 * frames - 1)) * self.scale + self.shift

    @torch.inference_mode()
    def read(self, frames: np.ndarray) -> np.ndarray:
        """Frames uint8 `[N, H, W, 3]` -> float32 `[N, outputs]`."""
        if frames.shape[1:3] != self.size:
            raise OneiroError(f"a reader of {self.size} frames was shown frames of {frames.shape[1:3]}")
        device = self.scale.device
        parts = [self(pixels(frames[i : i + CHUNK], device)) for i in range(0, len(frames), CHUNK)]
        return torch.cat(parts).cpu().numpy() if parts else np.zeros((0, self.outputs), np.float32)

    def save(self, folder: Path) -> None:
        """Weights and what is needed to load them; the configuration comes last and says that the rest is there."""
        from safetensors.torch import save_file

        state = {name: tensor.detach().cpu().contiguous() for name, tensor in self.state_dict().items()}
        files.write_with(folder / WEIGHTS, partial(save_file, state))
        config = {"size": self.size, "outputs": self.outputs, "settings": self.settings.model_dump(mode="json")}
        files.write_json(folder / CONFIG, config)

    @classmethod
    def load(cls, folder: Path, device: torch.device | str = "cpu") -> PixelReader:
        from safetensors.torch import load_file

        config: Mapping[str, Any] = files.read_json(folder / CONFIG)
        try:
            height, width = config["size"]
            with seeded():  # first weights, of which none stays
                made = cls((height, width), config["outputs"], PixelSettings(**config["settings"]))
            made.load_state_dict(load_file(folder / WEIGHTS))
        except Exception as error:  # a damaged file shows itself in many ways
            raise OneiroError(f"{folder} holds no frame reader ({error}); delete it to train it anew") from error
        return made.eval().to(device)


def train_reader(
    frames: np.ndarray,
    targets: np.ndarray,
    settings: PixelSettings,
    seed: int,
    stages: Sequence[float] = (1.0,),
    advance: Callable[[int, float], Any] = lambda step, loss: None,
    device: torch.device | str = "cpu",
) -> list[PixelReader]:
    """Learn targets `[N, K]` from frames uint8 `[N, H, W, 3]`; one reader for each share of the training in `stages`.

    All stages are of the same training: a network caught on its way.
    """
    if len(frames) != len(targets) or not len(frames):
        raise ValueError(f"{len(frames)} frames and {len(targets)} targets do not make a training set")
    with seeded(seeds.derive("reader", seed)):
        reader = PixelReader((frames.shape[1], frames.shape[2]), targets.shape[1], settings).to(device)
    values = torch.from_numpy(targets.astype(np.float32))
    reader.shift.copy_(values.mean(dim=0))
    reader.scale.copy_(values.std(dim=0, unbiased=False).clamp(min=1e-6))
    optimiser = torch.optim.AdamW(reader.parameters(), lr=settings.lr, weight_decay=settings.weight_decay)
    kept: list[PixelReader] = []
    at = [max(1, round(share * settings.steps)) for share in stages]
    for step in range(1, settings.steps + 1):
        rng = seeds.generator("reader", seed, step)
        chosen = rng.integers(len(frames), size=settings.batch)
        shown = disturb(pixels(frames[chosen], device), settings.augment, rng)
        for group in optimiser.param_groups:
            group["lr"] = settings.lr * _schedule(step / settings.steps)
        # In units of the targets' own spread, so that every output counts alike.
        wanted = (values[chosen].to(device) - reader.shift) / reader.scale
        loss = smooth_l1_loss((reader(shown) - reader.shift) / reader.scale, wanted, beta=0.5)
        optimiser.zero_grad(set_to_none=True)
        backward(loss)
        nn.utils.clip_grad_norm_(reader.parameters(), 1.0)
        optimiser.step()
        advance(step, float(loss.detach()))
        kept += [deepcopy(reader).eval() for place in at if place == step]
    return kept


def disturb(frames: Tensor, share: float, rng: np.random.Generator) -> Tensor:
    """A share of the frames blurred, another brightened or darkened, another roughened, each drawn by itself."""
    frames = frames.clone()

    def draw(low: float, high: float, rows: Tensor) -> Tensor:
        values = rng.uniform(low, high, (len(rows), 1, 1, 1)).astype(np.float32)
        return torch.from_numpy(values).to(frames.device)

    def choose() -> Tensor:
        return torch.from_numpy(np.flatnonzero(rng.random(len(frames)) < share)).to(frames.device)

    rows = choose()
    blurred = avg_pool2d(frames[rows], 3, stride=1, padding=1, count_include_pad=False)
    frames[rows] = torch.lerp(frames[rows], blurred, draw(0.0, 1.0, rows))
    rows = choose()
    frames[rows] = frames[rows] * draw(0.92, 1.08, rows) + draw(-0.04, 0.04, rows)
    rows = choose()
    noise = torch.from_numpy(rng.standard_normal((len(rows), *frames.shape[1:]), np.float32)).to(frames.device)
    frames[rows] = frames[rows] + draw(0.0, 0.04, rows) * noise
    return frames.clamp(0, 1)


def _schedule(share: float) -> float:
    """Learning rate at a share of the training: up over the first twentieth, then down along a cosine."""
    return min(1.0, share / 0.05) * 0.5 * (1 + float(np.cos(np.pi * share)))
