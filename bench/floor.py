"""What no program can go below on a machine: bytes that must be read, operations that must be carried out."""

from __future__ import annotations

from dataclasses import dataclass

from bench.measure import Machine
from oneiro.models.backbone import Backbone


@dataclass(frozen=True)
class Work:
    """What a model asks of a machine for one token."""

    body: int
    """Weights of all blocks."""
    head: int
    """Weights of the vocabulary head."""
    width: int
    """Query heads times their dimension."""
    memory: int
    """Numbers a token leaves in the key-value cache, over all layers."""
    layers: int

    @classmethod
    def of(cls, backbone: Backbone) -> Work:
        shape = backbone.shape
        body = sum(p.numel() for p in backbone.blocks.parameters())
        memory = 2 * shape.layers * shape.kv_heads * shape.head_dim
        return cls(body, shape.vocabulary * shape.width, shape.heads * shape.head_dim, memory, shape.layers)

    def operations(self, seen: float, predicted: bool = True) -> float:
        """Forward, for a token that attends to `seen` others: two for each weight, four for each number attended to.

        A token that is not `predicted`, one of a prompt, needs no vocabulary head.
        """
        return 2 * (self.body + predicted * self.head) + 4 * self.layers * self.width * seen


def decoding(work: Work, prompts: int, group: int, prompt: int, new: int, machine: Machine) -> float:
    """Seconds of `new` steps: each reads the weights once, each prompt's cache once and each row's own cache.

    Where arithmetic takes longer than reading, arithmetic counts.
    """
    rows, total = prompts * group, 0.0
    for step in range(new):
        numbers = work.body + work.head + work.memory * (prompts * prompt + rows * step)
        reading = numbers * machine.dtype.itemsize / machine.bandwidth
        total += max(reading, rows * work.operations(prompt + step) / machine.arithmetic)
    return total


def prefill(work: Work, prompts: int, prompt: int, machine: Machine) -> float:
    """Seconds to compute the prompts, each once."""
    return prompts * prompt * work.operations(prompt / 2, predicted=False) / machine.arithmetic


def training(work: Work, rows: int, length: int, machine: Machine) -> float:
    """Seconds of forward and backward: three times the forward's operations."""
    return 3 * rows * length * work.operations(length / 2) / machine.arithmetic
