"""Worlds in other processes: processes of this machine, or actors of a Ray cluster. An episode is the same as here.

    choice = WorldChoice(name="web", workers=4)           # or workers="ray://head:10001"
    episodes = play(choice.episode_maker(), ...)

Each worker holds one world. One that dies, or does not answer in time, loses its episode; the next episode has a new
worker.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from oneiro.runtime.errors import OneiroError
from oneiro.runtime.processes import Place, Worker, place
from oneiro.worlds.base import Step, World, WorldConfig, WorldLost

STARTING = 120.0
"""Seconds that a new worker may take beyond its first request's own: it is started, and imports its world."""


class WorkerPool:
    """Workers that are kept between episodes: starting one takes longer than most episodes."""

    def __init__(self, where: Place) -> None:
        self.place = where
        self.restarts = 0
        """Workers that were lost."""
        self._idle: list[Worker] = []
        self._lock = threading.Lock()

    def take(self) -> tuple[Worker, bool]:
        """A worker, and whether it is new."""
        with self._lock:
            if self._idle:
                return self._idle.pop(), False
        return self.place.start(_serve), True

    def give_back(self, worker: Worker) -> None:
        with self._lock:
            if len(self._idle) < self.place.count:
                self._idle.append(worker)
                return
        worker.end()

    def lose(self, worker: Worker) -> None:
        self.restarts += 1
        worker.kill()

    def close(self) -> None:
        while self._idle:
            self._idle.pop().end()


_pools: dict[int | str, WorkerPool] = {}


def pool_of(workers: int | str) -> WorkerPool:
    """The pool of this process that a setting `workers` means."""
    if workers not in _pools:
        if not _pools:
            atexit.register(close_pools)
        _pools[workers] = WorkerPool(place(workers))
    return _pools[workers]


def close_pools() -> None:
    """End all workers that are idle."""
    while _pools:
        _pools.popitem()[1].close()


@dataclass(frozen=True)
class WorldMaker:
    """A factory of equal worlds: in this process, or in workers."""

    kind: type[World]
    config: WorldConfig
    workers: int | str = 0
    timeout_s: float = 300.0

    def __call__(self) -> World:
        if self.workers == 0:
            return self.kind(self.config)
        return _class_for(self.kind)(self.config, pool_of(self.workers), self.timeout_s)

    @property
    def at_once(self) -> int | None:
        """How many worlds there may be at a time; None: any number."""
        return None if self.workers == 0 else pool_of(self.workers).place.count


class WorkerWorld(World):
    """A world in a worker. What is not known here is asked for there."""

    kind: type[World]
    waits = True

    def __init__(self, config: WorldConfig, pool: WorkerPool, timeout_s: float) -> None:
        super().__init__(config)
        self.pool, self.timeout_s = pool, timeout_s
        self.worker: Worker | None
        self.worker, new = pool.take()
        self._owed = True
        """Whether an answer is still to come."""
        self._told: dict[str, Any] = {}
        """Attributes that stay as they are in an episode."""
        # Nobody waits for the world to open before the first request: so many workers start at once.
        self._opening: float | None = STARTING if new else 0.0
        self.worker.send(("open", self.kind, config))

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        self._send_reset((seed, options))
        return self._start()

    def step(self, action: str) -> Step:
        self._send("step", action)
        return self._step()

    @staticmethod
    def reset_many(worlds: Sequence[Any], given: Sequence[Any]) -> list[Any]:
        return _all(worlds, given, WorkerWorld._send_reset, WorkerWorld._start)

    @staticmethod
    def step_many(worlds: Sequence[Any], actions: Sequence[Any]) -> list[Any]:
        return _all(worlds, actions, lambda world, action: world._send("step", action), WorkerWorld._step)

    def render(self, view: str | None = None) -> str:
        return str(self._ask("call", "render", view))

    @property
    def instruction(self) -> str:
        return str(self._constant("instruction"))

    @property
    def actions(self) -> tuple[str, ...] | None:  # type: ignore[override]
        actions: tuple[str, ...] | None = self._constant("actions")
        return actions

    @property
    def deterministic(self) -> bool:  # type: ignore[override]
        return bool(self._constant("deterministic"))

    @property
    def has_oracle(self) -> bool:
        return bool(self._constant("has_oracle"))

    @property
    def state(self) -> Any:
        return self._ask("get", "state")[1]

    def oracle(self) -> str | None:
        action: str | None = self._ask("call", "oracle")
        return action

    def ceiling(self) -> float | None:
        ceiling: float | None = self._ask("call", "ceiling")
        return ceiling

    def parse(self, text: str, view: str | None = None) -> Any | None:
        return self._ask("call", "parse", text, view)

    def random_action(self, rng: np.random.Generator) -> str:
        action, rng.bit_generator.state = self._ask("random", rng.bit_generator)
        return str(action)

    def close(self) -> None:
        """The worker waits for the next episode; one that still owes an answer cannot be used again."""
        if self.worker is not None and self._owed:
            self._lose()
        elif self.worker is not None:
            self.pool.give_back(self.worker)
        self.worker = None

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or "worker" not in self.__dict__:
            raise AttributeError(name)
        method, value = self._ask("get", name)
        return (lambda *args: self._ask("call", name, *args)) if method else value

    def _constant(self, name: str) -> Any:
        if name not in self._told:
            self._told[name] = self._ask("get", name)[1]
        return self._told[name]

    def _send_reset(self, given: tuple[int | None, dict[str, Any] | None]) -> None:
        self._told = {}
        self._send("reset", *given)

    def _start(self) -> tuple[str, dict[str, Any]]:
        started: tuple[str, dict[str, Any]]
        started, known = self._answer()
        self.seed, self.member, self.split, self.taken, self._over = known
        return started

    def _step(self) -> Step:
        stepped: Step
        stepped, known = self._answer()
        self.seed, self.member, self.split, self.taken, self._over = known
        return stepped

    def _ask(self, *request: Any) -> Any:
        self._send(*request)
        return self._answer()

    def _send(self, *request: Any) -> None:
        if self._opening is not None:
            more, self._opening = self._opening, None
            self._answer(more)
        if self.worker is None:
            raise WorldLost("the worker of this world is gone")
        self._owed = True
        self.worker.send(request)

    def _answer(self, more_seconds: float = 0.0) -> Any:
        """What was asked for. Who does not give it in time gives nothing any more."""
        if self.worker is None:
            raise WorldLost("the worker of this world is gone")
        try:
            answer, error = self.worker.receive(self.timeout_s + more_seconds)
        except TimeoutError:
            self._lose()
            raise WorldLost(f"a worker did not answer within {self.timeout_s + more_seconds:g} s") from None
        except EOFError as why:
            self._lose()
            raise WorldLost(f"a worker died: {why}") from None
        self._owed = False
        if error is not None:
            raise error
        return answer

    def _lose(self) -> None:
        assert self.worker is not None
        self.pool.lose(self.worker)
        self.worker = None


def _all(worlds: Sequence[WorkerWorld], given: Sequence[Any], ask: Any, answer: Any) -> list[Any]:
    """Ask every world, then wait for each: they work at once."""
    answers: list[Any] = []
    failures: list[Exception | None] = []
    for world, one in zip(worlds, given, strict=True):
        try:
            ask(world, one)
            failures.append(None)
        except Exception as error:
            failures.append(error)
    for world, failed in zip(worlds, failures, strict=True):
        try:
            answers.append(failed if failed is not None else answer(world))
        except Exception as error:
            answers.append(error)
    return answers


@cache
def _class_for(kind: type[World]) -> type[WorkerWorld]:
    """A class with what `kind` says of itself."""
    own = {name: getattr(kind, name) for name in ("name", "Config", "views", "variants", "oracle_is")}
    return type(f"{kind.__name__}InWorker", (WorkerWorld,), {**own, "kind": kind, "__module__": __name__})


# In the worker --------------------------------------------------------------------------------------------------------


class _Host:
    """The world of a worker."""

    def __init__(self) -> None:
        self.world: World | None = None
        self.made: tuple[type[World], WorldConfig] | None = None

    def open(self, kind: type[World], config: WorldConfig) -> None:
        """A world like the last one is used again: making some, such as simulators, takes as long as an episode."""
        if self.world is None or self.made != (kind, config):
            self.drop()
            self.world, self.made = kind(config), (kind, config)

    def drop(self) -> None:
        world, self.world = self.world, None
        if world is not None:
            with suppress(Exception):
                world.close()

    def known(self) -> tuple[int, int, str | None, int, bool]:
        assert self.world is not None
        world = self.world
        return world.seed, world.member, world.split, world.taken, world.over

    def answer(self, request: str, *args: Any) -> Any:
        if request == "open":
            return self.open(*args)
        world = self.world
        if world is None:
            raise OneiroError("the worker's world broke before")
        match request:
            case "reset":
                return world.reset(seed=args[0], options=args[1]), self.known()
            case "step":
                return world.step(args[0]), self.known()
            case "get":
                value = getattr(world, args[0])
                return callable(value), None if callable(value) else value
            case "random":
                return world.random_action(np.random.Generator(args[0])), args[0].state
        return getattr(world, args[0])(*args[1:])


_host = _Host()


def _serve(*request: Any) -> Any:
    """One request. A world that raises is not used again."""
    os.environ.setdefault("LP_NUM_THREADS", "1")  # MuJoCo's software renderer would start a thread for every core
    try:
        return _host.answer(*request)
    except Exception:
        _host.drop()
        raise
