"""FrozenLake: cross the ice to the goal, around the holes, on ice that may slip.

Start and goal lie anywhere; a map is redrawn until a path exists. A move goes the chosen way with probability
`success_rate` and to either side of it otherwise (1/3 each is gymnasium's default). Ceiling and oracle come from exact
dynamic programming.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from oneiro.runtime.seeds import generator
from oneiro.worlds.base import Step, World, WorldConfig, draw_level, in_split, level_key
from oneiro.worlds.grid.frozen_lake import views as lake_views
from oneiro.worlds.grid.frozen_lake.views import Lake, LakeGlyphs
from oneiro.worlds.levels import PackConfig, least_image, pick_level

WORDS = ("Left", "Down", "Right", "Up")
"""In gymnasium's order: the two neighbours of a direction in this ring are its perpendiculars."""

SHIFTS = ((0, -1), (1, 0), (0, 1), (-1, 0))

SPLIT_SALT = 1833
"""Decides which maps are held out. With this number some are also where there are few: of the four maps of a 2x2 lake,
and of the three of a 4x4 lake without holes.
"""


class FrozenLakeConfig(PackConfig):
    """Settings of the lake."""

    size: int = Field(default=4, ge=2, le=32)
    """Rows and columns of the square map."""
    frozen_probability: float = Field(default=0.8, gt=0, le=1)
    """Chance that a cell is ice rather than a hole."""
    success_rate: float = Field(default=1.0, ge=0, le=1)
    """Chance that a move goes the chosen way; the rest is split over the two perpendicular directions."""
    glyphs: LakeGlyphs = LakeGlyphs()
    """The characters of the text views."""


@dataclass(frozen=True)
class LakeLevel:
    """A map as drawn: the lake with the player on the start cell, and the shortest safe path's length."""

    lake: Lake
    optimum: int

    @cached_property
    def key(self) -> str:
        lake = self.lake
        return level_key(f"frozen-lake {lake.size} {sorted(lake.holes)} {lake.goal} {lake.player}", split_key(lake))

    @cached_property
    def canonical(self) -> str:
        """The level's name up to rotation and mirror."""
        return level_key(f"frozen-lake {self.lake.size} {canonical_forms(self.lake)}", split_key(self.lake))


class FrozenLake(World):
    """One crossing of the lake."""

    name = "frozen-lake"
    Config = FrozenLakeConfig
    views = tuple(lake_views.VIEWS)
    actions = WORDS
    variants: ClassVar = {
        "slippery": {"success_rate": 1 / 3},
        "mostly-sure": {"success_rate": 0.8},
        "6x6": {"size": 6},
        "6x6-slippery": {"size": 6, "success_rate": 1 / 3},
        "coordinates": {"view": "grid+coordinates"},
    }
    config: FrozenLakeConfig

    def __init__(self, config: WorldConfig | None = None) -> None:
        super().__init__(config)
        self.deterministic = self.config.success_rate == 1.0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        self.begin(seed, options)
        config = self.config
        level = level_for(config.size, config.frozen_probability, self.seed, self.split, config.pack)
        self.lake, self.start = level.lake, level.lake.player
        self.__dict__.pop("_values", None)  # of the level before
        self._slips = slips(self.seed, self.member)
        return self.render(), {"key": level.key, "canonical": level.canonical, "optimum": level.optimum}

    def step(self, action: str) -> Step:
        if self.over:
            return self.ended(success=self.lake.arrived)
        word = action.strip().lower()
        chosen = next((index for index, known in enumerate(WORDS) if known.lower() == word), None)
        if chosen is None:
            return self.outcome(0.0, valid=False, effective=False)
        # Drawn even where nothing can slip, so that a member's noise does not depend on the slip rate's value.
        noise = self._slips.random()
        before = self.lake.player
        after = int(neighbours(self.config.size)[before, slip(chosen, noise, self.config.success_rate)])
        self.lake = self.lake._replace(player=after)
        arrived = self.lake.arrived
        done = arrived or self.lake.fallen
        return self.outcome(float(arrived), done=done, success=arrived, effective=after != before)

    def render(self, view: str | None = None) -> str:
        return lake_views.VIEWS[self.view_named(view)](self.lake, self.start, self.config.glyphs)

    def parse(self, text: str, view: str | None = None) -> Lake | None:
        return lake_views.read(self.view_named(view), text, self.config.size, self.config.glyphs)

    @property
    def state(self) -> Lake:
        return self.lake

    @property
    def instruction(self) -> str:
        rate = self.config.success_rate
        ice = (
            "The ice does not slip: every move goes where you choose."
            if rate == 1
            else f"The ice is slippery: a move goes the chosen way with probability {rate:.2f} and sideways otherwise."
        )
        return (
            "You stand on a frozen lake. Walk to the goal without stepping into a hole. "
            f"{ice} A move against the edge leaves you where you are.\n"
            f"Symbols: {self.config.glyphs.legend()}. Cells are (row,column), counted from (0,0) at the top left.\n"
            f"Actions: {', '.join(WORDS)}. You have {self.config.max_actions} actions."
        )

    def ceiling(self) -> float:
        return float(self._values[self.remaining, self.lake.player])

    def oracle(self) -> str | None:
        """The best action for the remaining budget; among equals, the one that reaches the same chance soonest."""
        best = self.ceiling()
        if self.over or best <= 0:
            return None
        # With budget to spare many moves keep the best chance, dawdling among them; the shortest horizon rules those
        # out.
        horizon = next(t for t in range(1, self.remaining + 1) if self._values[t, self.lake.player] >= best - 1e-12)
        chances = move_values(self._values[horizon - 1], self.config.size, self.config.success_rate)
        return WORDS[int(chances[self.lake.player].argmax())]

    @cached_property
    def _values(self) -> NDArray[np.float64]:
        return success_values(self.lake, self.config.success_rate, self.config.max_actions)


@lru_cache(maxsize=4096)
def level_for(
    size: int, frozen_probability: float, seed: int, split: str | None, pack: Path | None = None
) -> LakeLevel:
    """The map of a seed; remembered, because all members of a group ask for the same one."""
    if pack is not None:
        return pick_level(pack, seed, split, level_in, size)

    def draw_lake(rng: np.random.Generator) -> LakeLevel | None:
        return draw(rng, size, frozen_probability, split)

    return draw_level("frozen-lake", seed, split, draw_lake, lambda level: level.key)[0]


def level_in(text: str, optimum: int, size: int) -> LakeLevel:
    """The map that a pack shows."""
    lake = lake_views.read("text", text, size, LakeGlyphs())
    if lake is None or lake.arrived or lake.fallen:
        raise ValueError(f"shows no start on a lake of {size}x{size}; set size={len(text.split())}, or mend it")
    holes = np.isin(np.arange(size**2), list(lake.holes))
    if path_length(holes, size, lake.player, lake.goal) != optimum:
        raise ValueError(f"has no shortest path of {optimum} moves")
    return LakeLevel(lake, optimum)


def draw(rng: np.random.Generator, size: int, frozen_probability: float, split: str | None) -> LakeLevel | None:
    """A random map; None if it belongs to the other split or no path leads from its start to its goal."""
    holes = rng.random(size * size) >= frozen_probability
    start, goal = (int(cell) for cell in rng.choice(size * size, 2, replace=False))
    holes[[start, goal]] = False
    lake = Lake(size, frozenset(np.flatnonzero(holes).tolist()), goal, start)
    if not in_split(level_key(split_key(lake)), split):
        return None
    optimum = path_length(holes, size, start, goal)
    return None if optimum is None else LakeLevel(lake, optimum)


def split_key(lake: Lake) -> str:
    """Names the map up to rotation and mirror.

    A walk passes the starts of other levels on the same map, so all starts on a map are in one split.
    """
    return f"frozen-lake map {SPLIT_SALT} {lake.size} {canonical_forms(lake)[0].hex()}"


@lru_cache(maxsize=64)
def canonical_forms(lake: Lake) -> tuple[bytes, ...]:
    """The canonical form of the map, and that of the start on it."""
    ground, start = bytearray(lake.size**2), bytearray(lake.size**2)
    ground[lake.goal], start[lake.player] = 2, 1
    for cell in lake.holes:
        ground[cell] = 1
    return least_image(*(np.frombuffer(layer, np.uint8).reshape(lake.size, lake.size) for layer in (ground, start)))


def slips(seed: int, member: int) -> np.random.Generator:
    """The noise of one member: one draw for each move."""
    return generator("frozen-lake", seed, "slip", member)


@lru_cache
def neighbours(size: int) -> NDArray[np.int64]:
    """[cells, 4]: the cell each direction leads to; the edge stops a move."""
    rows, columns = np.divmod(np.arange(size * size), size)
    table = [np.clip(rows + down, 0, size - 1) * size + np.clip(columns + right, 0, size - 1) for down, right in SHIFTS]
    return np.stack(table, axis=1)


def slip(chosen: int, noise: float, success_rate: float) -> int:
    """The direction really taken, for `noise` uniform in [0, 1)."""
    if noise < success_rate:
        return chosen
    return (chosen + (1 if noise < success_rate + (1 - success_rate) / 2 else 3)) % 4


def move_values(values: NDArray[np.float64], size: int, success_rate: float) -> NDArray[np.float64]:
    """[cells, 4]: expected value after each action, given the values of cells."""
    ahead = values[neighbours(size)]
    if success_rate == 1:  # most lakes; rolling takes longer than all the rest
        return ahead
    aside = np.roll(ahead, 1, axis=1) + np.roll(ahead, -1, axis=1)
    return success_rate * ahead + (1 - success_rate) / 2 * aside


def success_values(lake: Lake, success_rate: float, actions: int) -> NDArray[np.float64]:
    """[actions + 1, cells]: the best chance to reach the goal from each cell with that many actions left."""
    values = np.zeros((actions + 1, lake.size**2))
    values[:, lake.goal] = 1.0  # with any number of actions left, none among them
    walkable = np.ones(lake.size**2, bool)
    walkable[[lake.goal, *lake.holes]] = False
    for left in range(1, actions + 1):
        best = move_values(values[left - 1], lake.size, success_rate).max(axis=1)
        values[left, walkable] = best[walkable]
    return values


def path_length(holes: NDArray[np.bool_], size: int, start: int, goal: int) -> int | None:
    """Moves on the shortest way from start to goal around the holes; None where there is none."""
    table = neighbours(size)
    seen = holes.copy()  # as if visited: nobody walks there
    seen[start] = True
    frontier, length = np.array([start]), 0
    while frontier.size and not seen[goal]:
        reached = np.unique(table[frontier])
        frontier = reached[~seen[reached]]
        seen[frontier] = True
        length += 1
    return length if seen[goal] else None


class TargetLake(FrozenLake):
    """Another goal on the same lake: success is to stand on the level's `target`, an ice cell. The dynamics are the old
    ones, the old goal still ends an episode, now in vain, and nothing in the picture shows the new one.
    """

    name: ClassVar[str] = "frozen-lake-target"
    target: int = -1
    """-1: no other cell can be reached, and the level has no target."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        observation, info = super().reset(seed=seed, options=options)
        cells = [cell for cell in range(self.lake.size**2) if self._chance(cell) > 0]
        rng = generator("frozen-lake", "target", self.seed)
        self.target = cells[int(rng.integers(len(cells)))] if cells else -1
        return observation, {**info, "optimum": None, "target": self.target}  # the old optimum leads to the old goal

    def step(self, action: str) -> Step:
        if self.over:
            return self.ended(success=self.lake.player == self.target)
        state, _, terminated, truncated, info = super().step(action)
        reached = self.lake.player == self.target
        self.over = self.over or reached
        return state, float(reached), terminated or reached, truncated and not reached, {**info, "success": reached}

    def ceiling(self) -> float:
        return self._chance(self.target) if self.target >= 0 else 0.0

    @property
    def has_oracle(self) -> bool:
        return False

    def _chance(self, target: int) -> float:
        """The best chance to come from here to a cell that is neither this one, nor a hole, nor the old goal."""
        lake = self.lake
        if target in (lake.player, lake.goal) or target in lake.holes:
            return 0.0
        # The old goal ends an episode in vain, as a hole does.
        other = Lake(lake.size, lake.holes | {lake.goal}, target, lake.player)
        return float(success_values(other, self.config.success_rate, self.remaining)[-1, lake.player])


def has_target(world: TargetLake, seed: int) -> bool:
    """Whether the evaluation level of a seed has a target."""
    world.reset(seed=seed, options={"split": "eval"})
    return world.target >= 0


def best_possible(world: FrozenLake, seeds: list[int]) -> list[float]:
    """The best chance of success on evaluation levels."""
    chances = []
    for seed in seeds:
        world.reset(seed=seed, options={"split": "eval"})
        chances.append(float(np.clip(world.ceiling(), 0, 1)))  # sums of probabilities may exceed 1 by rounding
    return chances
