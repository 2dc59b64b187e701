"""Several ranks in forked processes, as torchrun would start them: rank 0 does some work and the others serve it."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import socket
import sys
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any

import torch

from oneiro.runtime import team

SECONDS = 300.0
"""After which a test says that ranks hang."""


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def _rank(rank: int, size: int, port: int, pipe: Connection, work: Callable[[], Any], patience: float) -> None:
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
        with team.joined(patience):
            pipe.send_bytes(pickle.dumps((work(), None)))  # by value: rank 0 ends before it is read
    except SystemExit as end:
        sys.exit(end.code)
    except BaseException as error:
        pipe.send_bytes(pickle.dumps((None, f"{type(error).__name__}: {error}\n{traceback.format_exc()}")))
        os._exit(1)
    os._exit(0)


def start(size: int, work: Callable[[], Any], patience: float = 60.0) -> tuple[list[BaseProcess], Connection]:
    """The processes, and where rank 0 will send (result, error)."""
    context, port = multiprocessing.get_context("fork"), free_port()
    ours, theirs = context.Pipe()
    ranks = [context.Process(target=_rank, args=(rank, size, port, theirs, work, patience)) for rank in range(size)]
    for rank in ranks:
        rank.start()
    theirs.close()
    return ranks, ours


def on_ranks(size: int, work: Callable[[], Any]) -> Any:
    """What `work` gives on rank 0 of a team."""
    ranks, pipe = start(size, work)
    try:
        assert pipe.poll(SECONDS), f"{size} ranks hang"
        result, error = pickle.loads(pipe.recv_bytes())
        assert error is None, error
        for rank in ranks:
            rank.join(20)
        assert [rank.exitcode for rank in ranks] == [0] * size
        return result
    finally:
        for rank in ranks:
            rank.kill()
            rank.join()
