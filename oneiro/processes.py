"""Work shared among processes of this machine."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from typing import TypeVar, TypeVarTuple

from oneiro.errors import OneiroError

Item = TypeVarTuple("Item")
Result = TypeVar("Result")


def each_done(work: Callable[[*Item], Result], items: Iterable[tuple[*Item]], workers: int) -> Iterator[Result]:
    """What `work` gives for each item, as they are done. Few are under way at a time, so that stopping stops soon."""
    todo = iter(items)
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        running: set[Future[Result]] = set()
        try:
            while True:
                while len(running) < 2 * workers and (item := next(todo, None)) is not None:
                    running.add(pool.submit(work, *item))
                if not running:
                    return
                finished, running = wait(running, return_when=FIRST_COMPLETED)
                for future in finished:
                    yield future.result()
        except BrokenProcessPool as error:
            raise OneiroError("a worker died (out of memory?); the same command goes on, try fewer workers") from error
        finally:
            pool.shutdown(wait=True, cancel_futures=True)
