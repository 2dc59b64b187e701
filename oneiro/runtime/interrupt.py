"""Ctrl-C and SIGTERM. Training ends its step and saves before it stops; everything else, and a second one, stops at
once.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

from oneiro.runtime import distributed

NOTICE = b"\nstopping after this step, with a checkpoint; once more stops at once\n"


class Stopped(KeyboardInterrupt):
    """Work was stopped that can go on; the text says how."""


@dataclass
class _State:
    deferring: int = 0
    requested: bool = False
    """A first signal came, and waits for the checkpoint."""
    notice: bytes = NOTICE


_state = _State()


@contextmanager
def handle() -> Iterator[None]:
    """Inside, both signals stop the work, as this module says. Outside the main thread nothing changes."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    owner = os.getpid()

    def hear(number: int, frame: FrameType | None) -> None:
        if os.getpid() == owner and _state.deferring and not _state.requested:
            _state.requested = True
            if distributed.is_main_process():
                os.write(2, _state.notice)  # printing is not safe in the middle of anything
            return
        raise KeyboardInterrupt

    signals = [number for number in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(number) != signal.SIG_IGN]
    before = {number: signal.signal(number, hear) for number in signals}
    _state.requested = False
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler or signal.SIG_DFL)
        _state.requested = False


@contextmanager
def _defer(notice: bytes) -> Iterator[None]:
    before, _state.notice = _state.notice, notice
    _state.deferring += 1
    try:
        yield
    finally:
        _state.deferring -= 1
        _state.notice = before


@contextmanager
def postpone() -> Iterator[None]:
    """Inside, the first signal waits for the end: what must not be cut in two, and does not take long."""
    with _defer(b""):
        yield
    if _state.requested:
        raise KeyboardInterrupt


class Saving:
    """When training saves besides its every so many steps: after `minutes`, and before it stops.

    with saving.deferred():
        for step in ...:
            ...
            if step % every == 0 or saving.due():
                save()
                saving.done()
            saving.stop()
    """

    def __init__(self, minutes: float | None = None) -> None:
        self._seconds = None if minutes is None else 60 * minutes
        self._last = time.monotonic()

    @contextmanager
    def defer(self) -> Iterator[None]:
        """Inside, the first signal only asks: `due` becomes true, and `stop` stops."""
        with _defer(NOTICE):
            yield

    def due(self) -> bool:
        """Whether to save now: where one rank is late or was stopped, all save."""
        late = self._seconds is not None and time.monotonic() - self._last >= self._seconds
        return distributed.any_rank(late or _state.requested)

    def done(self) -> None:
        """It was saved."""
        self._last = time.monotonic()

    def stop(self) -> None:
        """End here where a signal asked for it, on whatever rank."""
        if distributed.any_rank(_state.requested):
            raise KeyboardInterrupt
