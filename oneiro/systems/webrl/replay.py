"""Replay by perplexity: past successful turns that the actor neither knows for sure nor finds strange."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from oneiro.episode import Episode, Floats
from oneiro.runtime.seeds import generator
from oneiro.systems.webrl.episodes import task_of, turns_of

Place = tuple[int, int, int]
"""Where a stored turn is: phase (0: the demonstrations), episode of the phase, turn of the episode."""


def confidence(logprobs: Floats) -> float:
    """Geometric-mean probability of a reply's tokens, 1 / perplexity. `logprobs` are without the end token's."""
    return float(np.exp(np.mean(logprobs))) if len(logprobs) else 0.0


def in_band(probability: float, band: tuple[float, float]) -> bool:
    """Perplexity in [1 / high, 1 / low): the low end is out, the high end in, as released."""
    return band[0] < probability <= band[1]


def stored_turns(phases: Sequence[Sequence[Episode]], good: Sequence[Sequence[bool]], quota: int) -> list[Place]:
    """Every turn of the first `quota` successes of each task, over all phases in order."""
    taken: dict[str, int] = {}
    places: list[Place] = []
    for phase, episodes in enumerate(phases):
        for number, episode in enumerate(episodes):
            task = task_of(episode)
            if not good[phase][number] or taken.get(task, 0) >= quota:
                continue
            taken[task] = taken.get(task, 0) + 1
            places += [(phase, number, turn) for turn in range(len(turns_of(episode)))]
    return places


def select(
    places: Sequence[Place],
    probabilities: Sequence[float],
    new_turns: int,
    band: tuple[float, float],
    cap: float,
    seed: int,
) -> list[tuple[Place, float]]:
    """Those in the band, shuffled, at most `cap` times the number of new turns."""
    inside = [(place, p) for place, p in zip(places, probabilities, strict=True) if in_band(p, band)]
    order = generator(seed, "replay").permutation(len(inside))
    return [inside[i] for i in order[: int(cap * new_turns)]]
