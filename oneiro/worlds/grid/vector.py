"""Many episodes at once: the grid worlds as arrays.

A batch is exactly N worlds of the same name and settings: same levels, rewards, ends and texts, several times faster.
It shows the `text` and `spaced` views; the other views and the oracles are the single world's.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from oneiro.runtime.errors import OneiroError, nearest
from oneiro.worlds.base import World
from oneiro.worlds.grid.frozen_lake import views as lake_views
from oneiro.worlds.grid.frozen_lake import world as frozen_lake
from oneiro.worlds.grid.sokoban import views as sokoban_views
from oneiro.worlds.grid.sokoban import world as sokoban
from oneiro.worlds.grid.sokoban.levels import Plan
from oneiro.worlds.grid.sudoku import world as sudoku
from oneiro.worlds.grid.sudoku.levels import peers
from oneiro.worlds.grid.sudoku.world import read_action
from oneiro.worlds.registry import make

Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]

BETWEEN = {"text": "", "spaced": " "}


@dataclass(frozen=True)
class BatchStep:
    """What N calls of `step` return, side by side: [N] each."""

    observations: list[str]
    rewards: NDArray[np.float64]
    terminated: Bools
    truncated: Bools
    valid: Bools
    effective: Bools
    success: Bools


class WorldBatch(ABC):
    """N episodes of one world. Subclasses hold the state as arrays and say what a move does."""

    arrays: ClassVar[tuple[str, ...]]
    """Names of the arrays that hold an episode in each row."""

    def __init__(self, world: World) -> None:
        self.world = world
        if world.config.view not in BETWEEN:
            raise OneiroError(f"a batch shows no view '{world.config.view}'{nearest(world.config.view, BETWEEN)}")

    def reset(
        self, seeds: Sequence[int], *, split: str | None = None, member_ids: Sequence[int] | None = None
    ) -> list[str]:
        """Start one episode for each seed; the first observations."""
        self.taken = np.zeros(len(seeds), np.int64)
        self.over = np.zeros(len(seeds), bool)
        self._rows = np.arange(len(seeds))
        self._start(seeds, split, member_ids if member_ids is not None else [0] * len(seeds))
        return self.render()

    def restart(self, rows: Ints, seeds: Sequence[int], *, split: str | None = None) -> None:
        """Start a new episode in each of `rows`; the others go on."""
        fresh = type(self)(self.world)
        fresh.reset(seeds, split=split)
        for name in (*self.arrays, "taken", "over"):
            getattr(self, name)[rows] = getattr(fresh, name)

    def step(self, actions: Sequence[str]) -> BatchStep:
        """Apply one action in each episode; finished episodes stay as they are."""
        rewards, terminated = np.zeros(len(self.over)), self.over.copy()
        moves = self._read(actions)
        valid = (moves[0] >= 0) & ~self.over
        acting = np.flatnonzero(valid)
        effective = np.zeros_like(valid)
        rewards[acting], ended, effective[acting] = self._move(acting, [part[acting] for part in moves])
        terminated[acting] = ended
        self.taken += ~self.over
        last = self.taken >= self.world.config.max_actions
        if self.world.config.max_actions == 1:  # as in World.outcome
            terminated |= last
        truncated = ~terminated & last
        self.over = terminated | truncated
        return BatchStep(self.render(), rewards, terminated, truncated, valid, effective, self.success())

    def render(self) -> list[str]:
        """Every state as text."""
        width, marks = self._look()
        return texts(self._codes(), width, marks, BETWEEN[self.world.config.view])

    @abstractmethod
    def success(self) -> Bools:
        """[N]: which episodes have reached their goal."""

    @abstractmethod
    def _start(self, seeds: Sequence[int], split: str | None, member_ids: Sequence[int]) -> None:
        """Fill the arrays with the levels of the seeds."""

    @abstractmethod
    def _move(self, rows: Ints, moves: list[Ints]) -> tuple[NDArray[np.float64], Bools, Bools]:
        """Change the states of `rows`: their rewards, whether the world ended the episode, whether anything changed."""

    @abstractmethod
    def _codes(self) -> NDArray[np.integer[Any]]:
        """[N, cells]: cell codes."""

    @abstractmethod
    def _look(self) -> tuple[int, tuple[str, ...]]:
        """Columns, and the character of each code."""

    def _read(self, actions: Sequence[str]) -> list[Ints]:
        """Each action as numbers [N], the first of them -1 where it is not understood."""
        index = {word.strip().lower(): number for number, word in enumerate(self.world.actions or ())}
        return [np.array([index.get(action.strip().lower(), -1) for action in actions], np.int64)]


class LakeBatch(WorldBatch):
    """FrozenLake."""

    world: frozen_lake.FrozenLake
    arrays = ("bare", "player", "noise", "drawn")

    def _start(self, seeds: Sequence[int], split: str | None, member_ids: Sequence[int]) -> None:
        config = self.world.config
        starts = [_lake_start(config.size, config.frozen_probability, seed, split, config.pack) for seed in seeds]
        self.bare = np.stack([bare for bare, _ in starts])
        self.player = np.array([player for _, player in starts])
        # A member's noise is a stream of its own, read one draw a move: as many as there can be are drawn ahead.
        self.noise = np.zeros((len(seeds), config.max_actions))
        if not self.world.deterministic:
            for row, (seed, member) in enumerate(zip(seeds, member_ids, strict=True)):
                self.noise[row] = frozen_lake.slips(seed, member).random(config.max_actions)
        self.drawn = np.zeros(len(seeds), np.int64)

    def _move(self, rows: Ints, moves: list[Ints]) -> tuple[NDArray[np.float64], Bools, Bools]:
        rate = self.world.config.success_rate
        noise = self.noise[rows, self.drawn[rows]]
        self.drawn[rows] += 1
        turn = np.where(noise < rate, 0, np.where(noise < rate + (1 - rate) / 2, 1, 3))
        before = self.player[rows]
        after = frozen_lake.neighbours(self.world.config.size)[before, (moves[0] + turn) % 4]
        self.player[rows] = after
        ground = self.bare[rows, after]
        return (ground == lake_views.GOAL).astype(float), ground != lake_views.ICE, after != before

    def success(self) -> Bools:
        return self.bare[self._rows, self.player] == lake_views.GOAL

    def _codes(self) -> NDArray[np.integer[Any]]:
        codes = self.bare.copy()
        ground = codes[self._rows, self.player]
        standing = np.array([lake_views.PLAYER, lake_views.FALLEN, lake_views.ARRIVED], np.int8)
        codes[self._rows, self.player] = standing[ground]
        return codes

    def _look(self) -> tuple[int, tuple[str, ...]]:
        return self.world.config.size, self.world.config.glyphs.marks


class SokobanBatch(WorldBatch):
    """Sokoban."""

    world: sokoban.Sokoban
    arrays = ("bare", "boxes", "player", "stored")

    def _start(self, seeds: Sequence[int], split: str | None, member_ids: Sequence[int]) -> None:
        config = self.world.config
        starts = [_room_start(config.plan, seed, split, config.pack) for seed in seeds]
        self.bare = np.stack([bare for bare, _, _ in starts])
        self.boxes = np.stack([boxes for _, boxes, _ in starts])
        self.player = np.array([player for _, _, player in starts])
        self.stored = np.zeros(len(seeds), np.int64)
        self.shifts = np.array([down * config.width + right for down, right in sokoban.SHIFTS])

    def _move(self, rows: Ints, moves: list[Ints]) -> tuple[NDArray[np.float64], Bools, Bools]:
        shift = self.shifts[moves[0]]
        ahead = self.player[rows] + shift
        # Behind a wall there may be nothing: look there only past a box, which always stands inside the border.
        pushing = self.boxes[rows, ahead]
        behind = np.where(pushing, ahead + shift, ahead)
        blocked = (self.bare[rows, ahead] == sokoban_views.WALL) | (self.bare[rows, behind] == sokoban_views.WALL)
        blocked |= pushing & self.boxes[rows, behind]
        self.player[rows] = np.where(blocked, self.player[rows], ahead)
        pushed = pushing & ~blocked
        self.boxes[rows[pushed], ahead[pushed]] = False
        self.boxes[rows[pushed], behind[pushed]] = True
        gained = np.zeros(len(rows), np.int64)
        targets = self.bare == sokoban_views.TARGET
        gained[pushed] = targets[rows, behind][pushed].astype(int) - targets[rows, ahead][pushed]
        self.stored[rows] += gained
        solved = self.success()[rows]
        reward = sokoban.STEP_REWARD + sokoban.STORE_REWARD * gained + sokoban.SOLVE_REWARD * solved
        return reward, solved, ~blocked

    def success(self) -> Bools:
        return self.stored == self.world.config.boxes

    def _codes(self) -> NDArray[np.integer[Any]]:
        codes = self.bare.copy()
        rows, cells = np.nonzero(self.boxes)
        on_target = codes[rows, cells] == sokoban_views.TARGET
        codes[rows, cells] = np.where(on_target, sokoban_views.STORED, sokoban_views.BOX)
        on_target = codes[self._rows, self.player] == sokoban_views.TARGET
        codes[self._rows, self.player] = np.where(on_target, sokoban_views.PLAYER_ON_TARGET, sokoban_views.PLAYER)
        return codes

    def _look(self) -> tuple[int, tuple[str, ...]]:
        return self.world.config.width, self.world.config.glyphs.marks


class SudokuBatch(WorldBatch):
    """Sudoku."""

    world: sudoku.Sudoku
    arrays = ("givens", "solution", "cells")

    def _start(self, seeds: Sequence[int], split: str | None, member_ids: Sequence[int]) -> None:
        config = self.world.config
        puzzles = [sudoku.puzzle_for(config.size, config.given, seed, split, config.pack) for seed in seeds]
        self.givens = np.array([puzzle.givens for puzzle in puzzles])
        self.solution = np.array([puzzle.solution for puzzle in puzzles])
        self.cells = self.givens.copy()
        self.peers = np.array(peers(config.size))

    def _move(self, rows: Ints, moves: list[Ints]) -> tuple[NDArray[np.float64], Bools, Bools]:
        cell, digit = moves
        conflict = (self.cells[rows[:, None], self.peers[cell]] == digit[:, None]).any(axis=1)
        allowed = (self.givens[rows, cell] == 0) & ~conflict
        effective = allowed & (self.cells[rows, cell] != digit)
        self.cells[rows[allowed], cell[allowed]] = digit[allowed]
        solved = self.success()[rows]
        return solved.astype(float), solved, effective

    def success(self) -> Bools:
        return (self.cells == self.solution).all(axis=1)

    def render(self) -> list[str]:
        width, marks = self._look()
        lines = texts(self._codes(), width, marks, " ")
        if self.world.config.view == "spaced":
            return lines
        return [f"| {line.replace(chr(10), ' | ')} " for line in lines]

    def _codes(self) -> NDArray[np.integer[Any]]:
        return self.cells

    def _look(self) -> tuple[int, tuple[str, ...]]:
        return self.world.config.size, (".", *(str(digit) for digit in range(1, self.world.config.size + 1)))

    def _read(self, actions: Sequence[str]) -> list[Ints]:
        moves = [read_action(action, self.world.config.size) or (-1, 0) for action in actions]
        return list(np.array(moves, np.int64).reshape(-1, 2).T)


@lru_cache(maxsize=4096)
def _lake_start(
    size: int, frozen_probability: float, seed: int, split: str | None, pack: Path | None
) -> tuple[NDArray[np.int8], int]:
    """[cells] codes without the player, and where the player starts."""
    lake = frozen_lake.level_for(size, frozen_probability, seed, split, pack).lake
    bare = np.zeros(size**2, np.int8)
    bare[list(lake.holes)] = lake_views.HOLE
    bare[lake.goal] = lake_views.GOAL
    return bare, lake.player


@lru_cache(maxsize=4096)
def _room_start(plan: Plan, seed: int, split: str | None, pack: Path | None) -> tuple[NDArray[np.int8], Bools, int]:
    """[cells] codes of what never moves, [cells] where boxes stand, and where the player starts."""
    room = sokoban.room_of(sokoban.level_for(plan, seed, split, pack))
    bare = np.zeros(room.height * room.width, np.int8)
    bare[sokoban_views.cells_of(room.floor)] = sokoban_views.FLOOR
    bare[sokoban_views.cells_of(room.targets)] = sokoban_views.TARGET
    boxes = np.zeros(len(bare), bool)
    boxes[sokoban_views.cells_of(room.boxes)] = True
    return bare, boxes, room.player


BATCHES: dict[type[World], type[WorldBatch]] = {
    frozen_lake.FrozenLake: LakeBatch,
    sokoban.Sokoban: SokobanBatch,
    sudoku.Sudoku: SudokuBatch,
}


def make_batch(name: str, /, **settings: Any) -> WorldBatch:
    """N episodes of a grid world, stepped together: `make_batch("sokoban").reset(range(256))`."""
    world = make(name, **settings)
    if type(world) not in BATCHES:
        raise OneiroError(f"world '{world.name}' has no batch; {', '.join(kind.name for kind in BATCHES)} have")
    return BATCHES[type(world)](world)


def texts(codes: NDArray[np.integer[Any]], width: int, marks: tuple[str, ...], between: str = "") -> list[str]:
    """Grids of cell codes [N, cells] as N strings, one line a row: written as arrays of code points, cut once."""
    points = np.array([ord(mark) for mark in marks], np.uint32)[codes].reshape(len(codes), -1, width, 1)
    gap = np.full_like(points, ord(between or "\n"))
    gap[:, :, -1] = ord("\n")
    if between:
        lines = np.concatenate([points, gap], axis=-1).reshape(len(codes), -1)
    else:
        lines = np.concatenate([points[..., 0], gap[:, :, -1]], axis=-1).reshape(len(codes), -1)
    flat = np.ascontiguousarray(lines[:, :-1])
    return [str(line) for line in flat.view(f"U{flat.shape[1]}").ravel().tolist()]
