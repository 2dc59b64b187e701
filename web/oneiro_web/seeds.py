"""Randomness without state: every generator is derived from a seed and the name of what it is for.

Contents and tasks are drawn from these generators, so another derivation would be another benchmark: the scheme is the
one of `oneiro.runtime.seeds`, and a test holds its values.
"""

from __future__ import annotations

import hashlib

import numpy as np


def derive(*parts: int | str) -> int:
    """A 63-bit seed from a path of names and numbers; stable across processes and Python versions."""
    text = "\x1f".join(f"{type(part).__name__}:{part}" for part in parts)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little") >> 1


def generator(*parts: int | str) -> np.random.Generator:
    """A numpy generator of its own for this path."""
    return np.random.default_rng(derive(*parts))
