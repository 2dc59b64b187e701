"""Work shared among processes of this machine, or actors of a Ray cluster.

A worker that dies takes one item with it and no other. Workers end with the process that started them, however that
ends.

    workers=4                          processes of this machine
    workers=ray                        actors of the cluster in RAY_ADDRESS, else of Ray on this machine
    workers=ray://HOST:10001           actors of a cluster, through its client port
    workers=ray://HOST:10001?actors=64 so many; by default one for each of the cluster's processors
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import get_context, parent_process, resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pickle import PicklingError
from types import ModuleType
from typing import Any, Protocol, TypeVar, TypeVarTuple

from oneiro.runtime.errors import OneiroError, describe, first_line, sendable

Item = TypeVarTuple("Item")
Result = TypeVar("Result")

ATTEMPTS = 2
"""How often an item is tried whose worker dies: the first time it may have been short of memory."""
MAX_ENDING_S = 5.0
"""Seconds that a worker which has nothing left to do may take to end."""


RAY = re.compile(r"(?P<address>ray(://[\w.-]+(:\d+)?)?)(\?actors=(?P<actors>[1-9]\d*))?")


class Worker(Protocol):
    """Someone who does one piece of work after the other, elsewhere."""

    def send(self, item: tuple[Any, ...]) -> None:
        """Ask for the work on an item. A dead worker is noticed with the answer that does not come."""
        ...

    def receive(self, seconds: float | None = None) -> tuple[Any, Exception | None]:
        """What came of it: a result, or what was raised. EOFError: it is dead. TimeoutError: no answer in time."""
        ...

    def end(self) -> None:
        """Nothing more will come."""
        ...

    def kill(self) -> None: ...


class Place(Protocol):
    """Where workers run."""

    count: int
    """How many are meant to run at once."""

    def start(self, work: Callable[..., Any]) -> Worker: ...

    def ready(self, workers: Sequence[Any]) -> list[Any]:
        """Those that have answered, or died; waits for the first."""
        ...


def place(workers: int | str) -> Place:
    """What a setting `workers` means."""
    checked_workers(workers)
    if isinstance(workers, int):
        return Processes(workers)
    from oneiro.runtime.processes import RayCluster

    parts = RAY.fullmatch(workers)
    assert parts is not None
    return RayCluster(parts["address"], int(parts["actors"]) if parts["actors"] else None)


def checked_workers(workers: int | str) -> int | str:
    """A setting `workers` as it is, if it means something."""
    if workers < 0 if isinstance(workers, int) else not RAY.fullmatch(workers):
        raise OneiroError(f"workers: '{workers}' is neither a number nor ray, ray://HOST:PORT or ray?actors=N")
    return workers


class Processes:
    """On this machine."""

    def __init__(self, count: int) -> None:
        self.count = count

    def start(self, work: Callable[..., Any]) -> ProcessWorker:
        context = get_context("spawn")
        pipe, theirs = context.Pipe()
        process = context.Process(target=_serve, args=(work, theirs), daemon=True)
        with contextlib.nullcontext() if work.__module__ == "__main__" else _hide_main(), _hold_interrupts():
            process.start()
        theirs.close()  # or its end would never be noticed here
        return ProcessWorker(process, pipe)

    def ready(self, workers: Sequence[ProcessWorker]) -> list[ProcessWorker]:
        done = wait([worker.pipe for worker in workers])
        return [worker for worker in workers if worker.pipe in done]


@dataclass
class ProcessWorker:
    """A process and the pipe to it."""

    process: BaseProcess
    pipe: Connection

    def send(self, item: tuple[Any, ...]) -> None:
        with contextlib.suppress(OSError):
            self.pipe.send(item)

    def receive(self, seconds: float | None = None) -> tuple[Any, Exception | None]:
        try:
            if seconds is not None and not self.pipe.poll(seconds):
                raise TimeoutError
            answer: tuple[Any, Exception | None] = self.pipe.recv()
            return answer
        except TimeoutError:
            raise
        except (EOFError, OSError):
            self.process.join(MAX_ENDING_S)
            raise EOFError(f"exit code {self.process.exitcode}") from None

    def end(self) -> None:
        self.pipe.close()  # then it ends by itself
        self.process.join(MAX_ENDING_S)
        self.kill()

    def kill(self) -> None:
        self.process.kill()
        self.process.join()
        self.pipe.close()


@dataclass
class _Busy:
    """A worker and the item it is busy with."""

    worker: Worker
    item: tuple[Any, ...]
    attempt: int


def each_done(
    work: Callable[[*Item], Result],
    items: Iterable[tuple[*Item]],
    workers: int | str,
    lost: Callable[[*Item], Result] | None = None,
) -> Iterator[Result]:
    """What `work` gives for each item, as they are done. Stopping stops at once: what is under way is killed.

    An item whose worker dies is tried once more; `lost` then says what it gives, by default an error that ends it all.
    """
    where = place(workers)
    todo = iter(items)
    again: list[tuple[Any, ...]] = []
    busy: list[_Busy] = []
    idle: list[Worker] = []

    def give() -> bool:
        """Begin the next item, if there is one left."""
        item, attempt = (again.pop(), ATTEMPTS) if again else (next(todo, None), 1)
        if item is None:
            return False
        worker = idle.pop() if idle else where.start(work)
        busy.append(_Busy(worker, item, attempt))
        worker.send(item)
        return True

    try:
        while len(busy) < where.count and give():
            pass
        while busy:
            ready = where.ready([own.worker for own in busy])
            for own in [own for own in busy if own.worker in ready]:
                busy.remove(own)
                try:
                    result, error = own.worker.receive()
                except EOFError:
                    own.worker.kill()
                    if own.attempt < ATTEMPTS:
                        again.append(own.item)
                    elif lost is None:
                        raise OneiroError(
                            "a worker died twice at the same work (out of memory?); the same command goes on, try "
                            "fewer workers"
                        ) from None
                    else:
                        yield lost(*own.item)
                else:
                    idle.append(own.worker)
                    if error is not None:
                        raise error
                    yield result
                give()
        while idle:
            idle.pop().end()
    finally:
        for worker in [*(own.worker for own in busy), *idle]:
            worker.kill()


@contextlib.contextmanager
def _hide_main() -> Iterator[None]:
    """A new process imports its parent's main module, so a script without `if __name__ == "__main__"` would begin again
    in every worker. Workers need nothing of it: what they do stands in modules of its own.
    """
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


@contextlib.contextmanager
def _hold_interrupts() -> Iterator[None]:
    """A new process inherits what its parent holds back. It imports for seconds before its first line can say that it
    ignores Ctrl-C, which reaches every process of a terminal; here the signal waits until the process is started.
    """
    resource_tracker.ensure_running()  # else `start` does this, and lets signals through afterwards
    held = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, held)


def _serve(work: Callable[..., Any], pipe: Connection) -> None:
    """What a worker does: one item after the other, until there is nobody to ask for more."""
    # Who started the work decides what becomes of it. Processes that a worker starts hold nothing back.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
    threading.Thread(target=_end_with_parent, daemon=True).start()
    with contextlib.suppress(EOFError, OSError):
        while True:
            item = pipe.recv()
            result: Any = None
            problem: Exception | None = None
            try:
                result = work(*item)
            except Exception as error:
                problem = error
            _send(pipe, result, problem)


def _send(pipe: Connection, result: Any, error: Exception | None) -> None:
    try:
        pipe.send((result, error and sendable(error)))
    except (TypeError, AttributeError, ValueError, PicklingError) as problem:  # a result that cannot be sent
        pipe.send((None, describe(problem)))


def _end_with_parent() -> None:
    """A parent that was killed says nothing, but its end of a pipe closes."""
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


# Workers as actors of a Ray cluster (extra `ray`) ---------------------------------------------------------------------

# Ray is imported, and joined or started on this machine, when the first worker is asked for, and left when the process
# ends.


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
