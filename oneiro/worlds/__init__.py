"""True dynamics: worlds that agents act in and predictors learn."""

from __future__ import annotations

from oneiro.worlds.base import World
from oneiro.worlds.check import check
from oneiro.worlds.registry import make, names

__all__ = ["World", "check", "make", "names"]
