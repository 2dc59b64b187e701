"""Where the time goes: seconds by name, taken where they are spent and read once a step.

    with spent("worlds"):
        ...                      # whatever in here is spent on sampling counts as sampling

One clock for the process: what runs in threads is timed by who waits for them.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

_seconds: dict[str, float] = {}


@contextmanager
def spent(name: str) -> Iterator[None]:
    """Seconds inside count for `name`, less those that count for another name within it."""
    start, others = time.perf_counter(), sum(_seconds.values())
    try:
        yield
    finally:
        within = sum(_seconds.values()) - others
        _seconds[name] = _seconds.get(name, 0.0) + time.perf_counter() - start - within


def read() -> dict[str, float]:
    """What was spent since the last reading."""
    found = dict(_seconds)
    _seconds.clear()
    return found
