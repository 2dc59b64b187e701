"""Work shared among processes of this machine.

A worker that dies takes one item with it and no other. Workers end with the process that started them, however that
ends.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import get_context, parent_process
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pickle import PicklingError
from typing import Any, TypeVar, TypeVarTuple

from oneiro.errors import OneiroError

Item = TypeVarTuple("Item")
Result = TypeVar("Result")

ATTEMPTS = 2
"""How often an item is tried whose worker dies: the first time it may have been short of memory."""
PATIENCE = 5.0
"""Seconds that a worker which has nothing left to do may take to end."""


@dataclass
class _Worker:
    """A process and the item it is busy with."""

    process: BaseProcess
    pipe: Connection
    item: tuple[Any, ...] | None = None
    attempt: int = 1

    @classmethod
    def start(cls, work: Callable[..., Any]) -> _Worker:
        context = get_context("spawn")
        pipe, theirs = context.Pipe()
        process = context.Process(target=_serve, args=(work, theirs), daemon=True)
        process.start()
        theirs.close()  # or its end would never be noticed here
        return cls(process, pipe)

    def take(self, item: tuple[Any, ...], attempt: int) -> None:
        self.item, self.attempt = item, attempt
        with suppress(OSError):  # it is dead already, which is noticed with the answer that does not come
            self.pipe.send(item)

    def kill(self) -> None:
        self.process.kill()
        self.process.join()
        self.pipe.close()


def each_done(
    work: Callable[[*Item], Result],
    items: Iterable[tuple[*Item]],
    workers: int,
    lost: Callable[[*Item], Result] | None = None,
) -> Iterator[Result]:
    """What `work` gives for each item, as they are done. Stopping stops at once: what is under way is killed.

    An item whose worker dies is tried once more; `lost` then says what it gives, by default an error that ends it all.
    """
    todo = iter(items)
    again: list[tuple[Any, ...]] = []
    team: list[_Worker] = []

    def busy(worker: _Worker) -> bool:
        """Give a worker something to do, if there is anything left."""
        item, attempt = (again.pop(), ATTEMPTS) if again else (next(todo, None), 1)
        if item is not None:
            worker.take(item, attempt)
        return item is not None

    try:
        while len(team) < workers:
            team.append(_Worker.start(work))
            if not busy(team[-1]):
                break
        while waiting := [worker for worker in team if worker.item is not None]:
            ready = wait([worker.pipe for worker in waiting])
            for worker in (worker for worker in waiting if worker.pipe in ready):
                item = worker.item
                assert item is not None
                try:
                    result, error = worker.pipe.recv()
                except (EOFError, OSError):
                    worker.kill()
                    team.remove(worker)
                    if worker.attempt < ATTEMPTS:
                        again.append(item)
                    elif lost is None:
                        raise OneiroError(
                            "a worker died twice at the same work (out of memory?); the same command goes on, try "
                            "fewer workers"
                        ) from None
                    else:
                        yield lost(*item)
                    worker = _Worker.start(work)
                    team.append(worker)
                else:
                    worker.item = None
                    if error is not None:
                        raise error
                    yield result
                busy(worker)
        for worker in team:
            worker.pipe.close()  # nothing more will come: they end by themselves
        for worker in team:
            worker.process.join(PATIENCE)
    finally:
        for worker in team:
            worker.kill()


def _serve(work: Callable[..., Any], pipe: Connection) -> None:
    """What a worker does: one item after the other, until there is nobody to ask for more."""
    # Control-C reaches every process of a terminal: who started the work decides what becomes of it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    with suppress(EOFError, OSError):
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
        pipe.send((result, error))
    except (TypeError, AttributeError, ValueError, PicklingError) as problem:  # some errors cannot be sent
        found = error or problem
        pipe.send((None, RuntimeError(f"{type(found).__name__}: {found}")))


def _end_with_parent() -> None:
    """A parent that was killed says nothing, but its end of a pipe closes."""
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
