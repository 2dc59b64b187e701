"""Steps of the web for tests: a few true ones, recorded once, and ones written by hand."""

from __future__ import annotations

from functools import cache

from oneiro.tasks.webpage.record import collect, recorded_web
from oneiro.tasks.webpage.state import PageState, PageTransition
from oneiro.worlds.baselines import oracle_policy
from oneiro_web.diff import Item, match


@cache
def recorded(split: str = "train", episodes: int = 4) -> tuple[PageTransition, ...]:
    """Steps of the oracle on the forum, with probes."""
    world = recorded_web("web:reddit")
    found = tuple(collect(world, oracle_policy, episodes, split=split, seed=1, probes=0.4, steps=8))
    world.close()
    return found


def state(*lines: str, url: str = "http://reddit.com/") -> PageState:
    return PageState(url, tuple(Item(place + 1, line) for place, line in enumerate(lines)))


def step(before: PageState, action: str, after: PageState, **facts: object) -> PageTransition:
    matched = tuple(match(before.items, after.items))
    return PageTransition("reddit", "", before, action, after=after, matched=matched, **facts)  # type: ignore[arg-type]
