"""Numbers that are none stop a run before they are written anywhere."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

import numpy as np
import torch
from torch import nn

from oneiro.runtime.errors import OneiroError


class NotFiniteError(OneiroError):
    """NaN or infinity where a number must be; says what, not yet when."""


@contextmanager
def at_step(step: int) -> Iterator[None]:
    """Name the step in what `NotFiniteError` says."""
    try:
        yield
    except NotFiniteError as error:
        raise OneiroError(
            f"step {step}: {error}; no checkpoint was written after it. Try a lower learning rate (optimiser.lr), "
            "or look at the last episodes and the data"
        ) from error


def require_start(name: str, modules: Iterable[nn.Module]) -> None:
    """The weights that training starts from are numbers."""
    try:
        require_weights(modules)
    except NotFiniteError as error:
        raise OneiroError(f"model {name} cannot be trained: {error}; choose other weights") from error


def require(values: Mapping[str, float]) -> None:
    """Every metric of an update is a number."""
    for name, value in values.items():
        if not math.isfinite(value):
            raise NotFiniteError(f"{name} is {value}")


def require_array(name: str, values: Iterable[float] | np.ndarray) -> None:
    """Every entry of what is called `name` is a number."""
    array = np.asarray(values, np.float64)
    wrong = array[~np.isfinite(array)]
    if len(wrong):
        raise NotFiniteError(f"{name} is {wrong[0]} ({len(wrong)} of {array.size})")


@torch.no_grad()
def require_weights(modules: Iterable[nn.Module]) -> None:
    """Every weight is a number; the device is asked once."""
    named = [pair for module in modules for pair in module.named_parameters()]
    whole = torch.stack([torch.isfinite(parameter).all() for _, parameter in named])
    for (name, _), good in zip(named, whole.tolist(), strict=True):
        if not good:
            raise NotFiniteError(f"the weights '{name}' are not finite")
