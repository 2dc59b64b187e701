"""Steps of the true web, recorded as whoever plays takes them.

`RecordingWeb` is the web with a notebook: any policy, model or rollout that plays in it leaves transitions behind.
`Collection` says what a script or a model is to play.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from oneiro.runtime.errors import OneiroError
from oneiro.runtime.seeds import derive, generator
from oneiro.tasks.webpage.state import PageSituation, PageState, PageTransition, same_items
from oneiro.worlds.base import Step, World
from oneiro.worlds.baselines import Policy, mixture, oracle_policy, random_policy
from oneiro.worlds.registry import config_for, world_class
from oneiro_web.diff import compare
from oneiro_web.env import WebConfig
from oneiro_web.plugin import WebWorld

INERT = ("StaticText", "heading", "main", "article", "contentinfo", "complementary")
"""Roles that do nothing when they are clicked, unless they stand inside a link or a label."""
HISTORY = 5
"""Actions that a situation remembers, as in the published data."""


class RecordingWeb(WebWorld):
    """The web; `steps` are the transitions of the present episode."""

    steps: list[PageTransition]

    def __init__(self, config: WebConfig | None = None) -> None:
        super().__init__(config)
        if self.config.view != "accessibility":
            raise OneiroError("pages are predicted as accessibility trees: leave out the view html")

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        observation = super().reset(seed=seed, options=options)
        self.steps = []
        self.probing = False
        self.history: tuple[str, ...] = ()
        self.episode = f"{self.task.task_id}/{self.seed}/{self.member}"
        return observation

    def step(self, action: str) -> Step:
        if self.over:
            return super().step(action)
        before, situation = self.page, self.situation(action)
        outcome = super().step(action)
        after = PageState.of(self.page)
        self.steps.append(
            PageTransition(
                site=situation.site,
                objective=situation.objective,
                state=situation.state,
                action=situation.action,
                previous=situation.previous,
                after=after,
                matched=same_items(situation.state, after, compare(before, self.page)),
                valid=outcome[4]["valid"],
                probe=self.probing,
                done=self.over,
                reward=outcome[1],
                id=f"{self.episode}/{len(self.steps)}",
                episode=self.episode,
                step=len(self.steps),
                template=str(self.task.intent_template_id),
                content=self.task.spec.content if self.task.spec else 0,
                split=self.split or "train",
            )
        )
        # A probe did nothing, and nobody who plays would have it in mind.
        if not self.probing:
            self.history = (*self.history, situation.described)[-HISTORY:]
        return outcome

    def situation(self, action: str) -> PageSituation:
        """What may be known before an action."""
        return PageSituation(self.task.sites[0], self.task.intent, PageState.of(self.page), action, self.history)

    def probe(self, rng: np.random.Generator) -> None:
        """Try an action that should do nothing; what it does is recorded.

        An oracle's script goes on after it, unless it was asked for its next action already.
        """
        self._proposed = None  # else the world would take the probe for somebody who acts against the script
        self.probing = True
        self.step(self.inert_action(rng))
        self.probing = False

    def inert_action(self, rng: np.random.Generator) -> str:
        """A click on an id that is not there, or on something that is only read."""
        nodes = [node for node in self.page.nodes.values() if node.role in INERT]
        if not nodes or rng.random() < 0.4:
            beyond = len(self.page.nodes) + 1 + int(rng.integers(60))  # beyond the last line, as a stale id may be
            typed = self.fields and rng.random() < 0.3
            return f"type [{beyond}] [{self.task.intent.split()[0]}] [1]" if typed else f"click [{beyond}]"
        return f"click [{nodes[int(rng.integers(len(nodes)))].id}]"

    def try_control(self, rng: np.random.Generator) -> str:
        """An action on a control of the page's own part; a random one where there is none."""
        above, below = PageState.of(self.page).frame()
        nodes = list(self.page.nodes.values())[above:below]
        roles = [role for role in TRIED if any(node.role == role for node in nodes)]
        if not roles:
            return self.random_action(rng)
        role = roles[int(rng.integers(len(roles)))]
        controls = [node for node in nodes if node.role == role]
        node = controls[int(rng.integers(len(controls)))]
        if role not in ("textbox", "searchbox"):
            return f"click [{node.id}]"
        # A small number suits quantities and prices, a word of the page suits filters.
        words = [word for other in nodes for word in other.name.split() if word.isalnum()]
        text = words[int(rng.integers(len(words)))] if words and rng.random() < 0.5 else str(rng.integers(1, 10))
        return f"type [{node.id}] [{text}] [{int(rng.integers(2))}]"

    @property
    def fields(self) -> bool:
        """Whether the page has anything to type into."""
        return any(node.role in ("textbox", "searchbox") for node in self.page.nodes.values())


def recorded_web(name: str, settings: Mapping[str, Any] | None = None) -> RecordingWeb:
    config = config_for(name, dict(settings or {}))
    if not issubclass(world_class(name), WebWorld) or not isinstance(config, WebConfig):
        raise OneiroError(f"'{name}' is no web world; give web, web:reddit or another variant of web")
    return RecordingWeb(config)


def collect(
    world: RecordingWeb,
    policy: Policy,
    episodes: int,
    *,
    split: str | None = "train",
    seed: int = 0,
    probes: float = 0.0,
    steps: int = 0,
    advance: Callable[[int], object] = lambda episodes: None,
) -> Iterator[PageTransition]:
    """The steps of `episodes` tasks that a policy plays, `steps` of each at most (0: to the end).

    Before each step, with chance `probes`, an action is tried that should do nothing.
    """
    for number in range(episodes):
        rng = generator("web page", seed, str(split), number)
        world.reset(seed=derive(seed, "web page", number), options={"split": split})
        while not world.over and not (steps and len(world.steps) >= steps):
            if rng.random() < probes:
                world.probe(rng)
            if not world.over:
                world.step(policy(world, rng))
        yield from world.steps
        advance(1)


TRIED = ("button", "option", "checkbox", "radio", "textbox", "searchbox", "link")
"""Roles of controls that `tinkering` tries, each equally often where a page has it."""


def tinkering(share: float) -> Policy:
    """The oracle's action with probability `share`, else one on a control in the page's own part: steps that sort,
    filter, vote, fill in and delete, where a random policy mostly leaves the page.
    """
    follow = mixture(1.0)

    def choose(world: World, rng: np.random.Generator) -> str:
        assert isinstance(world, RecordingWeb)
        return follow(world, rng) if rng.random() < share else world.try_control(rng)

    return choose


Advance = Callable[[int], object]


@dataclass(frozen=True)
class Collection:
    """What is to be played."""

    world: str
    settings: dict[str, Any]
    policy: str
    """`random`, `oracle`, `mixture`, `tinker`, or the folder of a model."""
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

    @property
    def scripts(self) -> dict[str, Policy]:
        return {
            "random": random_policy,
            "oracle": oracle_policy,
            "mixture": mixture(self.oracle_share),
            "tinker": tinkering(self.oracle_share),
        }


def steps_of(collection: Collection, advance: Advance = lambda episodes: None) -> Iterator[PageTransition]:
    """Every step of a scripted policy, episode after episode."""
    world = recorded_web(collection.world, collection.settings)
    try:
        yield from collect(
            world,
            collection.scripts[collection.policy],
            collection.episodes,
            split=collection.world_split,
            seed=collection.seed,
            probes=collection.probes,
            steps=collection.steps,
            advance=advance,
        )
    finally:
        world.close()
