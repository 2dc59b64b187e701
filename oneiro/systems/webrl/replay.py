"""Replay by perplexity: past successful steps that the actor neither knows for sure nor finds strange."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from oneiro.episode import Floats
from oneiro.runtime.seeds import generator
from oneiro.systems.webrl.trajectories import Trajectory


@dataclass(frozen=True, slots=True)
class Stored:
    """One step of a stored success, and where it is stored."""

    phase: int
    """0: the demonstrations."""
    trajectory: int
    step: int


def confidence(logprobs: Floats) -> float:
    """Geometric-mean probability of a reply's tokens, 1 / perplexity. `logprobs` are without the end token's."""
    return float(np.exp(np.mean(logprobs))) if len(logprobs) else 0.0


def in_band(probability: float, band: tuple[float, float]) -> bool:
    """Perplexity in [1 / high, 1 / low): the low end is out, the high end in, as released."""
    return band[0] < probability <= band[1]


def stored_steps(phases: dict[int, Sequence[Trajectory]], good: dict[int, Sequence[bool]], quota: int) -> list[Stored]:
    """Every step of the first `quota` successes of each task, over all phases in order."""
    taken: dict[str, int] = {}
    found = []
    for phase in sorted(phases):
        for number, trajectory in enumerate(phases[phase]):
            if not good[phase][number] or taken.get(trajectory.task_id, 0) >= quota:
                continue
            taken[trajectory.task_id] = taken.get(trajectory.task_id, 0) + 1
            found += [Stored(phase, number, step) for step in range(len(trajectory))]
    return found


def select(
    steps: Sequence[Stored],
    probabilities: Sequence[float],
    new_steps: int,
    band: tuple[float, float],
    cap: float,
    seed: int,
) -> list[tuple[Stored, float]]:
    """Those in the band, shuffled, at most `cap` times the number of new steps."""
    inside = [(step, p) for step, p in zip(steps, probabilities, strict=True) if in_band(p, band)]
    order = generator(seed, "replay").permutation(len(inside))
    return [inside[i] for i in order[: int(cap * new_steps)]]
