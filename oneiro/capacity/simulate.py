"""What a recipe's RL would do on many GPUs: steps played through with drawn lengths and latencies at known rates.

The rollout is the one of `agents/rollout.py`: episodes under way are asked together, turn by turn, and a turn is over
when its longest reply is. Where worlds run in workers there are two halves, one answered while the other's worlds step.

    synchronous     all GPUs sample, then all learn
    asynchronous    the next steps are played while the present one is learned: on the same GPUs, in turns, or on some
                    GPUs apart; whichever is fastest

Nothing fails here, no link is shared with others, and a GPU's memory is `plan.py`'s affair.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import exp, log

import numpy as np
from numpy.typing import NDArray

from oneiro import seeds
from oneiro.capacity.pace import Pace

Numbers = NDArray[np.float64]
Z95 = 1.6448536269514722
"""The 95th percentile of a standard normal distribution."""


@dataclass(frozen=True)
class Latency:
    """Seconds that a world takes to answer: lognormal with this median and 95th percentile."""

    median: float = 0.0
    p95: float = 0.0

    @property
    def mean(self) -> float:
        return self.median * exp(self._sigma**2 / 2)

    @property
    def _sigma(self) -> float:
        return log(max(self.p95, self.median) / self.median) / Z95 if self.median else 0.0

    def draw(self, random: np.random.Generator, shape: tuple[int, ...]) -> Numbers:
        normal: Numbers = random.standard_normal(shape)
        return self.median * np.exp(self._sigma * normal)


@dataclass(frozen=True)
class Work:
    """A step of RL."""

    rows: int
    """Episodes."""
    turns: int
    prompt: int
    """Tokens before each reply."""
    longest: int
    """Tokens that a reply may have."""
    group: int = 1
    """Episodes that begin with the same prompt, which is computed once for them."""
    mean: float | None = None
    """Tokens of a reply on average; None: all are as long as they may be."""
    world: Latency = Latency()
    workers: int = 0
    """Of worlds: 0, in the process of the first GPU, one after the other."""
    updates: int = 1
    passes: int = 0
    """Forward passes over all tokens besides learning: a reference, a correction."""
    epochs: int = 1
    critic: bool = False
    staleness: int = 1
    """Steps that what is learned may be older than the policy, in the asynchronous setting."""

    def prompts(self, turn: int) -> float:
        """Tokens of a row's prompt that are computed for it alone."""
        return self.prompt / (self.group if turn == 0 else 1)


@dataclass(frozen=True)
class Draws:
    """Chance of one step: [turns, rows] each. The same whatever the number of GPUs."""

    replies: Numbers
    worlds: Numbers

    @classmethod
    def of(cls, work: Work, seed: int, step: int) -> Draws:
        random = seeds.generator(seed, "simulate", step)
        shape = (work.turns, work.rows)
        replies = np.full(shape, float(work.longest))
        if work.mean is not None:
            # A reply ends with the same chance after every token.
            replies = np.minimum(random.geometric(1 / work.mean, shape), work.longest).astype(np.float64)
        return cls(replies, work.world.draw(random, shape))


@dataclass(frozen=True)
class Spent:
    """Seconds on the clock, and GPU-seconds of computing."""

    seconds: float
    busy: float


def sampling(pace: Pace, replies: Numbers, prompt: float, gpus: int) -> Spent:
    """A call of the sampler, shared by GPUs in blocks of rows as equal as can be: over when the last one is done.

    A GPU decodes its rows together, so its longest reply sets the number of steps.
    """
    if not len(replies):
        return Spent(0.0, 0.0)
    edges = np.unique(np.arange(gpus) * len(replies) // gpus)
    counts = np.diff([*edges, len(replies)])
    each = pace.step_s * np.maximum.reduceat(replies, edges) + pace.row_s * np.add.reduceat(replies, edges)
    each = each + pace.prompt_s * prompt * counts
    return Spent(float(each.max()), float(each.sum()))


def stepping(latencies: Numbers, workers: int) -> float:
    """Worlds answer: one after the other here, or in workers, all of which are there."""
    if not len(latencies):
        return 0.0
    return float(latencies.max()) if workers else float(latencies.sum())


def rollout(work: Work, pace: Pace, draws: Draws, gpus: int) -> Spent:
    """All episodes of a step. With fewer workers than episodes, they are played in as many waves as it takes."""
    places = min(work.rows, work.workers) if work.workers else work.rows
    free = busy = end = 0.0
    for start in range(0, work.rows, places):
        rows = np.arange(start, min(start + places, work.rows))
        halves = [h for h in np.array_split(rows, 2) if len(h)] if work.workers else [rows]
        ready = [end] * len(halves)
        for turn in range(work.turns):
            for number, half in enumerate(halves):
                call = sampling(pace, draws.replies[turn, half], work.prompts(turn), gpus)
                free = max(free, ready[number]) + call.seconds
                ready[number] = free + stepping(draws.worlds[turn, half], work.workers)
                busy += call.busy
        end = max(ready)
    return Spent(end, busy)


def learning(work: Work, pace: Pace, draws: Draws, gpus: int) -> Spent:
    """A step's updates. Rows are shared out by their tokens, so that one turn is the smallest part."""
    tokens = draws.replies + np.array([[work.prompts(turn)] for turn in range(work.turns)])
    factor = work.epochs * (2 if work.critic else 1) + work.passes / 3
    least = 3 * factor * work.updates * pace.pass_s  # forward and backward are the work of three passes
    total = max(factor * pace.token_s * float(tokens.sum()), gpus * least)
    slowest = max(total / gpus, factor * pace.token_s * float(tokens.max()))
    fixed = work.updates * pace.update_s
    return Spent(slowest + fixed + (work.updates * pace.reduce_s if gpus > 1 else 0.0), total + gpus * fixed)


def pipeline(rollouts: Sequence[float], learnings: Sequence[float], transfer: float, staleness: int) -> list[float]:
    """When each step is learned, where rollouts have GPUs of their own.

    The rollout of step i may begin once the one before is over and the learner is at most `staleness` steps behind;
    the samplers get the newest weights first. A learner takes steps in their order.
    """
    played, learned = list[float](), list[float]()
    for i, (playing, learning_) in enumerate(zip(rollouts, learnings, strict=True)):
        before = learned[i - 1 - staleness] if i > staleness else 0.0
        played.append(max(played[-1] if played else 0.0, before) + transfer + playing)
        learned.append(max(learned[-1] if learned else 0.0, played[-1]) + learning_)
    return learned


@dataclass(frozen=True)
class Outcome:
    """What so many GPUs would do."""

    gpus: int
    samplers: int
    """GPUs that only sample; 0: all GPUs do both."""
    seconds: float
    """A step, on average."""
    tokens: float
    """Sampled in a step, on average."""
    idle: float
    """Part of the GPUs' time in which they neither sample nor learn."""

    @property
    def rate(self) -> float:
        """Sampled tokens a second."""
        return self.tokens / self.seconds

    def cost(self, price: float) -> float:
        """Of a million sampled tokens, at a price of one GPU for an hour."""
        return price * self.gpus * self.seconds / 3600 / self.tokens * 1e6


@dataclass(frozen=True)
class Simulation:
    """Some steps of `work` at `pace`, the same chance for every number of GPUs."""

    work: Work
    pace: Pace
    steps: int = 8
    seed: int = 0

    @cached_property
    def draws(self) -> list[Draws]:
        return [Draws.of(self.work, self.seed, step) for step in range(self.steps)]

    def synchronous(self, gpus: int) -> Outcome:
        played, learned = self._parts(gpus, gpus)
        seconds = [p.seconds + q.seconds for p, q in zip(played, learned, strict=True)]
        return self._outcome(gpus, 0, sum(seconds), played, learned)

    def shared(self, gpus: int) -> Outcome:
        """The next step is played while the present one is learned, on the same GPUs: they learn while worlds step.

        A fluid's bound: no faster than the rollout alone, nor than all that the GPUs have to compute and send.
        """
        played, learned = self._parts(gpus, gpus)
        seconds = 0.0
        for p, q in zip(played, learned, strict=True):
            seconds += max(p.seconds, self._sampling_only(p, gpus) + q.seconds)
        return self._outcome(gpus, 0, seconds, played, learned)

    def apart(self, gpus: int, samplers: int) -> Outcome:
        """`samplers` of the GPUs sample, the others learn. The steps are gone through twice: the first time fills the
        pipeline, the second is counted.
        """
        played, learned = self._parts(samplers, gpus - samplers)
        rollouts, learnings = [p.seconds for p in played], [q.seconds for q in learned]
        ends = pipeline(2 * rollouts, 2 * learnings, self.pace.transfer_s, self.work.staleness)
        return self._outcome(gpus, samplers, ends[-1] - ends[self.steps - 1], played, learned)

    def asynchronous(self, gpus: int) -> Outcome:
        """The fastest of the ways to overlap."""
        ways = [self.shared(gpus)]
        ways += [self.apart(gpus, samplers) for samplers in splits(gpus)]
        return max(ways, key=lambda way: way.rate)

    def _parts(self, samplers: int, learners: int) -> tuple[list[Spent], list[Spent]]:
        played = [rollout(self.work, self.pace, draws, samplers) for draws in self.draws]
        learned = [learning(self.work, self.pace, draws, learners) for draws in self.draws]
        return played, learned

    def _sampling_only(self, played: Spent, gpus: int) -> float:
        """Seconds of a rollout in which some GPU samples: as if worlds took no time."""
        return min(played.seconds, played.busy / gpus)

    def _outcome(
        self, gpus: int, samplers: int, seconds: float, played: Sequence[Spent], learned: Sequence[Spent]
    ) -> Outcome:
        busy = sum(p.busy for p in played) + sum(q.busy for q in learned)
        tokens = sum(float(draws.replies.sum()) for draws in self.draws) / self.steps
        idle = min(1.0, max(0.0, 1.0 - busy / (gpus * seconds)))
        return Outcome(gpus, samplers, seconds / self.steps, tokens, idle)


def splits(gpus: int) -> list[int]:
    """Numbers of samplers worth trying: sixteenths of the GPUs."""
    return sorted({s for s in (round(gpus * part / 16) for part in range(1, 16)) if 0 < s < gpus})


def grown(work: Work, gpus: int, least: int) -> Work:
    """The same work for every GPU as on the smallest number of them; workers grow too."""
    return replace(work, rows=work.rows * gpus // least, workers=work.workers * gpus // least)
