"""Perturbed experts: the scripted expert's action, changed in a named way.

A perturbation is made for each episode, from its generator, and turns the expert's action into the one taken.
So the same perturbations apply to the scripted expert, which sees the state, and to a network, which sees frames.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from oneiro.runtime.errors import OneiroError, nearest
from oneiro.worlds.robot.simulator import ACTION

Perturbation = Callable[[np.ndarray], np.ndarray]
"""The expert's action `[4]` -> the action taken, float32 within [-1, 1]."""
Grade = Callable[[np.random.Generator], Perturbation]

TREMOR, STRONG_TREMOR = 0.4, 0.9
PULL = 0.9


def expert(rng: np.random.Generator) -> Perturbation:
    """As the expert does."""
    return _within


def noisy(rng: np.random.Generator) -> Perturbation:
    """With a trembling hand: Gaussian noise on every number."""
    return lambda action: _within(action + TREMOR * rng.normal(size=ACTION))


def very_noisy(rng: np.random.Generator) -> Perturbation:
    """With a hand that trembles about as much as it moves."""
    return lambda action: _within(action + STRONG_TREMOR * rng.normal(size=ACTION))


def biased(rng: np.random.Generator) -> Perturbation:
    """With a constant pull, each episode in a direction and with a strength of its own."""
    direction = rng.normal(size=3)
    pull = np.append(rng.uniform(0.0, PULL) * direction / np.linalg.norm(direction), 0.0)
    return lambda action: _within(action + pull)


def half_random(rng: np.random.Generator) -> Perturbation:
    """The expert every other time, on average; else anything."""

    def perturb(action: np.ndarray) -> np.ndarray:
        drawn, heeds = _anything(rng), rng.random() < 0.5
        return _within(action) if heeds else drawn

    return perturb


def random(rng: np.random.Generator) -> Perturbation:
    """Anything: each number uniform in [-1, 1]."""
    return lambda action: _anything(rng)


PERTURBATIONS: dict[str, Grade] = {
    "expert": expert,
    "noisy": noisy,
    "very-noisy": very_noisy,
    "biased": biased,
    "half-random": half_random,
    "random": random,
}


def perturbation(name: str) -> Grade:
    """A perturbation by name."""
    if name not in PERTURBATIONS:
        raise OneiroError(f"no policy is called '{name}'{nearest(name, PERTURBATIONS)}")
    return PERTURBATIONS[name]


def _within(action: np.ndarray) -> np.ndarray:
    return np.clip(action, -1.0, 1.0).astype(np.float32)


def _anything(rng: np.random.Generator) -> np.ndarray:
    return rng.uniform(-1.0, 1.0, ACTION).astype(np.float32)
