"""Randomness without state: every generator is derived from a seed and the name of what it is for.

A run that is resumed at step k draws for step k exactly what the uninterrupted run drew, because nothing has to be
remembered: `generator(seed, "rollout", k)` is the same in every process.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np


def derive(*parts: int | str) -> int:
    """A 63-bit seed from a path of names and numbers; stable across processes and Python versions."""
    text = "\x1f".join(f"{type(part).__name__}:{part}" for part in parts)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little") >> 1


def generator(*parts: int | str) -> np.random.Generator:
    """A numpy generator of its own for this path."""
    import numpy as np  # here, so that `oneiro --help` need not wait for it

    return np.random.default_rng(derive(*parts))
