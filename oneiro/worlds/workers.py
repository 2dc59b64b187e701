"""Worlds in other processes: processes of this machine, or actors of a Ray cluster. An episode is the same as here.

    choice = WorldChoice(name="web", workers=4, worlds_per_worker=16)   # or workers="ray://head:10001"
    episodes = play(choice.episode_maker(), ...)

Requests to worlds of one worker travel together and are answered together. A worker that dies, or does not answer in
time, loses the episodes of its worlds; the next ones have a new worker.
"""

from __future__ import annotations

import atexit
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np

from oneiro.runtime.collector import collect_rarely
from oneiro.runtime.errors import OneiroError, sendable, unwrap
from oneiro.runtime.processes import Place, Worker, place
from oneiro.worlds.base import Step, World, WorldConfig, WorldLost

STARTING = 120.0
"""Seconds that a new worker may take beyond its first request's own: it is started, and imports its world."""


@dataclass(eq=False)
class Host:
    """A worker, and the places in it that hold a world or are free for one."""

    worker: Worker
    places: int = 0
    """How many were given out so far."""
    free: list[int] = field(default_factory=list)
    owes: bool = False
    """Whether an answer is still to come: it would be taken for the next one."""
    lost: bool = False
    patience: float = STARTING
    """Seconds that the next answer may take beyond its own: a new worker is started first."""

    def send(self, requests: Sequence[tuple[Any, ...]]) -> None:
        self.owes = True
        self.worker.send((list(requests),))

    def receive(self, timeout_s: float) -> list[tuple[Any, Exception | None]]:
        """What was asked for, in order. Raises `WorldLost` where it does not come in time."""
        seconds, self.patience = timeout_s + self.patience, 0.0
        try:
            answers, error = self.worker.receive(seconds)
        except TimeoutError:
            raise WorldLost(f"a worker did not answer within {seconds:g} s") from None
        except EOFError as why:
            raise WorldLost(f"a worker died: {why}") from None
        self.owes = False
        if error is not None:
            raise error
        own: list[tuple[Any, Exception | None]] = answers
        return own


class WorkerPool:
    """Workers that are kept between episodes: starting one takes longer than most episodes."""

    def __init__(self, where: Place) -> None:
        self.place = where
        self.restarts = 0
        """Workers that were lost."""
        self._hosts: list[Host] = []

    def take(self) -> tuple[Host, int]:
        """A place in the worker with the fewest worlds; in a new one while there are too few of them."""
        if len(self._hosts) < self.place.count and all(len(host.free) < host.places for host in self._hosts):
            self._hosts.append(Host(self.place.start(_serve)))
        host = min(self._hosts, key=lambda one: one.places - len(one.free))
        if host.free:
            return host, host.free.pop()
        host.places += 1
        return host, host.places - 1

    def give_back(self, host: Host, place: int) -> None:
        host.free.append(place)

    def lose(self, host: Host) -> None:
        """Its worlds are gone."""
        if not host.lost:
            host.lost = True
            self.restarts += 1
            self._hosts.remove(host)
            host.worker.kill()

    def close(self) -> None:
        while self._hosts:
            self._hosts.pop().worker.end()


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
    worlds_per_worker: int = 1

    def __call__(self) -> World:
        if self.workers == 0:
            return self.kind(self.config)
        return _class_for(self.kind)(self.config, pool_of(self.workers), self.timeout_s)

    @property
    def at_once(self) -> int | None:
        """How many worlds there may be at a time; None: any number."""
        return None if self.workers == 0 else pool_of(self.workers).place.count * self.worlds_per_worker


def _constant(name: str) -> Any:
    """An attribute that stays as it is in an episode."""

    def get(world: WorkerWorld) -> Any:
        if name not in world._constants:
            world._constants[name] = world._ask("get", name)[1]
        return world._constants[name]

    return property(get)


def _method(name: str) -> Any:
    """A method that the world in the worker carries out."""

    def call(world: WorkerWorld, *args: Any) -> Any:
        return world._ask("call", name, *args)

    return call


class WorkerWorld(World):
    """A world in a worker. What is not known here is asked for there."""

    kind: type[World]
    waits = True

    def __init__(self, config: WorldConfig, pool: WorkerPool, timeout_s: float) -> None:
        super().__init__(config)
        self.pool, self.timeout_s = pool, timeout_s
        self.host, self.place = pool.take()
        self._opened = self._closed = False
        self._constants: dict[str, Any] = {}
        """Attributes that stay as they are in an episode."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        return unwrap(self.reset_many([self], [(seed, options)])[0])

    def step(self, action: str) -> Step:
        return unwrap(self.step_many([self], [action])[0])

    @staticmethod
    def reset_many(worlds: Sequence[Any], given: Sequence[Any]) -> list[Any]:
        for world in worlds:
            world._constants = {}
        return _note_all(worlds, _ask_all(worlds, [("reset", *one) for one in given]))

    @staticmethod
    def step_many(worlds: Sequence[Any], actions: Sequence[Any]) -> list[Any]:
        return _note_all(worlds, _ask_all(worlds, [("step", action) for action in actions]))

    instruction, actions, deterministic = _constant("instruction"), _constant("actions"), _constant("deterministic")
    shared, has_oracle, level_rules = _constant("shared"), _constant("has_oracle"), _constant("level_rules")
    render, peek, parse = _method("render"), _method("peek"), _method("parse")
    oracle, ceiling = _method("oracle"), _method("ceiling")

    @property
    def state(self) -> Any:
        return self._ask("get", "state")[1]

    def random_action(self, rng: np.random.Generator) -> str:
        action, rng.bit_generator.state = self._ask("random", rng.bit_generator)
        return str(action)

    def close(self) -> None:
        """Its place waits for the next episode; a worker that still owes an answer cannot be used again."""
        if not self._closed and self.host.owes:
            self.pool.lose(self.host)
        elif not self._closed:
            self.pool.give_back(self.host, self.place)
        self._closed = True

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or "host" not in self.__dict__:
            raise AttributeError(name)
        method, value = self._ask("get", name)
        return (lambda *args: self._ask("call", name, *args)) if method else value

    def _ask(self, *request: Any) -> Any:
        return unwrap(_ask_all([self], [request])[0])

    def _requests(self, request: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        """As they travel. The world is opened with its first request, so that many workers start at once."""
        if self.host.owes:  # whoever asked was stopped before the answer
            self.pool.lose(self.host)
        if self._closed or self.host.lost:
            raise WorldLost("the worker of this world is gone")
        opening = [] if self._opened else [(self.place, "open", self.kind, self.config)]
        self._opened = True
        return [*opening, (self.place, *request)]

    def _note(self, answer: tuple[Any, Any]) -> Any:
        started, known = answer
        self.seed, self.member, self.split, self.taken, self._over = known
        return started


def _note_all(worlds: Sequence[WorkerWorld], answers: Sequence[Any]) -> list[Any]:
    return [
        answer if isinstance(answer, Exception) else world._note(answer)
        for world, answer in zip(worlds, answers, strict=True)
    ]


def _ask_all(worlds: Sequence[WorkerWorld], requests: Sequence[tuple[Any, ...]]) -> list[Any]:
    """What each world answers, or what it raised. All workers are asked before the first is waited for."""
    answers: list[Any] = [None] * len(worlds)
    numbers_of: dict[Host, list[int]] = {}
    requests_of: dict[Host, list[list[tuple[Any, ...]]]] = {}
    for number, (world, request) in enumerate(zip(worlds, requests, strict=True)):
        try:
            requests_of.setdefault(world.host, []).append(world._requests(request))
            numbers_of.setdefault(world.host, []).append(number)
        except WorldLost as error:
            answers[number] = error
    for host in numbers_of:
        host.send([one for own in requests_of[host] for one in own])
    for host, numbers in numbers_of.items():
        try:
            replies = host.receive(max(worlds[number].timeout_s for number in numbers))
        except Exception as error:
            if isinstance(error, WorldLost):
                worlds[numbers[0]].pool.lose(host)
            for number in numbers:
                answers[number] = error
            continue
        rest = iter(replies)
        for number, own in zip(numbers, requests_of[host], strict=True):
            # Where the world could not be opened, that is the answer.
            results = [next(rest) for _ in own]
            answers[number] = next((error for _, error in results if error is not None), results[-1][0])
    return answers


@cache
def _class_for(kind: type[World]) -> type[WorkerWorld]:
    """A class with what `kind` says of itself."""
    own = {name: getattr(kind, name) for name in ("name", "Config", "views", "variants", "oracle_is")}
    return type(f"{kind.__name__}InWorker", (WorkerWorld,), {**own, "kind": kind, "__module__": __name__})


# In the worker --------------------------------------------------------------------------------------------------------


class _Place:
    """Where a worker keeps one world."""

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


_places: dict[int, _Place] = {}


def _serve(requests: Sequence[tuple[Any, ...]]) -> list[tuple[Any, Exception | None]]:
    """Requests in turn, each to the world of a place. A world that raises is not used again."""
    os.environ.setdefault("LP_NUM_THREADS", "1")  # MuJoCo's software renderer would start a thread for every core
    collect_rarely()
    answers: list[tuple[Any, Exception | None]] = []
    for number, *request in requests:
        place = _places.setdefault(number, _Place())
        try:
            answers.append((place.answer(*request), None))
        except Exception as error:
            place.drop()
            answers.append((None, sendable(error)))
    return answers
