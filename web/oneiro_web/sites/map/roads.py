"""Roads: a graph of junctions, the fastest way through it for each way of travelling, and that way in words."""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

MODES = {"car": "Car", "bicycle": "Bicycle", "foot": "Foot"}

SPEEDS: Mapping[str, Mapping[str, float]] = {
    "motorway": {"car": 100.0},
    "road": {"car": 70.0, "bicycle": 17.0, "foot": 5.0},
    "street": {"car": 32.0, "bicycle": 16.0, "foot": 5.0},
    "cycleway": {"bicycle": 19.0, "foot": 5.0},
    "path": {"bicycle": 10.0, "foot": 4.5},
}
"""Kilometres an hour on each kind of road for who may use it."""

TURNS = ((20.0, "Continue on"), (60.0, "Bear {side} onto"), (130.0, "Turn {side} onto"), (180.0, "Turn back onto"))
COMPASS = ("north", "north-east", "east", "south-east", "south", "south-west", "west", "north-west")

MOST_TREES = 128
"""How many searches a graph remembers."""

Point = tuple[float, float]
"""Kilometres east and north of the region's corner."""


class Road(NamedTuple):
    """A stretch between two junctions, open in both directions."""

    start: int
    end: int
    metres: int
    name: str
    kind: str


@dataclass(frozen=True)
class RouteStep:
    """One line of the directions."""

    text: str
    metres: int


@dataclass(frozen=True)
class Route:
    """The fastest way between two junctions."""

    metres: int
    seconds: float
    junctions: tuple[int, ...]
    steps: tuple[RouteStep, ...]


class Roads:
    """The graph. Each road may be used both ways."""

    def __init__(self, points: Mapping[int, Point], roads: Sequence[Road]) -> None:
        self.points, self.roads = points, roads
        self._ways: dict[str, dict[int, list[tuple[int, float, Road]]]] = {}
        self.trees: dict[tuple[str, int], dict[int, tuple[float, int, Road | None]]] = {}

    def ways(self, mode: str) -> dict[int, list[tuple[int, float, Road]]]:
        """What leaves each junction: (junction at the other end, seconds, road)."""
        if mode in self._ways:
            return self._ways[mode]
        ways: dict[int, list[tuple[int, float, Road]]] = {number: [] for number in self.points}
        for road in self.roads:
            if mode in SPEEDS[road.kind]:
                seconds = road.metres * 3.6 / SPEEDS[road.kind][mode]
                ways[road.start].append((road.end, seconds, road))
                ways[road.end].append((road.start, seconds, road))
        self._ways[mode] = ways
        return ways

    def tree(self, mode: str, source: int) -> dict[int, tuple[float, int, Road | None]]:
        """Seconds to every junction that can be reached, the junction before it and the road between (Dijkstra)."""
        if (mode, source) not in self.trees:
            if len(self.trees) >= MOST_TREES:
                self.trees.clear()
            self.trees[mode, source] = self._search(mode, source)
        return self.trees[mode, source]

    def _search(self, mode: str, source: int) -> dict[int, tuple[float, int, Road | None]]:
        ways = self.ways(mode)
        done: dict[int, tuple[float, int, Road | None]] = {}
        number = 0  # equal times are settled in the order they were found, so that a route is always the same
        queue: list[tuple[float, int, int, int, Road | None]] = [(0.0, number, source, source, None)]
        while queue:
            seconds, _, junction, before, road = heapq.heappop(queue)
            if junction in done:
                continue
            done[junction] = (seconds, before, road)
            for end, more, way in ways[junction]:
                if end not in done:
                    number += 1
                    heapq.heappush(queue, (seconds + more, number, end, junction, way))
        return done

    def route(self, mode: str, start: int, end: int) -> Route | None:
        """The fastest way; None where there is none. The way back is the same way."""
        low, high = sorted((start, end))
        tree = self.tree(mode, low)
        if high not in tree:
            return None
        junctions, roads = self.walk(mode, low, high)
        if start == low:
            junctions, roads = junctions[::-1], roads[::-1]
        steps = self.directions(junctions, roads)
        return Route(sum(road.metres for road in roads), tree[high][0], tuple(junctions), steps)

    def walk(self, mode: str, start: int, end: int) -> tuple[list[int], list[Road]]:
        """The fastest way's junctions and roads from its end back to its start."""
        tree = self.tree(mode, start)
        junctions: list[int] = [end]
        roads: list[Road] = []
        while junctions[-1] != start:
            _, before, road = tree[junctions[-1]]
            assert road is not None
            roads.append(road)
            junctions.append(before)
        return junctions, roads

    def directions(self, junctions: Sequence[int], roads: Sequence[Road]) -> tuple[RouteStep, ...]:
        """A route in words: one line for each road that keeps its name."""
        lines: list[RouteStep] = []
        before = 0.0
        for place, road in enumerate(roads):
            heading = self.heading(junctions[place], junctions[place + 1])
            if place and road.name == roads[place - 1].name:
                lines[-1] = RouteStep(lines[-1].text, lines[-1].metres + road.metres)
            elif place:
                lines.append(RouteStep(f"{turn(before, heading)} {road.name}", road.metres))
            else:
                lines.append(RouteStep(f"Head {COMPASS[round(heading / 45) % 8]} on {road.name}", road.metres))
            before = heading
        return tuple(lines)

    def heading(self, start: int, end: int) -> float:
        """Degrees from north, clockwise."""
        (x, y), (to_x, to_y) = self.points[start], self.points[end]
        return math.degrees(math.atan2(to_x - x, to_y - y)) % 360


def turn(before: float, after: float) -> str:
    """What to do where the heading changes."""
    change = (after - before + 180) % 360 - 180
    words = next(words for most, words in TURNS if abs(change) <= most)
    return words.format(side="right" if change > 0 else "left")


def distance_text(metres: int) -> str:
    """A distance as people say it."""
    return f"{metres} m" if metres < 1000 else f"{metres / 1000:.1f} km"


def duration_text(seconds: float) -> str:
    """A duration in whole minutes, at least one."""
    hours, minutes = divmod(max(1, round(seconds / 60)), 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min"
