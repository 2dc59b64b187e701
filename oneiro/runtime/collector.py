"""How often Python's garbage collector looks over what is alive, while worlds are played.

A page of the web sandbox is about a thousand objects that refer to one another and stay in a cache. By Python's default
the collector looks at new objects after every 700, and at everything that lives, torch's objects among them, each time
a quarter was added to it. Both took a sixth to a third of the processor time of web episodes; with the threshold here
it is about a tenth. `gc.freeze` alone helps less, and done again it would keep pages that are gone.

The threshold belongs to the whole process. So it is raised only while episodes are played, and put back afterwards;
worker processes, which do nothing else, keep it. A process that has set a higher one, or none, is left as it is.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

NEW_OBJECTS = 10_000  # about 7 pages; every hundredth time all is looked over, so that pages that are gone are freed

_lock = threading.Lock()
_playing = 0
_before = gc.get_threshold()


def collect_rarely() -> None:
    """From now on, in this process."""
    new, *older = gc.get_threshold()
    if 0 < new < NEW_OBJECTS:
        gc.set_threshold(NEW_OBJECTS, *older)


@contextmanager
def collecting_rarely() -> Iterator[None]:
    """In here. Threads may be in here together: the last one that leaves puts the threshold back."""
    global _playing, _before
    with _lock:
        if not _playing:
            _before = gc.get_threshold()
            collect_rarely()
        _playing += 1
    try:
        yield
    finally:
        with _lock:
            _playing -= 1
            if not _playing:
                gc.set_threshold(*_before)
