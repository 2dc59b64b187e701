"""`oneiro simulate`: a recipe and what is known of the machines -> tables."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from oneiro import pretrained
from oneiro.capacity.pace import Pace
from oneiro.capacity.simulate import Latency, Outcome, Simulation, Work, grown
from oneiro.capacity.sizes import KERNELS, PROMPT, REPLAY_S, Rates, parts_of, scoring_passes, size_of
from oneiro.errors import OneiroError
from oneiro.recipe import Recipe
from oneiro.report.table import Table

MOST_GPUS = 1 << 16
MOST_NUMBERS = 32
MOST_REPLIES = 1 << 24
"""Replies of a simulated step: more would take long and tell nothing new."""
MOST_CALLS = 1 << 14
"""Turns of all simulated steps, one after the other."""
LONGEST_WORLD = 86400.0
"""Seconds."""


@dataclass(frozen=True)
class Asked:
    """What the command line says."""

    gpus: Sequence[int]
    rates: Rates
    world: Latency
    measured: str | None = None
    """A file of `oneiro bench rates`."""
    prompt: int = PROMPT
    tokens: float | None = None
    turns: int | None = None
    staleness: int = 1
    grow: bool = False
    price: float = 2.5
    steps: int = 8
    seed: int = 0


def numbers_of(text: str) -> list[int]:
    """`8..1024`: 8, 16, ... 1024. `8`, `8,24`: these."""
    found: list[int] = []
    if re.fullmatch(r"\d{1,6}\.\.\d{1,6}", text):
        least, most = map(int, text.split(".."))
        while 0 < least <= most:
            found.append(least)
            least *= 2
    elif re.fullmatch(r"\d{1,6}(,\d{1,6})*", text):
        found = sorted({int(number) for number in text.split(",")})
    if not found or not 0 < found[0] <= found[-1] <= MOST_GPUS or len(found) > MOST_NUMBERS:
        raise OneiroError(f"--gpus '{text}' is no number of GPUs; give 8, 8,24 or 8..1024, up to {MOST_GPUS}")
    return found


def latency_of(text: str) -> Latency:
    """`0.4`, always; `0.4,2.5`: the median and the 95th percentile."""
    try:
        values = [float(part) for part in text.split(",")]
    except ValueError:
        values = []
    if len(values) == 1:
        values *= 2
    if len(values) != 2 or not 0 <= values[0] <= values[1] <= LONGEST_WORLD or (not values[0] and values[1]):
        raise OneiroError(f"--world '{text}' is no latency; give seconds as MEDIAN or MEDIAN,P95 (0.4,2.5)")
    return Latency(*values)


def work_of(recipe: Recipe, asked: Asked) -> Work:
    """A step of the recipe's RL."""
    parts = parts_of(recipe)
    dialogue, world = getattr(recipe, "dialogue", None), getattr(recipe, "world", None)
    turns = asked.turns or int(getattr(dialogue, "max_turns", 1))
    longest = int(parts.sampling.max_tokens)
    return Work(
        rows=parts.rows,
        turns=turns,
        prompt=asked.prompt,
        longest=longest,
        group=parts.rollout.group_size,
        mean=None if asked.tokens is None else min(asked.tokens, float(longest)),
        world=asked.world,
        workers=workers_of(getattr(world, "workers", 0), parts.rows),
        updates=parts.rl.updates_per_step,
        passes=scoring_passes(parts.rl),
        epochs=parts.rl.epochs,
        critic=parts.rl.algorithm.critic,
        staleness=asked.staleness,
    )


def workers_of(setting: Any, rows: int) -> int:
    """`world.workers` as a number; a cluster that does not say has one for every episode."""
    if isinstance(setting, int):
        return setting
    found = re.search(r"actors=(\d+)", str(setting))
    return int(found.group(1)) if found else rows


def tables(recipe: Recipe, asked: Asked) -> list[Table]:
    for option, value in {"tokens": asked.tokens, "price": asked.price, **asdict(asked.rates)}.items():
        if value is not None and not (math.isfinite(value) and value >= 0):
            raise OneiroError(f"--{option} {value} is no amount; give a number above 0")
    work, size = work_of(recipe, asked), size_of(parts_of(recipe).model)
    most = grown(work, asked.gpus[-1], asked.gpus[0]) if asked.grow else work
    if most.rows * work.turns > MOST_REPLIES:
        raise OneiroError(f"a step of {most.rows} episodes is too large to simulate; give fewer --gpus or no --grow")
    if most.workers and most.rows // most.workers * work.turns * asked.steps > MOST_CALLS:
        raise OneiroError(f"{most.workers} workers take too many turns to simulate; give more world.workers")
    mean = work.mean or work.longest
    pace = Pace.computed(size, asked.rates, asked.prompt + mean / 2)
    if asked.measured is not None:
        pace = Pace.read(asked.measured, pace)
    bound = ""
    if asked.measured is None and pace.row_s == 0:  # 64 rows take as long as one
        bound = (
            f" This model is so small that decoding waits for kernels to start ({KERNELS} a layer, "
            f"{1e6 * REPLAY_S:g} microseconds each): a larger one would be as fast."
        )
    source = f"measured ({asked.measured})" if asked.measured else "not measured: plan's rates"
    found = Table(
        f"{pretrained.in_words(size.parameters)} parameters, {work.rows} episodes of {work.turns} turns, "
        f"{asked.prompt} + {mean:g} tokens a turn; rates {source}",
        ["GPUs", "setting", "samplers + learners", "s a step", "tokens/s", "idle, %", "$ a million tokens", "$ a run"],
        note="tokens/s: sampled. Idle: neither sampling nor learning. Samplers + learners: of the fastest way to "
        f"overlap; shared: all GPUs do both. $ at {asked.price:g} an hour and GPU.{bound}",
    )
    run = parts_of(recipe).rl.steps
    for gpus in asked.gpus:
        own = grown(work, gpus, asked.gpus[0]) if asked.grow else work
        simulation = Simulation(own, pace, asked.steps, asked.seed)
        for name, outcome in (("sync", simulation.synchronous(gpus)), ("async", simulation.asynchronous(gpus))):
            found.add(gpus, name, *cells(outcome, asked.price, run))
    rates = Table("Rates of one GPU", ["rate", "seconds"])
    for rate, seconds in pace.rows():
        rates.add(rate, seconds)
    return [found, rates]


def cells(outcome: Outcome, price: float, run: int) -> list[Any]:
    """Columns after the number of GPUs and the setting."""
    split = f"{outcome.samplers} + {outcome.gpus - outcome.samplers}" if outcome.samplers else "shared"
    dollars = price * outcome.gpus * outcome.seconds / 3600 * run
    shown = [outcome.seconds, outcome.rate, round(100 * outcome.idle, 6), outcome.cost(price), dollars]
    if not all(math.isfinite(number) for number in shown):
        raise OneiroError("these rates make a step that takes no time; measure them with oneiro bench rates")
    return [split, *shown]
