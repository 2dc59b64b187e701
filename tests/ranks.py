"""Several ranks in forked processes, as torchrun would start them: every rank does the same work."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import socket
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any

import torch

from oneiro.runtime import distributed

SECONDS = 300.0
"""After which a test says that ranks hang."""


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def _rank(rank: int, size: int, port: int, pipe: Connection, work: Callable[[], Any]) -> None:
    os.environ |= {
        "RANK": str(rank),
        "WORLD_SIZE": str(size),
        "LOCAL_RANK": str(rank),
        "LOCAL_WORLD_SIZE": str(size),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }
    torch.set_num_threads(1)
    try:
        with distributed.setup():
            result = work()
        pipe.send_bytes(pickle.dumps((result, None)))  # by value: a rank ends before it is read
    except BaseException as error:
        pipe.send_bytes(pickle.dumps((None, f"{type(error).__name__}: {error}\n{traceback.format_exc()}")))
        os._exit(1)
    os._exit(0)


def start(size: int, work: Callable[[], Any], method: str = "fork") -> tuple[list[BaseProcess], list[Connection]]:
    """The processes, and where each rank will send (result, error)."""
    context, port = multiprocessing.get_context(method), free_port()
    context.set_forkserver_preload(["oneiro.agents.policies"])  # torch is imported once for all ranks
    ranks, pipes = [], []
    for rank in range(size):
        ours, theirs = context.Pipe()
        ranks.append(context.Process(target=_rank, args=(rank, size, port, theirs, work)))  # type: ignore[attr-defined]
        ranks[-1].start()
        theirs.close()
        pipes.append(ours)
    return ranks, pipes


def on_every_rank(size: int, work: Callable[[], Any], method: str = "fork") -> list[Any]:
    """What `work` gives on each rank. Work with threads that multiply matrices needs the method `forkserver`, and is a
    function of a module: where threads of the parent used MKL, a thread of its fork may wait for ever inside MKL.
    """
    ranks, pipes = start(size, work, method)
    try:
        results = []
        for pipe in pipes:
            assert pipe.poll(SECONDS), f"{size} ranks hang"
            result, error = pickle.loads(pipe.recv_bytes())
            assert error is None, error
            results.append(result)
        for rank in ranks:
            rank.join(SECONDS)
        assert [rank.exitcode for rank in ranks] == [0] * size
        return results
    finally:
        for rank in ranks:
            rank.kill()
            rank.join()


def on_ranks(size: int, work: Callable[[], Any]) -> Any:
    """What `work` gives on rank 0."""
    return on_every_rank(size, work)[0]
