"""Several threads of one process at an update, each with a part of the rows.

Operations of a small model are too short to be divided among threads, but whole passes are not: most of their time is
spent in operations that let other threads run. A thread has a copy of the model that shares the weights and has
gradients of its own. Those are added up in a fixed order, so that a resumed run ends with the same bits.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, TypeVar

from torch import nn

from oneiro.learning.batch import Example
from oneiro.learning.distributed.data_parallel import portions

if TYPE_CHECKING:
    from oneiro.learning.learner import Learner, Statistics

Module = TypeVar("Module", bound=nn.Module)


class ThreadParallel:
    """Copies of a learner, with a thread for each."""

    def __init__(self, learner: Learner, threads: int) -> None:
        self.copies = [_copy(learner) for _ in range(threads - 1)]
        self.pool = ThreadPoolExecutor(threads - 1)

    def accumulate(self, learner: Learner, scaled: Sequence[Example]) -> Statistics:
        """What `accumulate_part` of the learner itself does, with its copies."""
        for other in self.copies:
            for own, shared in zip(_parameters(other), _parameters(learner), strict=True):
                own.data, own.grad = shared.data, None  # a checkpoint may have brought other tensors
        first, *parts = ([scaled[i] for i in places] for places in portions(scaled, 1 + len(self.copies)))
        tasks = [self.pool.submit(o.accumulate_part, part) for o, part in zip(self.copies, parts, strict=True)]
        try:
            statistics = learner.accumulate_part(first)
        finally:
            wait(tasks)  # nobody else may touch the copies meanwhile
        for other, task in zip(self.copies, tasks, strict=True):
            statistics.merge(task.result())
            for own, shared in zip(_parameters(other), _parameters(learner), strict=True):
                if own.grad is not None:
                    shared.grad = own.grad if shared.grad is None else shared.grad.add_(own.grad)
        return statistics


def _copy(learner: Learner) -> Learner:
    """A learner of the same weights, which computes gradients and steps nowhere."""
    other = copy.copy(learner)
    other.backbone = other.computes = _share(learner.backbone)
    other.value_head = None if learner.value_head is None else _share(learner.value_head)
    return other


def _share(module: Module) -> Module:
    """A copy of a module whose parameters are others with the same weights."""
    copies: dict[int, object] = {id(b): b for b in module.buffers()}
    copies |= {id(p): nn.Parameter(p.data, requires_grad=p.requires_grad) for p in module.parameters()}
    for layer in module.modules():
        if getattr(layer, "fused", False):
            copies[id(vars(layer)["projections"])] = [], []  # views of the whole weights, which would be copied
    return copy.deepcopy(module, copies)


def _parameters(learner: Learner) -> list[nn.Parameter]:
    heads = [] if learner.value_head is None else list(learner.value_head.parameters())
    return [*learner.backbone.parameters(), *heads]
