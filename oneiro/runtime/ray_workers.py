"""Workers as actors of a Ray cluster (extra `ray`). Nothing here is imported unless workers are named `ray...`.

`runtime.processes` gives them work and notices their end. Ray is joined, or started on this machine, when the first
worker is asked for, and left when the process ends.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from oneiro.runtime.errors import OneiroError, first_line, sendable

LOCAL = "ray"
"""The cluster that RAY_ADDRESS names; without one, Ray on this machine alone."""
JOINING = 60
"""Seconds that a cluster may take to answer."""


class RayWorker:
    """An actor and the answer that it owes."""

    def __init__(self, actor: Any) -> None:
        self.actor = actor
        self.owed: Any = None

    def send(self, item: tuple[Any, ...]) -> None:
        self.owed = self.actor.do.remote(*item)

    def receive(self, seconds: float | None = None) -> tuple[Any, Exception | None]:
        import ray

        try:
            answer: tuple[Any, Exception | None] = ray.get(self.owed, timeout=seconds)
            return answer
        except ray.exceptions.GetTimeoutError:
            raise TimeoutError from None
        except (ray.exceptions.RayError, ConnectionError) as error:
            raise EOFError(_reason(error)) from None

    def end(self) -> None:
        self.kill()

    def kill(self) -> None:
        import ray

        with suppress(Exception):  # it is dead, or the cluster is gone
            ray.kill(self.actor)


class RayCluster:
    """Where actors run: `count` of them, by default one for each processor.

    As Ray's own default has it, an actor is placed where a processor is free, and keeps none for itself: one that waits
    for its next episode is in nobody's way.
    """

    def __init__(self, address: str, count: int | None) -> None:
        try:
            import ray
        except ImportError:
            raise OneiroError(f"workers={address} needs Ray: pip install 'oneiro[ray]'") from None
        if not ray.is_initialized():
            _join(ray, address)
        self.count = count or max(1, int(ray.cluster_resources().get("CPU", 1.0)))
        self._actor = ray.remote(_Actor)

    def start(self, work: Callable[..., Any]) -> RayWorker:
        return RayWorker(self._actor.remote(work))

    def ready(self, workers: Sequence[Any]) -> list[Any]:
        """Those that have answered, or died; waits for the first."""
        import ray

        done, _ = ray.wait([worker.owed for worker in workers], num_returns=1)
        return [worker for worker in workers if worker.owed in done]


class _Actor:
    """Does the work, item by item, in a process of its own."""

    def __init__(self, work: Callable[..., Any]) -> None:
        self.work = work

    def do(self, *item: Any) -> tuple[Any, Exception | None]:
        try:
            return self.work(*item), None
        except Exception as error:
            return None, sendable(error)


def _join(ray: Any, address: str) -> None:
    """Become a driver of the cluster; start a local one where no address says otherwise."""
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # Ray asks for it in a warning
    cluster = address if address != LOCAL else os.environ.get("RAY_ADDRESS")
    try:
        if cluster is not None:
            ray.init(address=cluster, log_to_driver=False, logging_level=logging.ERROR)
        else:
            ray.init(address="local", include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    except (ConnectionError, TimeoutError, ValueError, RuntimeError) as error:
        raise OneiroError(f"no Ray cluster at {cluster or 'this machine'}: {first_line(error)}") from None


def _reason(error: BaseException) -> str:
    """The line of a Ray error that says what happened: its first one seldom does."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    causes = [line for line in lines if "Error:" in line or "died" in line or "killed" in line]
    return (causes or lines or [type(error).__name__])[-1][:200]
