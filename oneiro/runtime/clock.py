"""Where the time goes: seconds by name, taken where they are spent and read once a step.

    with spent("worlds"):
        ...                      # whatever in here is spent on sampling counts as sampling

Each thread has a clock of its own, and the one that learns is read: what runs beside it is timed by who waits for it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager


class _Clock(threading.local):
    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}


_clock = _Clock()


@contextmanager
def spent(name: str) -> Iterator[None]:
    """Seconds inside count for `name`, less those that count for another name within it."""
    seconds = _clock.seconds
    start, others = time.perf_counter(), sum(seconds.values())
    try:
        yield
    finally:
        within = sum(seconds.values()) - others
        seconds[name] = seconds.get(name, 0.0) + time.perf_counter() - start - within


def read() -> dict[str, float]:
    """What was spent since the last reading."""
    seconds = dict(_clock.seconds)
    _clock.seconds.clear()
    return seconds
