"""An event loop in a thread of its own, for browsers that wait."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

Result = TypeVar("Result")


class LoopThread:
    """Carries out coroutines for callers that do not wait asynchronously."""

    def __init__(self, name: str) -> None:
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, name=name, daemon=True)
        self.thread.start()

    @property
    def alive(self) -> bool:
        """Whether it still takes work."""
        return self.thread.is_alive()

    def wait(self, work: Coroutine[Any, Any, Result], seconds: float) -> Result:
        """The result of `work`. Raises TimeoutError after `seconds`; the work is then cancelled."""
        future = asyncio.run_coroutine_threadsafe(work, self.loop)
        try:
            return future.result(seconds)
        except concurrent.futures.TimeoutError:
            future.cancel()
            raise TimeoutError from None

    def stop(self) -> None:
        """Take no more work."""
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(5.0)
