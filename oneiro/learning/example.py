"""What the learner eats: rows with one number per token for every loss component, laid out in micro-batches.

Rows that begin with the same given tokens may share the computation of that prefix: it is laid out once and the rows
continue it. Rows of like length travel together, right-padded, so that little is wasted on a CPU.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from oneiro.episode import Floats, Row, Tokens
from oneiro.errors import OneiroError

COMPONENTS = ("policy", "ce", "kl")
SHARE_AT_LEAST = 0.2
"""Share prefixes when that saves at least this part of the tokens; below it a second pass costs more than it saves."""


@dataclass(slots=True)
class Example:
    """One row ready for learning. Every array is [T], aligned with `tokens`; a token's number is for predicting it."""

    tokens: Tokens
    weights: dict[str, Floats]
    logprobs: Floats
    prefix: int = 0
    """Leading tokens that carry no loss and may be shared with other rows."""
    temperature: float = 1.0
    columns: dict[str, Floats] = field(default_factory=dict)
    """advantages, reference, values, returns: added by the algorithm."""

    @classmethod
    def of(cls, row: Row) -> Example:
        if not row.temperature:
            raise OneiroError("greedy samples cannot be learned from: set limits.temperature above 0")
        weights = {name: row.weights(name) for name in COMPONENTS}
        for values in weights.values():
            values[:1] = 0  # nothing predicts the first token
        return cls(row.tokens, weights, row.logprobs, len(row.prefix), row.temperature)

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def active(self) -> np.ndarray:
        """Positions that carry any loss."""
        return np.logical_or.reduce([w != 0 for w in self.weights.values()])


@dataclass(slots=True)
class Batch:
    """A micro-batch: padded tokens, the shared prefixes they continue, and flat columns over the N tokens that carry
    loss.
    """

    tokens: Tensor
    """[B, R], right-padded."""
    start: Tensor
    """[B] position of each row's first token: the length of its shared prefix."""
    where: Tensor
    """[N] flat indices into B*R whose hidden state predicts a target."""
    targets: Tensor
    """[N]"""
    columns: dict[str, Tensor]
    """name -> [N]"""
    prefixes: Tensor | None
    """[G, P], right-padded, or None when nothing is shared."""
    prefix_lengths: Tensor | None
    owner: Tensor | None
    """[B] which prefix a row continues."""
    places: list[tuple[int, np.ndarray]]
    """For every row its index in the caller's list and the positions its N-part came from, in order."""

    @property
    def computed_tokens(self) -> int:
        """Padded positions this batch pushes through the blocks."""
        return self.tokens.numel() + (self.prefixes.numel() if self.prefixes is not None else 0)


def batches(
    examples: Sequence[Example], budget: int, device: torch.device | str = "cpu", share: bool | None = None
) -> Iterator[Batch]:
    """Lay examples out in micro-batches of at most `budget` padded tokens. `share` forces or forbids prefix sharing."""
    families: dict[bytes, list[int]] = {}
    for i, example in enumerate(examples):
        families.setdefault(example.tokens[: shared_length(example)].tobytes(), []).append(i)
    if share is None:
        saved = sum(shared_length(examples[f[0]]) * (len(f) - 1) for f in families.values())
        share = saved >= SHARE_AT_LEAST * sum(len(e) for e in examples)
    if share:
        # A family larger than the budget is cut; the cut parts compute their prefix again.
        units = [part for family in families.values() for part in cut(family, examples, budget)]
        units.sort(key=lambda u: (shared_length(examples[u[0]]), max(len(examples[i]) for i in u), u[0]))
    else:
        units = [[i] for i in sorted(range(len(examples)), key=lambda i: (len(examples[i]), i))]
    for chunk in fill(units, examples, budget, share):
        yield lay_out(examples, chunk, device, share)


def shared_length(example: Example) -> int:
    """The last token of a prefix stays with the row: its hidden state predicts the row's first own token."""
    return max(0, example.prefix - 1)


def cut(family: list[int], examples: Sequence[Example], budget: int) -> list[list[int]]:
    parts: list[list[int]] = [[]]
    spent = 0
    for i in family:
        size = len(examples[i]) - shared_length(examples[i])
        if parts[-1] and spent + size > budget:
            parts.append([])
            spent = 0
        parts[-1].append(i)
        spent += size
    return parts


def fill(
    units: Iterable[list[int]], examples: Sequence[Example], budget: int, shared: bool
) -> Iterator[list[list[int]]]:
    """Greedy packing of units, rows with one prefix each, under a padded-token budget."""
    chunk: list[list[int]] = []
    longest = prefix = rows = 0
    for unit in units:
        start = shared_length(examples[unit[0]]) if shared else 0
        own = max(len(examples[i]) for i in unit) - start
        grown = (rows + len(unit)) * max(longest, own) + (len(chunk) + 1) * max(prefix, start)
        if chunk and grown > budget:
            yield chunk
            chunk, longest, prefix, rows = [], 0, 0, 0
        chunk.append(unit)
        longest, prefix, rows = max(longest, own), max(prefix, start), rows + len(unit)
    if chunk:
        yield chunk


def lay_out(examples: Sequence[Example], units: list[list[int]], device: torch.device | str, shared: bool) -> Batch:
    """Tensors for the given units, each a list of rows that share one prefix."""
    members = [i for unit in units for i in unit]
    starts = [shared_length(examples[i]) if shared else 0 for i in members]
    width = max(len(examples[i]) - start for i, start in zip(members, starts, strict=True))
    tokens = np.zeros((len(members), width), np.int64)
    where, targets, places = [], [], []
    names = [*COMPONENTS, "logprobs", "temperature", *sorted({n for i in members for n in examples[i].columns})]
    columns: dict[str, list[np.ndarray]] = {name: [] for name in names}
    for b, (i, start) in enumerate(zip(members, starts, strict=True)):
        example = examples[i]
        tokens[b, : len(example) - start] = example.tokens[start:]
        at = np.flatnonzero(example.active)
        places.append((i, at))
        where.append(b * width + at - start - 1)
        targets.append(example.tokens[at])
        for name in COMPONENTS:
            columns[name].append(example.weights[name][at])
        columns["logprobs"].append(example.logprobs[at])
        columns["temperature"].append(np.full(len(at), example.temperature, np.float32))
        for name in names[len(COMPONENTS) + 2 :]:
            columns[name].append(example.columns[name][at])
    prefixes = lengths = owner = None
    if shared:
        lengths_list = [shared_length(examples[unit[0]]) for unit in units]
        padded = np.zeros((len(units), max(1, *lengths_list)), np.int64)
        for g, (unit, length) in enumerate(zip(units, lengths_list, strict=True)):
            padded[g, :length] = examples[unit[0]].tokens[:length]
        prefixes = torch.from_numpy(padded).to(device)
        lengths = torch.tensor(lengths_list, device=device)
        owner = torch.tensor([g for g, unit in enumerate(units) for _ in unit], device=device)
    return Batch(
        tokens=torch.from_numpy(tokens).to(device),
        start=torch.tensor(starts, device=device),
        where=torch.from_numpy(np.concatenate(where)).to(device),
        targets=torch.from_numpy(np.concatenate(targets).astype(np.int64)).to(device),
        columns={name: torch.from_numpy(np.concatenate(parts)).to(device) for name, parts in columns.items()},
        prefixes=prefixes,
        prefix_lengths=lengths,
        owner=owner,
        places=places,
    )
