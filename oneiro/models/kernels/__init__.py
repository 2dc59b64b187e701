"""Where GPU kernels are found: modules that need Triton, each beside the plain form of what it computes."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Any


@cache
def triton_module(name: str, device_type: str) -> Any:
    """The module `name` where there is a GPU and Triton, else None."""
    if device_type != "cuda":
        return None
    try:
        return import_module(name)
    except ImportError:
        return None
