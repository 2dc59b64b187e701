"""Several processes at one run, as torchrun starts them. Rank 0 leads, the other ranks do their share when it asks.

Rank 0 carries the recipe out: it alone steps worlds, writes the run and prints. What can be shared goes through
`Team.together`: one function runs on every rank and may use collectives. So ranks cannot disagree about what comes
next, however unequal their work is, and a pipeline needs to know nothing of them.

Ranks watch one another through the store of the process group. One that dies, or is silent for too long, ends all with
a line that names it; the same command then resumes.
"""

from __future__ import annotations

import functools
import io
import os
import pickle
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any, Concatenate, ParamSpec, TypeVar

from oneiro.runtime.errors import OneiroError, first_line

P = ParamSpec("P")
Result = TypeVar("Result")

BEAT = 0.5
"""Seconds between two signs of life."""
PATIENCE = 60.0
"""Seconds without one after which a rank counts as lost."""
GRACE = 10.0
"""Seconds that a rank has to end by itself once another is lost; it may hang in a collective."""
JOINING = timedelta(minutes=10)
"""How long ranks wait for one another at the start."""
COLLECTIVE = timedelta(minutes=60)
"""The longest that a rank may wait for others inside shared work."""
IDLE = timedelta(days=30)
"""The longest that a rank may wait for work: rank 0 may step worlds for hours."""


class RankLostError(OneiroError):
    """A rank died or is silent."""


def launched() -> bool:
    """Whether torchrun started this process."""
    return "RANK" in os.environ and "WORLD_SIZE" in os.environ


def leads() -> bool:
    """Whether this process is the one that carries a run out."""
    return not launched() or os.environ["RANK"] == "0"


class Team:
    """The ranks of a run, as one of them sees them."""

    def __init__(self, patience: float = PATIENCE) -> None:
        import torch
        import torch.distributed as dist

        self.rank, self.size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        local, here = int(os.environ.get("LOCAL_RANK", "0")), int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
        gpus = torch.cuda.device_count()
        if gpus:
            torch.cuda.set_device(local % gpus)
        # NCCL refuses two ranks on one GPU; gloo carries tensors of a GPU through the host's memory.
        backend = "cpu:gloo,cuda:nccl" if gpus >= here > 0 else "gloo"
        try:
            store, _, _ = next(iter(dist.rendezvous("env://", timeout=JOINING)))
            dist.init_process_group(
                backend,
                store=dist.PrefixStore("group", store),
                rank=self.rank,
                world_size=self.size,
                timeout=COLLECTIVE,
            )
            self.orders = dist.new_group(backend="gloo", timeout=IDLE)
        except (RuntimeError, ValueError, OSError) as error:
            raise OneiroError(
                f"rank {self.rank} of {self.size} cannot join the others at {os.environ.get('MASTER_ADDR')}:"
                f"{os.environ.get('MASTER_PORT')}: {first_line(error)}; see oneiro doctor --distributed"
            ) from error
        self.kept: dict[int, Any] = {}
        """What ranks hold for one another, by number: models, learners, engines; under -number what belongs to it."""
        self.inside = False
        """Whether shared work is being done: what it makes is made by every rank."""
        self._next, self._dropped = 0, list[int]()
        self._lock = threading.Lock()
        self._broken = False
        self._watch = _Watch(self.rank, self.size, store.clone(), patience)
        self._watch.start()

    # Work on every rank

    def together(self, work: Callable[Concatenate[Team, P], Result], *args: P.args, **kwargs: P.kwargs) -> Result:
        """Called by rank 0: `work(team, *args)` runs on every rank; returns what it gives here."""
        return self._shared(work, args, kwargs, None)

    def each(self, work: Callable[..., Result], parts: Sequence[Any], *args: Any) -> Result:
        """The same with a first argument for every rank: `work(team, parts[rank], *args)`."""
        return self._shared(work, args, {}, parts)

    def _shared(self, work: Callable[..., Any], args: Any, kwargs: Any, parts: Sequence[Any] | None) -> Any:
        import torch.distributed as dist

        with self._lock:
            dropped, self._dropped = self._dropped, []
            try:
                with self.named_losses():
                    self._send((work, args, kwargs, parts is not None, dropped))
                    if parts is not None:
                        own: list[Any] = [None]
                        dist.scatter_object_list(own, list(parts), src=0, group=self.orders)
                        args = (parts[0], *args)
                    return self._do(work, args, kwargs, dropped)
            except OneiroError as error:
                self._broken = self._broken or isinstance(error, RankLostError)
                raise  # every rank came to the same conclusion
            except BaseException:
                self._broken = True
                raise

    def _do(self, work: Callable[..., Any], args: Any, kwargs: Any, dropped: Sequence[int]) -> Any:
        for number in dropped:
            self.kept.pop(number, None)
            self.kept.pop(-number, None)
        self.inside = True
        try:
            return work(self, *args, **kwargs)
        finally:
            self.inside = False

    def _send(self, message: Any) -> None:
        import torch.distributed as dist

        dist.broadcast_object_list([message], src=0, group=self.orders)

    def serve(self) -> None:
        """What the other ranks do: whatever rank 0 asks for, until it ends."""
        import torch.distributed as dist

        # Ctrl-C reaches every process: rank 0 decides what becomes of the work.
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
        try:
            while True:
                with self.named_losses():
                    order: list[Any] = [None]
                    dist.broadcast_object_list(order, src=0, group=self.orders)
                    if order[0] is None:
                        return
                    work, args, kwargs, parted, dropped = order[0]
                    if parted:
                        own: list[Any] = [None]
                        dist.scatter_object_list(own, None, src=0, group=self.orders)
                        args = (own[0], *args)
                try:
                    with self.named_losses():
                        self._do(work, args, kwargs, dropped)
                except RankLostError:
                    raise
                except OneiroError:
                    continue  # rank 0 has it too, and says it
        except OneiroError as error:
            sys.stderr.write(f"{error}\n")
            raise SystemExit(1) from error
        except Exception as error:
            traceback.print_exc()
            self._watch.leave(first_line(error))
            raise SystemExit(1) from error
        finally:
            self._watch.stop()

    def end(self) -> None:
        """Called by rank 0: send the others home."""
        with suppress(Exception), self._lock:
            if self._broken:
                self._watch.leave("it failed")
            else:
                self._send(None)
        self._watch.stop()

    # Collectives inside shared work

    def gather(self, own: Any) -> list[Any]:
        """What every rank found, on rank 0; nothing on the others."""
        import torch.distributed as dist

        found: list[Any] | None = [None] * self.size if self.rank == 0 else None
        dist.gather_object(own, found, dst=0, group=self.orders)
        return found or []

    def everywhere(self, own: Any) -> list[Any]:
        """What every rank found, on every rank."""
        import torch.distributed as dist

        found: list[Any] = [None] * self.size
        dist.all_gather_object(found, own, group=self.orders)
        return found

    # What ranks hold for one another

    def number(self) -> int:
        """A fresh one; called by rank 0."""
        self._next += 1
        return self._next

    def drop(self, number: int) -> None:
        """Let every rank forget what it keeps under a number, with the next order."""
        self._dropped.append(number)

    # Losses

    @contextmanager
    def named_losses(self) -> Iterator[None]:
        """A collective that fails has lost a rank: say which."""
        try:
            yield
        except RuntimeError as error:
            if not _is_broken_connection(error):
                raise
            raise RankLostError(self._watch.blame(first_line(error))) from error


def _is_broken_connection(error: RuntimeError) -> bool:
    import torch.distributed as dist

    words = ("connection", "Connection", "gloo", "Broken pipe", "timed out", "Timed out", "NCCL", "recvBytes", "closed")
    return isinstance(error, dist.DistError) or any(word in str(error) for word in words)


class _Watch(threading.Thread):
    """Signs of life in the store: rank 0 looks at all, the others look at rank 0."""

    def __init__(self, rank: int, size: int, store: Any, patience: float) -> None:
        super().__init__(daemon=True)
        self.rank, self.size, self.patience = rank, size, patience
        self.peers = range(1, size) if rank == 0 else range(1)
        self.lost: tuple[int, str] | None = None
        self._store, self._over = store, threading.Event()
        self._seen = {peer: ("", time.monotonic()) for peer in self.peers}
        self._own = threading.Lock()
        store.set(f"who/{rank}", f"{socket.gethostname()}, process {os.getpid()}")

    def run(self) -> None:
        beats = 0
        while not self._over.wait(BEAT):
            beats += 1
            try:
                with self._own:
                    self._store.set(f"beat/{self.rank}", str(beats))
                    self._look()
            except Exception as error:  # whoever holds the store is gone, and with it the run
                self.lost = self.lost or (0, f"the store does not answer: {first_line(error)}")
            if self.lost is not None:
                if not self._over.wait(GRACE):
                    # Not by sys.stderr: the thread that hangs may hold its lock.
                    os.write(2, f"{self._words()}\n".encode(errors="replace"))
                    os._exit(1)
                return

    def _look(self) -> None:
        for peer in self.peers:
            if self._store.check([f"gone/{peer}"]):
                self.lost = peer, self._store.get(f"gone/{peer}").decode(errors="replace")
                continue
            # A rank may fall silent before its first sign: it is missed like one that stopped giving them.
            beat = self._store.get(f"beat/{peer}").decode() if self._store.check([f"beat/{peer}"]) else ""
            last, at = self._seen[peer]
            if beat != last:
                self._seen[peer] = beat, time.monotonic()
            elif time.monotonic() - at > self.patience:
                self.lost = peer, f"no sign of life for {self.patience:.0f} s"

    def leave(self, reason: str) -> None:
        """Tell the others why this rank ends."""
        with suppress(Exception), self._own:
            self._store.set(f"gone/{self.rank}", reason)

    def stop(self) -> None:
        self._over.set()

    def blame(self, otherwise: str) -> str:
        """Which rank is lost, in words, after a connection broke; waits until a silent one shows."""
        deadline = time.monotonic() + GRACE
        while self.lost is None and time.monotonic() < deadline:
            time.sleep(BEAT)
            silent = [peer for peer, (_, at) in self._seen.items() if time.monotonic() - at > 4 * BEAT]
            if silent:
                self.lost = self.lost or (silent[0], "it died")
        self._over.set()
        if self.lost is None:
            return f"the ranks lost one another ({otherwise}); the same command resumes"
        return self._words()

    def _words(self) -> str:
        assert self.lost is not None
        peer, reason = self.lost
        who = "unknown process"
        with suppress(Exception):
            if self._store.check([f"who/{peer}"]):
                who = self._store.get(f"who/{peer}").decode(errors="replace")
        return f"rank {peer} of {self.size} ({who}) is lost: {reason}; the same command resumes"


# The team of this process ---------------------------------------------------------------------------------------------

_current: list[Team] = []


def current() -> Team | None:
    """The team that this process belongs to; None where it works alone."""
    return _current[0] if _current else None


def sharing() -> Team | None:
    """The team, where rank 0 may ask it to share work; None alone, and inside work that is shared already."""
    team = current()
    return team if team is not None and team.size > 1 and team.rank == 0 and not team.inside else None


@contextmanager
def joined(patience: float = PATIENCE) -> Iterator[None]:
    """Inside, rank 0 of a torchrun leads a team. The other ranks serve it, and their process ends here."""
    if not launched() or _current:
        yield
        return
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # pages of addresses when a connection breaks; we say which
    team = Team(patience)
    _current.append(team)
    try:
        if team.rank != 0:
            team.serve()
            raise SystemExit(0)
        yield
    finally:
        if team.rank == 0:
            team.end()
        _current.clear()
        _leave_group()


def led(work: Callable[P, Result]) -> Callable[P, Result]:
    """A function that rank 0 of a torchrun carries out while the others serve it."""

    @functools.wraps(work)
    def inside(*args: P.args, **kwargs: P.kwargs) -> Result:
        with joined():
            return work(*args, **kwargs)

    return inside


def _leave_group() -> None:
    import torch.distributed as dist

    with suppress(Exception):
        dist.destroy_process_group()


def pickled(value: Any, persistent_id: Callable[[Any], Any]) -> bytes:
    """Pickle with some objects replaced by ids."""

    class Pickler(pickle.Pickler):
        def persistent_id(self, obj: Any) -> Any:
            return persistent_id(obj)

    buffer = io.BytesIO()
    Pickler(buffer, pickle.HIGHEST_PROTOCOL).dump(value)
    return buffer.getvalue()
