"""`oneiro bench worlds`: levels and text steps a second beside the plain loops they replace, and how hard levels are.

The baselines are plain reimplementations of what the public environments do for each level and each step: gym-sokoban's
depth-first search over copied arrays, and RAGEN's step, which decodes seven pictures and paints the room before it
writes the text.
"""

from __future__ import annotations

import io
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from matplotlib import image
from numpy.typing import NDArray

from oneiro.report.table import Table
from oneiro.runtime.errors import OneiroError
from oneiro.runtime.seeds import generator
from oneiro.worlds.grid.sokoban import views as cells
from oneiro.worlds.grid.sokoban.levels import SHIFTS, carve
from oneiro.worlds.grid.sokoban.views import SokobanRoom
from oneiro.worlds.grid.sokoban.world import Sokoban, level_for, room_of
from oneiro.worlds.grid.vector import make_batch
from oneiro.worlds.registry import config_for, make

Grid = NDArray[np.int8]

SEARCH_DEPTH, MOST_STATES = 300, 300_000
WORLDS_STEPPED = ("frozen-lake", "sokoban", "sokoban:harder", "sudoku")
ROWS = 1024
"""Episodes in a batch."""


@dataclass(frozen=True)
class Rate:
    """One line of the table."""

    what: str
    per_second: float
    baseline: float | None = None
    """The plain loop's rate, where there is one."""

    @property
    def ratio(self) -> float | None:
        return self.per_second / self.baseline if self.baseline else None


@dataclass(frozen=True)
class Difficulty:
    """What a generator's levels are like."""

    generator: str
    levels: int
    moves: float
    """Mean length of the shortest solution."""
    pushes: float
    """Mean pushes on one."""
    in_ten: float
    """Share solvable in ten moves."""


def run(model: str | None = None, seconds: float = 2.0) -> list[Table]:
    """Each rate takes about `seconds`; no model takes part."""
    if model is not None:
        raise OneiroError("the benchmark 'worlds' measures no model; leave --model out")
    rates, difficulties = bench(seconds)
    speed = Table(
        "Worlds beside plain loops",
        ["what", "here", "plain loop", "times faster"],
        units={"here": "1/s", "plain loop": "1/s"},
        note="plain loops: depth-first search over copied arrays for rooms, a painted picture for every step",
    )
    for line in rates:
        speed.add(line.what, line.per_second, line.baseline, line.ratio)
    levels = Table(
        "Sokoban rooms, 10x10 with two boxes",
        ["generator", "levels", "mean moves", "mean pushes", "solvable in ten"],
        units={"solvable in ten": "%"},
        note="moves and pushes of the shortest solution",
    )
    for found in difficulties:
        levels.add(found.generator, found.levels, found.moves, found.pushes, found.in_ten)
    return [speed, levels]


def bench(seconds: float = 2.0) -> tuple[list[Rate], list[Difficulty]]:
    """Rates and difficulty; each measurement takes about `seconds`."""
    if not 0 < seconds < float("inf"):
        raise OneiroError(f"a measurement takes more than 0 seconds, not {seconds:g}")
    world = Sokoban(config_for("sokoban:harder"))
    plan = world.config.plan
    ours: list[SokobanRoom] = []
    theirs: list[SokobanRoom] = []
    rooms = rate(lambda number: ours.append(room_of(level_for(plan, number, None))), seconds)
    plain_rooms = rate(lambda number: theirs.append(plain_room(generator("bench", number), world)), max(seconds, 4.0))
    rates = [Rate("sokoban 10x10, 2 boxes: rooms", rooms, plain_rooms)]
    walk = PlainSteps(room_of(level_for(plan, 0, None)))
    for name in WORLDS_STEPPED:
        painted = rate(walk.step, seconds) if name.startswith("sokoban") else None
        rates.append(Rate(f"{name}: text steps, one at a time", single_steps(name, seconds), painted))
        rates.append(Rate(f"{name}: text steps, {ROWS} at a time", batch_steps(name, seconds), painted))
    return rates, [difficulty("this one", ours[:100], world), difficulty("depth-first search", theirs[:100], world)]


def rate(call: Callable[[int], object], seconds: float) -> float:
    """Calls a second, with the number of the call as argument."""
    started, number = time.perf_counter(), 0
    while (spent := time.perf_counter() - started) < seconds:
        call(number)
        number += 1
    return number / spent


def single_steps(name: str, seconds: float) -> float:
    """Random steps of one world a second, resets of a known level included."""
    world, rng = make(name), generator("bench", "single", name)
    world.reset(seed=0)
    words = [world.random_action(rng) for _ in range(512)]

    def step(number: int) -> None:
        if world.over:
            world.reset(seed=number % 16)
        world.step(words[number % 512])

    return rate(step, seconds)


def batch_steps(name: str, seconds: float) -> float:
    """Random steps of a batch a second, over all its rows."""
    batch, world, rng = make_batch(name), make(name), generator("bench", "batch", name)
    world.reset(seed=0)
    words = [world.random_action(rng) for _ in range(ROWS)]
    seeds = [row % 16 for row in range(ROWS)]
    batch.reset(seeds)

    def step(number: int) -> None:
        if batch.over.all():
            batch.reset(seeds)
        batch.step(words)

    return ROWS * rate(step, seconds)


def difficulty(name: str, rooms: list[SokobanRoom], world: Sokoban) -> Difficulty:
    """Shortest solutions of rooms, by following the oracle."""
    world = Sokoban(world.config.model_copy(update={"max_actions": 1000}))
    lengths, pushes = [], []
    for room in rooms:
        world.reset(seed=0)
        world.__dict__.pop("_distances", None)
        world.room = room
        pushed = 0
        while not world.over and (action := world.oracle()) is not None:
            before = world.room.boxes
            world.step(action)
            pushed += world.room.boxes != before
        lengths.append(world.taken)
        pushes.append(pushed)
    within = float(np.mean(np.array(lengths) <= 10))
    return Difficulty(name, len(rooms), float(np.mean(lengths)), float(np.mean(pushes)), within)


def plain_room(rng: np.random.Generator, world: Sokoban) -> SokobanRoom:
    """A room as gym-sokoban makes one: carve, place, play backwards depth first, keep the best score."""
    plan = world.config.plan
    while True:
        ground = carve(rng, plan)
        if ground is None:
            continue
        bare = np.full((plan.height, plan.width), cells.WALL, np.int8)
        inside = [divmod(cell, plan.width - 2) for cell in cells.cells_of(ground.floor)]
        goals = [divmod(cell, plan.width - 2) for cell in cells.cells_of(ground.targets)]
        for row, column in inside:
            bare[row + 1, column + 1] = cells.FLOOR
        for row, column in goals:
            bare[row + 1, column + 1] = cells.TARGET
        free = np.argwhere(bare == cells.FLOOR)
        if not len(free):
            continue
        state = np.where(bare == cells.TARGET, cells.BOX, bare).astype(np.int8)
        state[tuple(free[rng.integers(len(free))])] = cells.PLAYER
        search = _Backwards(bare, state)
        if search.best is not None:
            return _room(bare, search.best)


class _Backwards:
    """Depth-first reverse play over copied arrays."""

    def __init__(self, bare: Grid, state: Grid) -> None:
        self.bare, self.score = bare, 0
        self.best: Grid | None = None
        self.seen: set[bytes] = set()
        targets = [tuple(place) for place in np.argwhere(bare == cells.TARGET).tolist()]
        boxes = {target: target for target in targets}
        stack = [(state, boxes, 0, None, SEARCH_DEPTH)]
        while stack:
            state, boxes, switches, last, depth = stack.pop()
            known = state.tobytes()
            if depth <= 0 or len(self.seen) >= MOST_STATES or known in self.seen:
                continue
            self.seen.add(known)
            self._rate(state, boxes, switches)
            for direction in range(3, -1, -1):
                stack.append(self._pulled(state, boxes, switches, last, depth - 1, direction))

    def _rate(self, state: Grid, boxes: dict, switches: int) -> None:
        apart = sum(abs(t[0] - b[0]) + abs(t[1] - b[1]) for t, b in boxes.items())
        covered = np.count_nonzero(state == cells.TARGET) != len(boxes)
        if not covered and switches * apart > self.score:
            self.best, self.score = state, switches * apart

    def _pulled(self, state: Grid, boxes: dict, switches: int, last: object, depth: int, direction: int) -> tuple:
        state, boxes = state.copy(), boxes.copy()
        place = np.argwhere(state == cells.PLAYER)[0]
        shift = np.array(SHIFTS[direction])
        ahead, behind = tuple(place + shift), tuple((place - shift).tolist())
        if state[ahead] in (cells.FLOOR, cells.TARGET):
            state[tuple(place)] = self.bare[tuple(place)]
            state[ahead] = cells.PLAYER
            if state[behind] == cells.BOX:
                state[tuple(place)] = cells.BOX
                state[behind] = self.bare[behind]
                pulled = next(target for target, box in boxes.items() if box == behind)
                boxes[pulled] = tuple(place.tolist())
                switches, last = switches + (pulled != last), pulled
        return state, boxes, switches, last, depth


def _room(bare: Grid, state: Grid) -> SokobanRoom:
    def mask(found: NDArray[np.bool_]) -> int:
        return sum(1 << int(cell) for cell in np.flatnonzero(found))

    height, width = bare.shape
    floor, player = mask(bare != cells.WALL), mask(state == cells.PLAYER)
    return SokobanRoom(
        height, width, floor, mask(bare == cells.TARGET), mask(state == cells.BOX), player.bit_length() - 1
    )


class PlainSteps:
    """RAGEN's step: move on arrays, decode the seven tile pictures, paint the room, write the text."""

    def __init__(self, room: SokobanRoom) -> None:
        self.state = np.array(cells.codes(room), np.int8).reshape(room.height, room.width)
        self.bare = np.where(self.state == cells.BOX, cells.FLOOR, self.state)
        self.bare[self.bare == cells.PLAYER] = cells.FLOOR
        self.tiles = []
        for shade in range(7):
            picture = io.BytesIO()
            image.imsave(picture, np.full((16, 16, 3), shade / 7), format="png")
            self.tiles.append(picture.getvalue())

    def step(self, number: int) -> str:
        place = np.argwhere(self.state == cells.PLAYER)[0]
        ahead = tuple(place + np.array(SHIFTS[number % 4]))
        if self.state[ahead] in (cells.FLOOR, cells.TARGET):
            self.state[tuple(place)] = self.bare[tuple(place)]
            self.state[ahead] = cells.PLAYER
        tiles = [image.imread(io.BytesIO(tile)) for tile in self.tiles]
        height, width = self.state.shape
        painted = np.zeros((16 * height, 16 * width, 4))
        for row in range(height):
            for column in range(width):
                painted[16 * row : 16 * row + 16, 16 * column : 16 * column + 16] = tiles[self.state[row, column]]
        return "\n".join("".join("#_O√XPS"[code] for code in row) for row in self.state)
