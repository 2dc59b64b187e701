"""Data parallel: every rank has all weights and learns from a part of the rows; one round of reduction an update.

Rank 0 normalises the weights of all tokens before it hands the rows out, so a rank's loss is its part of the whole
update's loss and gradients add up, whatever each rank got. The optimiser's state is sharded (ZeRO-1, arXiv 1910.02054):
every parameter has one owner, which gets the sum of its gradients, keeps its moments and its float32 master, and sends
the new weights to the others.
"""

from __future__ import annotations

import weakref
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from oneiro.episode import Floats
from oneiro.learning import shards
from oneiro.learning.batch import Batch, cut
from oneiro.learning.example import Example, groups_of
from oneiro.learning.learner import Learner, Statistics
from oneiro.learning.optimiser import Optimiser
from oneiro.learning.parallel import Measure
from oneiro.learning.settings import LearnerSettings, OptimiserSettings
from oneiro.models import mirror
from oneiro.models.backbone import Backbone
from oneiro.runtime import seeds
from oneiro.runtime.team import Team

BUCKET = 1 << 26
"""Numbers that are reduced or sent at once."""


def portions(examples: Sequence[Example], ranks: int) -> list[list[int]]:
    """Which examples each rank takes: about as many tokens each. Rows that share a prefix stay together where they are
    no more than a rank's part.
    """
    groups = groups_of(examples)
    tokens = sum(group.length + sum(len(examples[i]) - group.length for i in group.rows) for group in groups)
    pieces = [piece for group in groups for piece in cut(group, examples, max(1, tokens // ranks))]
    weights = [piece.length + sum(len(examples[i]) - piece.length for i in piece.rows) for piece in pieces]
    found: list[list[int]] = [[] for _ in range(ranks)]
    loads = [0] * ranks
    for place in sorted(range(len(pieces)), key=lambda place: (-weights[place], place)):
        least = loads.index(min(loads))
        found[least] += pieces[place].rows
        loads[least] += weights[place]
    return [sorted(rows) for rows in found]


class DataParallel:
    """A learner's work on all ranks of a team. Rank 0 asks; the functions below run everywhere."""

    packed: bool | None = None

    def __init__(self, team: Team) -> None:
        self.team, self.number = team, 0

    def equip(self, learner: Learner) -> None:
        if self.team.inside:  # another rank, which was asked
            self.prepare(learner)
            return
        team, head = self.team, learner.value_head
        body = mirror.number_of(team, learner.backbone)
        estimate = None if head is None else mirror.number_of(team, head)
        self.number = team.number()
        team.kept[self.number] = weakref.proxy(learner)
        weakref.finalize(learner, team.drop, self.number)
        team.together(
            join, self.number, body, estimate, learner.settings, learner.steps, learner.has_lm_head, learner.seed
        )

    def prepare(self, learner: Learner) -> None:
        """Make the optimiser; called on every rank."""
        named = learner.named(learner.backbone)
        learner.optimiser = ZeroOptimiser(self.team, named, learner.settings.optimiser, learner.hidden(named))

    def accumulate(self, learner: Learner, scaled: Sequence[Example], seed: int) -> Statistics:
        self._send_changes(learner)
        parts = [[scaled[i] for i in rows] for rows in portions(scaled, self.team.size)]
        return self.team.each(accumulate, parts, self.number, seed)

    def step(self, learner: Learner, rate: float) -> float:
        norm = self.team.together(step, self.number, rate)
        self._same_everywhere(learner)
        return norm

    def score(
        self, learner: Learner, measure: Measure, examples: Sequence[Example], backbone: Backbone | None = None
    ) -> tuple[list[Floats], ...]:
        self._send_changes(learner)
        other = None if backbone is None else mirror.number_of(self.team, backbone)
        rows = portions(examples, self.team.size)
        parts = [[examples[i] for i in own] for own in rows]
        gathered = self.team.each(score, parts, self.number, measure, other)
        placed = [dict[int, Floats]() for _ in gathered[0]]
        for own, found in zip(rows, gathered, strict=True):
            for kind, arrays in zip(placed, found, strict=True):
                kind.update(zip(own, arrays, strict=True))
        return tuple([kind[i] for i in range(len(examples))] for kind in placed)

    def padded(self, learner: Learner, batches: Iterable[Batch]) -> Iterable[Batch]:
        return batches

    def write(self, learner: Learner, place: Path) -> bool:
        self.team.together(write, self.number, str(place.absolute()))
        return True

    def restore(self, learner: Learner, place: Path, saved: dict[str, Tensor]) -> None:
        self.team.together(restore, self.number, str(place.absolute()))
        self._same_everywhere(learner)

    def changed(self, learner: Learner) -> None:
        mirror.changed(learner.backbone)
        mirror.changed(learner.value_head)
        self._send_changes(learner)

    def _send_changes(self, learner: Learner) -> None:
        mirror.number_of(self.team, learner.backbone)
        if learner.value_head is not None:
            mirror.number_of(self.team, learner.value_head)

    def _same_everywhere(self, learner: Learner) -> None:
        mirror.updated(learner.backbone)
        mirror.updated(learner.value_head)


# On every rank --------------------------------------------------------------------------------------------------------


def join(
    team: Team,
    number: int,
    body: int,
    head: int | None,
    settings: LearnerSettings,
    steps: int,
    has_lm_head: bool,
    seed: int,
) -> None:
    if team.rank == 0:
        learner = team.kept[number]
        learner.parallel.prepare(learner)
    else:
        value_head = None if head is None else team.kept[head]
        team.kept[number] = Learner(team.kept[body], settings, steps, value_head, has_lm_head, seed)


def accumulate(team: Team, own: Sequence[Example], number: int, seed: int) -> Statistics:
    statistics: Statistics = team.kept[number].accumulate(own, seeds.derive(seed, team.rank))
    found = team.gather(statistics.on_cpu())
    for other in found[1:]:
        statistics.merge(other)
    return statistics


def step(team: Team, number: int, rate: float) -> float:
    norm: float = team.kept[number].optimiser.step(rate)
    return norm


def score(team: Team, own: Sequence[Example], number: int, measure: Measure, other: int | None) -> list[Any]:
    backbone = None if other is None else mirror.held(team, other)
    return team.gather(measure(team.kept[number], own, backbone))


def write(team: Team, number: int, place: str) -> None:
    shards.write(team, Path(place), team.kept[number].optimiser.shards())


def restore(team: Team, number: int, place: str) -> None:
    team.kept[number].optimiser.restore_from(Path(place))


# The optimiser --------------------------------------------------------------------------------------------------------


class ZeroOptimiser(Optimiser):
    """The optimiser of the parameters that this rank owns, and the sums and sends that keep all ranks alike."""

    def __init__(
        self,
        team: Team,
        parameters: list[tuple[str, nn.Parameter]],
        settings: OptimiserSettings,
        hidden: Collection[str] = (),
    ) -> None:
        self.team, self.every = team, parameters
        self.owner = owners([parameter.numel() for _, parameter in parameters], team.size)
        own = [pair for pair, owner in zip(parameters, self.owner, strict=True) if owner == team.rank]
        super().__init__(own, settings, hidden)

    @property
    def shapes(self) -> dict[str, torch.Size]:
        return {name: parameter.shape for name, parameter in self.every}

    def step(self, lr: float) -> float:
        self._reduce()
        square = self.norm().square() if any(m.grad is not None for m in self.masters) else self._zero()
        dist.all_reduce(square)
        norm = square.sqrt()
        self.apply(lr, norm)
        self._spread()
        return float(norm)

    def _zero(self) -> Tensor:
        return torch.zeros((), device=self.every[0][1].device)

    @torch.no_grad()
    def _reduce(self) -> None:
        """Every owner gets the sum of its parameters' gradients, in float32. A parameter that took part on no rank
        gets none.
        """
        masters = {id(p): m for p, m in zip(self.parameters, self.masters, strict=True)}
        for owner, parameters in self._buckets():
            taken = torch.tensor([float(p.grad is not None) for p in parameters], device=parameters[0].device)
            parts = [torch.zeros_like(p, dtype=torch.float32) if p.grad is None else p.grad for p in parameters]
            flat = torch.cat([*(part.reshape(-1).float() for part in parts), taken])
            for p in parameters:
                p.grad = None
            dist.reduce(flat, dst=owner)
            if owner != self.team.rank:
                continue
            *sums, counts = flat.split([*(p.numel() for p in parameters), len(parameters)])
            for p, total, count in zip(parameters, sums, counts.tolist(), strict=True):
                if count:
                    masters[id(p)].grad = total.view_as(p).clone()

    @torch.no_grad()
    def _spread(self) -> None:
        """Every rank gets the new weights from their owners."""
        for owner, parameters in self._buckets():
            flat = torch.cat([p.detach().reshape(-1) for p in parameters])
            dist.broadcast(flat, src=owner)
            if owner != self.team.rank:
                for p, values in zip(parameters, flat.split([p.numel() for p in parameters]), strict=True):
                    p.copy_(values.view_as(p))

    def _buckets(self) -> Iterator[tuple[int, list[nn.Parameter]]]:
        """Parameters of one owner and one type, about `BUCKET` numbers at a time; the same on every rank."""
        for owner in range(self.team.size):
            bucket: list[nn.Parameter] = []
            for (_, parameter), theirs in zip(self.every, self.owner, strict=True):
                if theirs != owner:
                    continue
                full = sum(p.numel() for p in bucket) + parameter.numel() > BUCKET
                if bucket and (full or bucket[0].dtype != parameter.dtype):
                    yield owner, bucket
                    bucket = []
                bucket.append(parameter)
            if bucket:
                yield owner, bucket

    def shards(self) -> dict[str, Tensor]:
        """The state that this rank keeps, for a checkpoint."""
        return self.state()

    def restore_from(self, place: Path) -> None:
        """Take this rank's part of a checkpoint, and the weights from their owners."""
        self.restore(shards.read_whole(place, self.names))
        self._spread()


def owners(sizes: Sequence[int], ranks: int) -> list[int]:
    """Which rank owns each parameter: about as many numbers each."""
    found, loads = [0] * len(sizes), [0] * ranks
    for place in sorted(range(len(sizes)), key=lambda place: (-sizes[place], place)):
        found[place] = loads.index(min(loads))
        loads[found[place]] += sizes[place]
    return found
