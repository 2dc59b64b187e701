"""Logistic regression in numpy, for models that learn in seconds on a CPU."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

FloatsT = TypeVar("FloatsT", float, NDArray[np.float64])


def sigmoid(logits: FloatsT) -> FloatsT:
    # Beyond 30 the logarithm of 1 - p would soon be that of 0.
    return 1 / (1 + np.exp(-np.clip(logits, -30, 30)))


def fit_logistic(
    X: NDArray[np.float64], y: NDArray[np.float64], weight: NDArray[np.float64], decay: float = 1.0
) -> NDArray[np.float64]:
    """Newton's method for weighted logistic regression with a ridge; the first column of X is the constant."""
    w = np.zeros(X.shape[1])
    ridge = decay * np.eye(len(w))
    ridge[0, 0] = 1e-6  # the constant is free
    for _ in range(25):
        p = sigmoid(X @ w)
        gradient = X.T @ (weight * (p - y)) + ridge @ w
        curvature = (X * (weight * p * (1 - p))[:, None]).T @ X + ridge
        step = np.linalg.solve(curvature, gradient)
        w -= step
        if np.abs(step).max() < 1e-8:
            break
    return w
