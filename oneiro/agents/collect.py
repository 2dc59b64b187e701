"""What `oneiro data web` does: steps of any web world, played by a script or by a model."""

from __future__ import annotations

from collections.abc import Iterator

from oneiro.agents.loading import load_agent
from oneiro.agents.rollout import Attempt, play
from oneiro.runtime import seeds
from oneiro.tasks.webpage.record import Advance, Collection, recorded_web, steps_of
from oneiro.tasks.webpage.state import PageTransition

AT_ONCE = 16
"""Episodes that a model plays side by side."""


def collect_steps(collection: Collection, advance: Advance = lambda episodes: None) -> Iterator[PageTransition]:
    """Every step, episode after episode. An agent plays as it was trained to."""
    if collection.policy in collection.scripts:
        yield from steps_of(collection, advance)
        return
    agent = load_agent(collection.policy, collection.world, collection.settings)
    assert agent.policy is not None
    for start in range(0, collection.episodes, AT_ONCE):
        count = min(AT_ONCE, collection.episodes - start)
        worlds = [recorded_web(agent.world, agent.world_settings) for _ in range(count)]
        numbers = range(start, start + count)
        planned = [
            Attempt(seeds.derive(collection.seed, "web page", number), 0, number - start, collection.world_split)
            for number in numbers
        ]
        own = seeds.derive(collection.seed, "web agent", start)
        play(iter(worlds).__next__, planned, agent.policy, agent.dialogue, agent.chat, own, agent.response_prefix)
        for world in worlds:
            yield from world.steps[: collection.steps or None]
            world.close()
        advance(count)
