"""Data parallel: every rank has all weights and learns from a part of the rows; their gradients are added up.

All ranks hold the same examples. The weights of all tokens are normalised before the rows are divided, so a rank's loss
is its part of the whole update's loss and gradients add up, whatever each rank takes. Each rank then makes the same
step. A single process takes all rows and has nothing to add.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import torch
from torch import nn

from oneiro.episode import Floats
from oneiro.learning.batch import Batch, Example, cut, prefix_groups
from oneiro.learning.optimiser import Optimiser
from oneiro.runtime import distributed, seeds

if TYPE_CHECKING:
    from oneiro.learning.learner import Learner, Statistics
    from oneiro.models.backbone import Backbone

Measure = Callable[..., tuple[list[Floats], ...]]
"""(learner, examples, backbone, ...) -> lists of arrays, each one [T] per example; a method of `Learner`."""
BUCKET = 1 << 26
"""Numbers that are added up at once."""


class DataParallel:
    """How a learner's work is shared. Every rank calls every method."""

    packed: bool | None = None
    """Whether every micro-batch must be one forward (`batch.batches`)."""

    def setup(self, learner: Learner) -> None:
        """Give a new learner its optimiser. The weights become those of rank 0, as in torch's DDP."""
        if distributed.world_size() > 1:
            import torch.distributed as dist

            for _, parameter in learner.trained_parameters(learner.backbone):
                # Ranks that start from the same files have the same weights already; a model made at random on each has
                # not.
                dist.broadcast(parameter.data, src=0)
        learner.optimiser = self.make_optimiser(learner)

    def make_optimiser(self, learner: Learner) -> Optimiser:
        named = learner.trained_parameters(learner.backbone)
        return Optimiser(named, learner.settings.optimiser, learner.hidden(named))

    def accumulate(self, learner: Learner, scaled: Sequence[Example], seed: int) -> Statistics:
        """Add the gradients of this rank's examples; the statistics are of all."""
        learner.require_positions(scaled)
        if (ranks := distributed.world_size()) == 1:
            return learner.accumulate(scaled, seed)
        rank = distributed.rank()
        # Weights were scaled over all examples before, so that the sum of all ranks' gradients is that of one process.
        own = [scaled[i] for i in portions(scaled, ranks)[rank]]
        statistics, *others = distributed.gather(learner.accumulate(own, seeds.derive(seed, rank)).on_cpu())
        for other in others:
            statistics.merge(other)
        return statistics

    def step(self, learner: Learner, rate: float) -> float:
        """Apply the gradients; returns their norm."""
        if distributed.world_size() > 1:
            sum_gradients(learner.optimiser)
        return learner.optimiser.step(rate)

    def score(
        self, learner: Learner, measure: Measure, examples: Sequence[Example], backbone: Backbone | None = None
    ) -> tuple[list[Floats], ...]:
        """What `measure` finds for the examples, in their order."""
        learner.require_positions(examples)
        if (ranks := distributed.world_size()) == 1 or not examples:
            return measure(learner, examples, backbone)

        def work(own: Sequence[int]) -> list[tuple[Floats, ...]]:
            return list(zip(*measure(learner, [examples[i] for i in own], backbone), strict=True))

        return tuple(map(list, zip(*distributed.divide(portions(examples, ranks), work), strict=True)))

    def pad(self, learner: Learner, batches: Iterable[Batch]) -> Iterable[Batch]:
        """The micro-batches that this rank computes: where every rank must compute as many, some are empty."""
        return batches

    def reload(self, learner: Learner) -> None:
        """Take up weights that others than the learner wrote: a checkpoint was loaded."""


def portions(examples: Sequence[Example], ranks: int) -> list[list[int]]:
    """Which examples each rank takes: about as many tokens each. Rows that share a prefix stay together where they are
    no more than a rank's part.
    """
    groups = prefix_groups(examples)
    tokens = sum(group.length + sum(len(examples[i]) - group.length for i in group.rows) for group in groups)
    pieces = [piece for group in groups for piece in cut(group, examples, max(1, tokens // ranks))]
    weights = [piece.length + sum(len(examples[i]) - piece.length for i in piece.rows) for piece in pieces]
    parts: list[list[int]] = [[] for _ in range(ranks)]
    loads = [0] * ranks
    # The largest first, each to the rank with least to do: the usual greedy answer to making parts equal.
    for place in sorted(range(len(pieces)), key=lambda place: (-weights[place], place)):
        least = loads.index(min(loads))
        parts[least] += pieces[place].rows
        loads[least] += weights[place]
    return [sorted(rows) for rows in parts]


@torch.no_grad()
def sum_gradients(optimiser: Optimiser) -> None:
    """Every master gets the sum of its gradients over all ranks, in float32. A parameter that took part on no rank gets
    none.
    """
    import torch.distributed as dist

    for bucket in buckets(list(zip(optimiser.parameters, optimiser.masters, strict=True))):
        taken = torch.tensor([float(p.grad is not None) for p, _ in bucket], device=bucket[0][0].device)
        gradients = [torch.zeros_like(p, dtype=torch.float32) if p.grad is None else p.grad for p, _ in bucket]
        # Counts travel with the gradients: who took part anywhere must be known everywhere, or masters would drift
        # apart.
        flat = torch.cat([*(gradient.reshape(-1).float() for gradient in gradients), taken])
        dist.all_reduce(flat)
        *sums, counts = flat.split([*(p.numel() for p, _ in bucket), len(bucket)])
        for (p, master), total, count in zip(bucket, sums, counts.tolist(), strict=True):
            p.grad = None
            if count:
                master.grad = total.view_as(p).clone()


Pair = tuple[nn.Parameter, nn.Parameter]


def buckets(pairs: Sequence[Pair]) -> Iterator[list[Pair]]:
    """Neighbouring parameters, about `BUCKET` numbers at a time; the same on every rank."""
    bucket: list[Pair] = []
    for pair in pairs:
        if bucket and sum(p.numel() for p, _ in bucket) + pair[0].numel() > BUCKET:
            yield bucket
            bucket = []
        bucket.append(pair)
    if bucket:
        yield bucket
