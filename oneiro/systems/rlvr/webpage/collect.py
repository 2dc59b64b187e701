"""What `oneiro data web` does: steps of any web world, played by a script or by a model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from oneiro.agents.policies import mixture
from oneiro.predictors.webpage.record import collect, recorded_web
from oneiro.predictors.webpage.state import PageTransition
from oneiro.runtime import seeds
from oneiro.worlds.baselines import Policy, oracle_policy, random_policy

AT_ONCE = 16
"""Episodes that a model plays side by side."""
Advance = Callable[[int], object]


@dataclass(frozen=True)
class Collection:
    """What is to be played."""

    world: str
    settings: dict[str, Any]
    policy: str
    """`random`, `oracle`, `mixture`, or the folder of a model."""
    episodes: int
    split: str = "train"
    """`train`, or `test`: content that training never has."""
    steps: int = 0
    """Of an episode at most; 0: all."""
    probes: float = 0.0
    """Chance, before each step, of an action that should do nothing."""
    oracle_share: float = 0.85
    seed: int = 0

    @property
    def world_split(self) -> str:
        return "eval" if self.split == "test" else "train"


def scripted(name: str, oracle_share: float) -> Policy | None:
    """A policy by its name; None for the folder of a model."""
    known: dict[str, Policy] = {
        "random": random_policy,
        "oracle": oracle_policy,
        "mixture": mixture(oracle_share),
    }
    return known.get(name)


def steps_of(asked: Collection, advance: Advance = lambda episodes: None) -> Iterator[PageTransition]:
    """Every step, episode after episode."""
    policy = scripted(asked.policy, asked.oracle_share)
    if policy is None:
        yield from _played_by_model(asked, advance)
        return
    world = recorded_web(asked.world, asked.settings)
    try:
        yield from collect(
            world,
            policy,
            asked.episodes,
            split=asked.world_split,
            seed=asked.seed,
            probes=asked.probes,
            steps=asked.steps,
            advance=advance,
        )
    finally:
        world.close()


def _played_by_model(asked: Collection, advance: Advance) -> Iterator[PageTransition]:
    """An agent plays as it was trained to; its steps are recorded by the worlds it plays in."""
    from oneiro.agents.loading import load_agent
    from oneiro.agents.rollout import Attempt, play

    agent = load_agent(asked.policy, asked.world, asked.settings)
    assert agent.policy is not None
    for start in range(0, asked.episodes, AT_ONCE):
        count = min(AT_ONCE, asked.episodes - start)
        worlds = [recorded_web(agent.world, agent.world_settings) for _ in range(count)]
        numbers = range(start, start + count)
        planned = [
            Attempt(seeds.derive(asked.seed, "web page", number), 0, number - start, asked.world_split)
            for number in numbers
        ]
        own = seeds.derive(asked.seed, "web agent", start)
        play(iter(worlds).__next__, planned, agent.policy, agent.dialogue, agent.chat, own, agent.response_prefix)
        for world in worlds:
            yield from world.steps[: asked.steps or None]
            world.close()
        advance(count)
