"""Sokoban: push every box onto a target. Boxes cannot be pulled, so a careless push can be the end of it.

Levels carry the exact length of their shortest solution; oracle and ceiling come from the same backward search.
"""

from __future__ import annotations

from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field, model_validator

from oneiro.worlds.base import Step, World, WorldConfig, draw_level
from oneiro.worlds.grid.sokoban import views as sokoban_views
from oneiro.worlds.grid.sokoban.levels import MAX_INSIDE, SHIFTS, Distances, Plan, SokobanLevel, draw
from oneiro.worlds.grid.sokoban.views import SokobanGlyphs, SokobanRoom
from oneiro.worlds.levels import PackConfig, pick_level

DIRECTIONS = ("up", "down", "left", "right")
STEP_REWARD, STORE_REWARD, SOLVE_REWARD = -0.1, 1.0, 10.0


class MoveWords(BaseModel):
    """The word for each direction."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    up: str = Field("Up", description="the word for it")
    down: str = Field("Down", description="the word for it")
    left: str = Field("Left", description="the word for it")
    right: str = Field("Right", description="the word for it")

    @model_validator(mode="after")
    def _distinct(self) -> MoveWords:
        if len({word.strip().lower() for word in self.all()} - {""}) != len(DIRECTIONS):
            raise ValueError(f"the four moves need four different words, not {', '.join(self.all())}")
        return self

    def all(self) -> tuple[str, ...]:
        """Up, down, left, right."""
        return (self.up, self.down, self.left, self.right)


class SokobanConfig(PackConfig):
    """Settings of the warehouse."""

    height: int = Field(default=6, ge=4)
    """Rows, walls included."""
    width: int = Field(default=6, ge=4)
    """Columns, walls included."""
    boxes: int = Field(default=1, ge=1, le=4)
    """Boxes, and targets."""
    optimum: float = Field(default=4.9, ge=1)
    """Mean solution length aimed at, in moves; a room too small for its draw gets the hardest start it has."""
    optimum_std: float = Field(default=3.0, gt=0)
    """Standard deviation of the solution length aimed at."""
    glyphs: SokobanGlyphs = SokobanGlyphs()
    """The characters of the text views."""
    words: MoveWords = MoveWords()
    """The word for each direction."""
    explain_words: bool = True
    """Say in the instruction where a move leads when its word is not its direction."""

    @model_validator(mode="after")
    def _fits(self) -> SokobanConfig:
        if (self.height - 2) * (self.width - 2) > MAX_INSIDE:
            raise ValueError(
                f"a {self.height}x{self.width} room is too large; at most {MAX_INSIDE} cells inside its walls"
            )
        return self

    @property
    def plan(self) -> Plan:
        """The settings that decide a level."""
        return Plan(self.height, self.width, self.boxes, self.optimum, self.optimum_std)


class Sokoban(World):
    """One warehouse."""

    name = "sokoban"
    Config = SokobanConfig
    views = tuple(sokoban_views.VIEWS)
    # Mean solution lengths of the variants are those measured for the published environments of the same size.
    variants: ClassVar = {
        "simple": {},
        "two-boxes": {"boxes": 2, "optimum": 9.0, "optimum_std": 5.0},
        "larger": {"height": 8, "width": 8, "boxes": 2, "optimum": 5.3, "optimum_std": 2.0},
        "harder": {"height": 10, "width": 10, "boxes": 2, "optimum": 20.5, "optimum_std": 9.0},
        "coordinates": {"view": "grid+coordinates"},
        "grid-vocab": {
            "glyphs": {
                "wall": "W",
                "floor": ".",
                "target": "G",
                "stored": "C",
                "box": "B",
                "player": "A",
                "player_on_target": "@",
            }
        },
        "action-vocab": {"words": {"up": "Left", "down": "Right", "left": "Up", "right": "Down"}},
    }
    config: SokobanConfig

    def __init__(self, config: WorldConfig | None = None) -> None:
        super().__init__(config)
        self.words = self.config.words.all()
        self.actions = self.words
        self._direction = {word.strip().lower(): way for way, word in enumerate(self.words)}
        # Steps in a mask of cells, row by row.
        self._shifts = tuple(down * self.config.width + right for down, right in SHIFTS)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        self.begin(seed, options)
        level = level_for(self.config.plan, self.seed, self.split, self.config.pack)
        self.room = room_of(level)
        self.__dict__.pop("_distances", None)
        return self.render(), {"key": level.key, "canonical": level.canonical, "optimum": level.optimum}

    def step(self, action: str) -> Step:
        if self.over:
            return self.ended(success=self.room.solved)
        way = self._direction.get(action.strip().lower())
        if way is None:
            return self.outcome(0.0, valid=False, effective=False)
        before, self.room = self.room, move(self.room, self._shifts[way])
        gained = self.room.stored - before.stored
        solved = self.room.solved
        reward = STEP_REWARD + STORE_REWARD * gained + SOLVE_REWARD * solved
        return self.outcome(reward, done=solved, success=solved, effective=self.room is not before)

    def render(self, view: str | None = None) -> str:
        return sokoban_views.VIEWS[self.view_named(view)](self.room, self.config.glyphs)

    def parse(self, text: str, view: str | None = None) -> SokobanRoom | None:
        return sokoban_views.read(self.view_named(view), text, self.config.glyphs)

    @property
    def state(self) -> SokobanRoom:
        return self.room

    @property
    def instruction(self) -> str:
        moves = ", ".join(self.words)
        if self.config.explain_words and self.words != MoveWords().all():
            moves = ", ".join(f"{word} (moves {way})" for word, way in zip(self.words, DIRECTIONS, strict=True))
        goal = "the box onto the target" if self.config.boxes == 1 else "every box onto a target"
        return (
            f"You are in a warehouse. Push {goal}. Walk into a box to push it one cell; you cannot pull, and a box "
            "moves only if the cell behind it is free.\n"
            f"Symbols: {self.config.glyphs.legend()}. Cells are (row,column), counted from (0,0) at the top left.\n"
            f"Actions: {moves}. You have {self.config.max_actions} actions."
        )

    def ceiling(self) -> float:
        return float(self._distance(self.room, self.remaining) is not None)

    def oracle(self) -> str | None:
        """A move on a shortest solution; None where no solution fits the remaining actions."""
        left = self._distance(self.room, self.remaining)
        if not left or self.over:
            return None
        for word, shift in zip(self.words, self._shifts, strict=True):
            if self._distance(move(self.room, shift), left - 1) is not None:
                return word
        return None

    @cached_property
    def _distances(self) -> Distances:
        room = self.room
        inside = (inner(room.floor, room.width), inner(room.targets, room.width))
        return Distances(room.height - 2, room.width - 2, *inside, self.config.boxes)

    def _distance(self, room: SokobanRoom, limit: int) -> int | None:
        row, column = divmod(room.player, room.width)
        player = (row - 1) * (room.width - 2) + column - 1
        return self._distances.distance(inner(room.boxes, room.width), player, limit)


@lru_cache(maxsize=4096)
def level_for(plan: Plan, seed: int, split: str | None, pack: Path | None = None) -> SokobanLevel:
    """The level of a seed; remembered, because all members of a group ask for the same one."""
    if pack is not None:
        return pick_level(pack, seed, split, level_in, (plan.height, plan.width, plan.boxes))
    return draw_level("sokoban", seed, split, lambda rng: draw(rng, plan, split), lambda level: level.key)[0]


def move(room: SokobanRoom, shift: int) -> SokobanRoom:
    """The room after a step by `shift` cells; the same object where nothing can move."""
    ahead = room.player + shift
    height, width, floor, targets, boxes, _ = room
    if not floor >> ahead & 1:
        return room
    if boxes >> ahead & 1:
        behind = ahead + shift
        if not floor >> behind & 1 or boxes >> behind & 1:
            return room
        boxes ^= 1 << ahead | 1 << behind  # off the one cell, onto the other
    return SokobanRoom(height, width, floor, targets, boxes, ahead)


def level_in(text: str, optimum: int, size: tuple[int, int, int]) -> SokobanLevel:
    """The level that a pack shows, for rooms of that height, width and number of boxes."""
    room = sokoban_views.read("text", text, SokobanGlyphs())
    if room is None:
        raise ValueError("shows no room")
    if (own_size := (room.height, room.width, room.boxes.bit_count())) != size:
        raise ValueError("is of another size: set height={} width={} boxes={}".format(*own_size))
    row, column = divmod(room.player, room.width)
    height, width, player = room.height - 2, room.width - 2, (row - 1) * (room.width - 2) + column - 1
    floor, targets, boxes = (inner(mask, room.width) for mask in (room.floor, room.targets, room.boxes))
    level = SokobanLevel(height, width, floor, targets, boxes, player, optimum)
    # The inside is all that a level keeps: a gap in the border would close without a word.
    if room_of(level) != room:
        raise ValueError("is not closed by walls")
    if not optimum or Distances(height, width, floor, targets, size[2]).distance(boxes, player, optimum) != optimum:
        raise ValueError(f"has no shortest solution of {optimum} moves")
    return level


def room_of(level: SokobanLevel) -> SokobanRoom:
    """The level's start as a room with its border."""
    width = level.width + 2

    def outer(mask: int) -> int:
        row = (1 << level.width) - 1
        return sum((mask >> r * level.width & row) << (r + 1) * width + 1 for r in range(level.height))

    row, column = divmod(level.player, level.width)
    player = (row + 1) * width + column + 1
    return SokobanRoom(level.height + 2, width, outer(level.floor), outer(level.targets), outer(level.boxes), player)


def inner(mask: int, width: int) -> int:
    """A mask over a bordered room of that width as a mask over its inside."""
    row, result, at = (1 << width - 2) - 1, 0, 0
    mask >>= width + 1
    while mask:
        result |= (mask & row) << at
        mask >>= width
        at += width - 2
    return result
