"""Several processes at one run, as torchrun starts them: every rank runs the same program on the same values (SPMD).

What takes long is divided: `divide` gives each rank a share of the episodes, prompts or rows, and every rank gets all
results, in the same order. Rank 0, the main process, alone writes files and prints; what only it may do goes through
`on_main_process`. torchrun's agent notices a rank that dies and ends the others; with `--max-restarts` it starts all
again, and the run goes on from its checkpoint. One process alone needs none of this and imports nothing for it.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Literal, TypeVar

from oneiro.runtime.errors import OneiroError, first_line, sendable

T = TypeVar("T")

JOINING = timedelta(minutes=10)
"""How long ranks wait for one another at the start."""
TIMEOUT = timedelta(minutes=60)
"""How long a rank waits for the others inside a collective: the largest difference between two shares of the work."""
POLL = timedelta(seconds=1)
"""A rank that waits for the main process looks up so often, so that Ctrl-C reaches it."""
CONNECTION = ("onnection", "gloo", "Broken pipe", "imed out", "NCCL", "recvBytes", "closed")
"""Words of the errors that torch raises when a rank is gone."""


@dataclass
class _Ranks:
    """The process group as this process sees it."""

    rank: int
    size: int
    pid: int
    """Processes that a rank starts are no ranks."""
    store: Any
    groups: dict[str, Any]
    """For objects, by scope: a thread that plays ahead must not wait in the collectives of the one that learns."""
    turns: Counter[str] = field(default_factory=Counter)
    """How often the main process was waited for, by scope."""


_ranks: list[_Ranks] = []
_store: list[Any] = []
"""Kept after `setup`, for `is_first_to_fail`."""
_scope: ContextVar[Literal["foreground", "background", "local"]] = ContextVar("scope", default="foreground")


def is_launched() -> bool:
    """Whether torchrun started this process."""
    return "RANK" in os.environ and "WORLD_SIZE" in os.environ


def _current() -> _Ranks | None:
    return _ranks[0] if _ranks and _ranks[0].pid == os.getpid() else None


def is_main_process() -> bool:
    """Whether this process writes files and prints."""
    group = _current()
    return group is None or group.rank == 0


def world_size() -> int:
    """How many ranks share the work that is done here: 1 in a single process, and inside `local`."""
    group = _current()
    return 1 if group is None or _scope.get() == "local" else group.size


def rank() -> int:
    """Which of them this process is."""
    group = _current()
    return 0 if group is None or _scope.get() == "local" else group.rank


# Joining --------------------------------------------------------------------------------------------------------------


@contextmanager
def setup() -> Iterator[None]:
    """Inside, the processes that torchrun started are the ranks of one group; without torchrun nothing happens."""
    if not is_launched() or _ranks:
        yield
        return
    _ranks.append(joined := _join())
    _store[:] = [joined.store]
    try:
        yield
        barrier()  # whoever holds the store must not leave before the others
    except RuntimeError as error:
        if not _is_lost_connection(error):
            raise
        raise OneiroError(
            f"rank {joined.rank} of {joined.size} lost the others ({first_line(error)}); the same command resumes"
        ) from error
    finally:
        _ranks.clear()
        import torch.distributed as dist

        with suppress(Exception):
            dist.destroy_process_group()


def _join() -> _Ranks:
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # else pages of addresses when a connection breaks
    import torch
    import torch.distributed as dist

    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    local, here = int(os.environ.get("LOCAL_RANK", "0")), int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    gpus = torch.cuda.device_count()
    if gpus:
        torch.cuda.set_device(local % gpus)
    # NCCL refuses two ranks on one GPU; gloo carries tensors of a GPU through the host's memory.
    backend = "cpu:gloo,cuda:nccl" if gpus >= here > 0 else "gloo"
    try:
        store, _, _ = next(iter(dist.rendezvous("env://", timeout=JOINING)))
        # torchrun's store outlives a restart: ranks must not find the addresses of those that were killed.
        prefix = f"group-{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}"
        dist.init_process_group(
            backend, store=dist.PrefixStore(prefix, store), rank=rank, world_size=size, timeout=TIMEOUT
        )
        groups = {scope: dist.new_group(backend="gloo", timeout=TIMEOUT) for scope in ("foreground", "background")}
    except (RuntimeError, ValueError, OSError) as error:
        raise OneiroError(
            f"rank {rank} of {size} cannot join the others at {os.environ.get('MASTER_ADDR')}:"
            f"{os.environ.get('MASTER_PORT')}: {first_line(error)}; see oneiro doctor --distributed"
        ) from error
    return _Ranks(rank, size, os.getpid(), dist.PrefixStore(prefix, store.clone()), groups)


def _is_lost_connection(error: RuntimeError) -> bool:
    import torch.distributed as dist

    return isinstance(error, dist.DistError) or any(word in str(error) for word in CONNECTION)


def is_first_to_fail() -> bool:
    """Whether this process says what went wrong: the first rank that failed knows why, the others only lost it."""
    if not is_launched():
        return True
    for store in _store:
        with suppress(Exception):
            return bool(store.add("failures", 1) == 1)
        # Without torchrun's agent rank 0 holds the store. Where it was killed, nobody else would say a word.
        return True
    return os.environ["RANK"] == "0"


# Scopes ---------------------------------------------------------------------------------------------------------------


@contextmanager
def _enter_scope(scope: Literal["background", "local"]) -> Iterator[None]:
    token = _scope.set(scope)
    try:
        yield
    finally:
        _scope.reset(token)


def local() -> AbstractContextManager[None]:
    """Inside, this rank works alone: what it does may depend on its own share or its own cache."""
    return _enter_scope("local")


def background() -> AbstractContextManager[None]:
    """Inside, collectives are those of a thread that works beside the main one."""
    return _enter_scope("background")


# Collectives ----------------------------------------------------------------------------------------------------------


def gather(value: T) -> list[T]:
    """The plain values of all ranks, on every rank."""
    if world_size() == 1:
        return [value]
    import torch.distributed as dist

    values: list[Any] = [None] * world_size()
    dist.all_gather_object(values, value, group=_ranks[0].groups[_scope.get()])
    return values


def broadcast(value: T) -> T:
    """The main process's value, on every rank."""
    if world_size() == 1:
        return value
    import torch.distributed as dist

    values: list[Any] = [value]
    dist.broadcast_object_list(values, src=0, group=_ranks[0].groups[_scope.get()])
    return value if rank() == 0 else values[0]


def barrier() -> None:
    """Wait until every rank is here."""
    gather(None)


def any_rank(value: bool) -> bool:
    """Whether it is true on some rank: of clocks and signals, which ranks see differently."""
    return any(gather(value))


def split(count: int) -> list[list[int]]:
    """Neighbouring places for each rank, as many each."""
    size = world_size()
    return [list(range(count * r // size, count * (r + 1) // size)) for r in range(size)]


def divide(parts: Sequence[Sequence[int]], work: Callable[[Sequence[int]], Sequence[T]]) -> list[T]:
    """`work` gives a result for each place of this rank's part; every rank gets the results of all places, in order.

    An error of one rank is raised on all.
    """
    if world_size() == 1:
        return list(work(parts[0]))
    results: list[T] | Exception
    with local():
        try:
            results = list(work(parts[_ranks[0].rank]))
        except OneiroError as error:
            results = sendable(error)
    ordered: dict[int, T] = {}
    for part, gathered in zip(parts, gather(results), strict=True):
        if isinstance(gathered, Exception):
            raise gathered
        ordered.update(zip(part, gathered, strict=True))
    return [ordered[place] for place in range(len(ordered))]


def on_main_process(work: Callable[[], T]) -> T:
    """`work` is done by the main process alone, however long it takes; every rank gets its result or its error."""
    if world_size() == 1:
        return work()
    ranks, scope = _ranks[0], _scope.get()
    ranks.turns[scope] += 1
    key = f"{scope}/{ranks.turns[scope]}"
    outcome: tuple[Any, Exception | None] = None, None
    if ranks.rank == 0:
        try:
            with local():
                outcome = work(), None
        except OneiroError as error:
            outcome = None, sendable(error)
        ranks.store.set(key, "done")
    else:
        _wait_for(ranks.store, key)
    result, failure = broadcast(outcome)
    if failure is not None:
        raise failure
    return result


def _wait_for(store: Any, key: str) -> None:
    import torch.distributed as dist

    while True:
        with suppress(dist.DistStoreError):  # not yet
            store.wait([key], POLL)
            return
