"""Many worlds reset and stepped together. Those that wait for something outside this process wait at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from oneiro.worlds.base import Step, World

Result = TypeVar("Result")
Started = tuple[str, dict[str, Any]]
"""The first observation and what is known of the level."""


def reset_many(
    worlds: Sequence[World], seeds: Sequence[int], options: Sequence[dict[str, Any]]
) -> list[Started | Exception]:
    """`reset` of each, or what it raised."""

    def alone(world: World, given: tuple[int, dict[str, Any]]) -> Started:
        return world.reset(seed=given[0], options=given[1])

    return _at_once("reset_many", alone, worlds, list(zip(seeds, options, strict=True)))


def step_many(worlds: Sequence[World], actions: Sequence[str]) -> list[Step | Exception]:
    """`step` of each, or what it raised."""
    return _at_once("step_many", lambda world, action: world.step(action), worlds, actions)


def _at_once(
    method: str, alone: Callable[[Any, Any], Result], worlds: Sequence[World], given: Sequence[Any]
) -> list[Result | Exception]:
    """By the world's own `method` for many, all worlds of a class together; one after the other where it has none."""
    outcomes: list[Result | Exception | None] = [None] * len(worlds)
    kinds: dict[type, list[int]] = {}
    for place, world in enumerate(worlds):
        kinds.setdefault(type(world), []).append(place)
    for kind, places in kinds.items():
        together = _own(kind, method)
        if together is not None:
            results = together([worlds[i] for i in places], [given[i] for i in places])
        else:
            results = [caught(alone, worlds[i], given[i]) for i in places]
        for place, result in zip(places, results, strict=True):
            outcomes[place] = result
    return [result for result in outcomes if result is not None]


def _own(kind: type, method: str) -> Callable[..., Any] | None:
    """A class's method for many. Where a subclass has changed what one of them does, it no longer holds."""
    for base in kind.__mro__:
        if method in vars(base):
            function: Callable[..., Any] = getattr(kind, method)
            return function
        if method.removesuffix("_many") in vars(base):
            return None
    return None


def caught(work: Callable[..., Result], *given: Any) -> Result | Exception:
    """What work gives, or raises."""
    try:
        return work(*given)
    except Exception as error:
        return error
