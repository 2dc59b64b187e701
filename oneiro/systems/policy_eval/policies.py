"""Policies that see frames: clones of the expert at every perturbation, and recorded actions.

What a policy inside a model does must follow from what the model shows, or nothing of the model is tested. The scripted
policies of a simulator cannot do that: they read its state. So each policy here is the *cloned* expert, a network that
sees the frame, spoiled in the same way as the scripted one; and the clone at earlier stages of its training.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from oneiro.models.video.pixel import PixelReader
from oneiro.runtime.seeds import generator
from oneiro.worlds.robot.policies import PERTURBATIONS, Perturbation


class PixelPolicy(Protocol):
    """Acts on what it sees, in B rollouts at a time."""

    def begin(self, count: int, seed: int, instruction: str) -> None:
        """Start `count` rollouts; nothing of earlier ones remains."""
        ...

    def act(self, frames: np.ndarray) -> np.ndarray:
        """Frames uint8 `[B, H, W, 3]` -> actions float32 `[B, A]`."""
        ...


class Cloned:
    """A network's action with a perturbation, whose noise differs in each rollout."""

    def __init__(self, reader: PixelReader, perturbation: str = "expert") -> None:
        self.reader, self.perturbation = reader, PERTURBATIONS[perturbation]
        self._perturbations: list[Perturbation] = []

    def begin(self, count: int, seed: int, instruction: str) -> None:
        self._perturbations = [self.perturbation(generator("cloned", seed, row)) for row in range(count)]

    def act(self, frames: np.ndarray) -> np.ndarray:
        read = self.reader.read(frames)
        return np.stack([perturb(action) for perturb, action in zip(self._perturbations, read, strict=True)])


class Recorded:
    """Actions `[B, T, A]` that were recorded elsewhere, one after the other, whatever is shown: an open loop.

    It measures how well a model follows given actions, not a policy. After its end it repeats the last action.
    """

    def __init__(self, actions: np.ndarray) -> None:
        self.actions = np.asarray(actions, np.float32)
        self._at = 0

    def begin(self, count: int, seed: int, instruction: str) -> None:
        if count != len(self.actions):
            raise ValueError(f"{len(self.actions)} recordings cannot play {count} rollouts")
        self._at = 0

    def act(self, frames: np.ndarray) -> np.ndarray:
        action = self.actions[:, min(self._at, self.actions.shape[1] - 1)]
        self._at += 1
        return action


def clones(readers: Sequence[tuple[str, PixelReader]]) -> dict[str, Cloned]:
    """Every policy that comes of a clone's stages: the last one with each perturbation, earlier ones by name."""
    *earlier, (_, last) = readers
    return {name: Cloned(last, name) for name in PERTURBATIONS} | {name: Cloned(reader) for name, reader in earlier}
