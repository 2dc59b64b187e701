"""Physics: reach the goal of a small room whose rules were drawn for it, from a few steps seen in other rooms.

What the four words do, what the glyphs mean and which two twists hold is drawn for each level (see `physics.py`). The
instruction shows `examples` steps of the same physics in other rooms. Evaluation has meanings of the words and pairs of
twists that training never has.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from pydantic import Field

from oneiro.runtime.seeds import generator
from oneiro.worlds.base import NEITHER, Step, World, WorldConfig, draw_level, level_key
from oneiro.worlds.rules import physics
from oneiro.worlds.rules.physics import FLOOR, GOAL, WORDS, Physics, Room

SPLIT_DIGIT = {"eval": "0", "train": "1", None: NEITHER}
"""The end of a level's key: rules decide the split, not the room."""


class PhysicsConfig(WorldConfig):
    """Settings of the rooms."""

    max_actions: int = Field(default=12, ge=1)
    view: str = "map"
    size: int = Field(default=5, ge=5, le=9)
    """Rows and columns."""
    examples: int = Field(default=16, ge=0, le=64)
    """Steps of the same physics that the instruction shows; four, one for each word, come from one room."""
    min_steps: int = Field(default=2, ge=1)
    """Least number of steps from the start to the goal."""


class PhysicsWorld(World):
    """One room."""

    name = "physics"
    Config = PhysicsConfig
    views = tuple(physics.VIEWS)
    actions = WORDS
    oracle_is: ClassVar[str] = "a shortest way by search"
    config: PhysicsConfig

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        self.begin(seed, options)
        (self.physics, self.room), key = draw_level("physics", self.seed, self.split, self._draw, _key)
        return self.render(), {"key": key, "twists": self.physics.twists}

    def _draw(self, rng: np.random.Generator) -> tuple[Physics, Room] | None:
        rules = physics.draw_physics(rng, self.split)
        room = physics.draw_room(rng, rules, self.config.size)
        way = physics.shortest(rules, room, self.config.max_actions)
        return (rules, room) if way is not None and len(way) >= self.config.min_steps else None

    def step(self, action: str) -> Step:
        if self.over:
            return self.ended(success=self.arrived)
        word = action.strip().lower()
        if word not in WORDS:
            return self.outcome(0.0, valid=False, effective=False)
        before, self.room = self.room, physics.advance(self.physics, self.room, WORDS.index(word))
        arrived, done = self.arrived, self.arrived or self.on_goal
        return self.outcome(float(arrived), done=done, success=arrived, effective=self.room != before)

    @property
    def on_goal(self) -> bool:
        return self.room.cells[self.room.walker] == GOAL

    @property
    def arrived(self) -> bool:
        return self.on_goal

    def render(self, view: str | None = None) -> str:
        return physics.VIEWS[self.view_named(view)](self.physics, self.room)

    @property
    def instruction(self) -> str:
        words = ", ".join(WORDS[:-1]) + f" or {WORDS[-1]}"
        lines = [
            f"Bring the walker (@) to the goal (*). Say {words}. What the words and the tiles do is new in every room."
        ]
        if self.config.view == "sight":
            lines.append("You see two tiles each up, right, down and left of the walker; | is the edge of the room.")
        if self.config.examples:
            lines += [
                "Seen in other rooms with the same rules: how far the walker came by each word.",
                self.level_rules,
            ]
        return "\n".join(lines)

    @property
    def level_rules(self) -> str:
        return "\n".join(self.seen())

    def seen(self) -> list[str]:
        """Situations in other rooms, each with the displacement that follows each word."""
        show = physics.VIEWS[self.config.view]
        return [
            f"{show(self.physics, room)} {physics.answers(self.physics, room, words)}"
            for room, words in self.draw_examples()
        ]

    def draw_examples(self) -> list[tuple[Room, tuple[int, ...]]]:
        """Other rooms of the same physics, each with the words that were tried there."""
        rng, left = generator("physics", self.seed, "examples"), self.config.examples
        drawn = []
        while left > 0:
            room = physics.draw_situation(rng, self.physics, self.config.size)
            words = tuple(rng.permutation(4)[:left].tolist())
            drawn.append((room, words))
            left -= len(words)
        return drawn

    def shortest_way(self) -> list[int] | None:
        return physics.shortest(self.physics, self.room, self.remaining)

    def oracle(self) -> str | None:
        way = None if self.over else self.shortest_way()
        return WORDS[way[0]] if way else None

    def ceiling(self) -> float:
        return float(self.arrived or (not self.on_goal and self.shortest_way() is not None))

    @property
    def state(self) -> Room:
        return self.room

    def parse(self, text: str, view: str | None = None) -> Room | None:
        return physics.read_map(self.physics, text) if self.view_named(view) == "map" else None


class TargetRoom(PhysicsWorld):
    """Another goal in the same room: success is to stand on the level's `target`, a bare tile. The rules are the old
    ones, the old goal still ends an episode, now in vain, and nothing in the picture shows the new one.
    """

    name: ClassVar[str] = "physics-target"
    target: int = -1
    """-1: no bare tile is `min_steps` away, and the level has no target."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        observation, info = super().reset(seed=seed, options=options)
        self.target = -1
        for cell in generator("physics", "target", self.seed).permutation(len(self.room.cells)).tolist():
            if cell == self.room.walker:
                continue  # a step into a wall would reach it
            way = physics.shortest(self.physics, self.room, self.remaining, cell)
            if self.room.cells[cell] == FLOOR and way is not None and len(way) >= self.config.min_steps:
                self.target = cell
                break
        return observation, {**info, "target": self.target}

    @property
    def arrived(self) -> bool:
        return self.room.walker == self.target

    def shortest_way(self) -> list[int] | None:
        return physics.shortest(self.physics, self.room, self.remaining, self.target)


def _key(level: tuple[Physics, Room]) -> str:
    return level_key(repr(level))[:-1] + SPLIT_DIGIT[level[0].split]
