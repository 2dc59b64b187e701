"""`oneiro bench worlds`: levels and text steps a second beside the plain loops they replace, and how hard the levels
are.
"""

from __future__ import annotations

from oneiro.errors import OneiroError
from oneiro.report.table import Table
from oneiro.worlds.bench import bench


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
    for rate in rates:
        speed.add(rate.what, rate.per_second, rate.baseline, rate.ratio)
    levels = Table(
        "Sokoban rooms, 10x10 with two boxes",
        ["generator", "levels", "mean moves", "mean pushes", "solvable in ten"],
        units={"solvable in ten": "%"},
        note="moves and pushes of the shortest solution",
    )
    for found in difficulties:
        levels.add(found.generator, found.levels, found.moves, found.pushes, found.in_ten)
    return [speed, levels]
