"""What the learner eats: rows with one number per token for every loss component, laid out in micro-batches.

Rows that begin with the same given tokens, a family, may share the computation of that prefix. On a CPU the prefix is
laid out once and the rows continue it; rows of like length travel together, right-padded, so that little is wasted. On
a GPU a family is one sequence, the prefix and then row after row: one pass, nothing padded but its end.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from oneiro.episode import Floats, Row, Tokens
from oneiro.errors import OneiroError

COMPONENTS = ("policy", "ce", "kl")
SHARE_AT_LEAST = 0.2
"""Share prefixes when that saves at least this part of the tokens; below it a second pass costs more than it saves."""
LONGEST_FAMILY = 4096
"""Tokens of a family in one sequence: where attention needs a mask, it is that long squared."""
ALIGNED = 8
"""What the length of a sequence is a multiple of where its mask is given: fast attention kernels ask for it."""


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
            raise OneiroError("greedy samples cannot be learned from: set sampling.temperature above 0")
        weights = {name: row.weights(name) for name in COMPONENTS}
        for values in weights.values():
            values[:1] = 0  # nothing predicts the first token
        return cls(row.tokens, weights, row.logprobs, len(row.prefix), row.temperature)

    def __len__(self) -> int:
        return len(self.tokens)


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
    row_id: Tensor | None = None
    """[B, R] where each sequence is a family: 0 for its prefix, 1, 2, ... for its rows, -1 for padding."""
    positions: Tensor | None = None
    """[B, R] of tokens in families: every row goes on from the prefix."""

    @property
    def computed_tokens(self) -> int:
        """Padded positions this batch pushes through the blocks."""
        return self.tokens.numel() + (self.prefixes.numel() if self.prefixes is not None else 0)


def batches(
    examples: Sequence[Example],
    budget: int,
    device: torch.device | str = "cpu",
    share: bool | None = None,
    packed: bool | None = None,
) -> Iterator[Batch]:
    """Lay examples out in micro-batches of at most `budget` padded tokens.

    `share` forces or forbids prefix sharing; `packed` says whether a family is one sequence, by default on a GPU.
    """
    packed = torch.device(device).type == "cuda" if packed is None else packed
    families = families_of(examples)
    if share is None:
        saved = sum(shared_length(examples[f[0]]) * (len(f) - 1) for f in families)
        share = saved >= SHARE_AT_LEAST * sum(len(e) for e in examples)
    if share:
        # A family larger than the budget is cut; the cut parts compute their prefix again.
        most = min(budget, LONGEST_FAMILY) if packed else budget
        units = [part for family in families for part in cut(family, examples, most)]
        if packed:
            units.sort(key=lambda u: (family_length(examples, u), u[0]))
            for chunk in fill_families(units, examples, budget):
                yield lay_out_families(examples, chunk, device)
            return
        units.sort(key=lambda u: (shared_length(examples[u[0]]), max(len(examples[i]) for i in u), u[0]))
    else:
        units = [[i] for i in sorted(range(len(examples)), key=lambda i: (len(examples[i]), i))]
    for chunk in fill(units, examples, budget, share):
        yield lay_out(examples, chunk, device, share)


def families_of(examples: Sequence[Example]) -> list[list[int]]:
    """Indices of the rows that begin with the same given tokens, family by family."""
    found: dict[bytes, list[int]] = {}
    for i, example in enumerate(examples):
        found.setdefault(example.tokens[: shared_length(example)].tobytes(), []).append(i)
    return list(found.values())


def shared_length(example: Example) -> int:
    """The last token of a prefix stays with the row: its hidden state predicts the row's first own token."""
    return max(0, example.prefix - 1)


def family_length(examples: Sequence[Example], family: list[int]) -> int:
    """Tokens of a family as one sequence."""
    start = shared_length(examples[family[0]])
    return start + sum(len(examples[i]) - start for i in family)


def fill_families(units: Iterable[list[int]], examples: Sequence[Example], budget: int) -> Iterator[list[list[int]]]:
    """Greedy packing of families, shortest first, under a padded-token budget."""
    chunk: list[list[int]] = []
    for unit in units:
        if chunk and (len(chunk) + 1) * family_length(examples, unit) > budget:
            yield chunk
            chunk = []
        chunk.append(unit)
    if chunk:
        yield chunk


def cut(family: list[int], examples: Sequence[Example], budget: int) -> list[list[int]]:
    parts: list[list[int]] = [[]]
    prefix = shared_length(examples[family[0]])
    spent = prefix
    for i in family:
        size = len(examples[i]) - prefix
        if parts[-1] and spent + size > budget:
            parts.append([])
            spent = prefix
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
    for b, (i, start) in enumerate(zip(members, starts, strict=True)):
        tokens[b, : len(examples[i]) - start] = examples[i].tokens[start:]
    begins = [b * width - start for b, start in enumerate(starts)]
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
        prefixes=prefixes,
        prefix_lengths=lengths,
        owner=owner,
        **what_to_predict(examples, members, begins, device),
    )


def lay_out_families(examples: Sequence[Example], units: list[list[int]], device: torch.device | str) -> Batch:
    """Tensors for families as sequences: the prefix they share, then row after row."""
    width = max(family_length(examples, unit) for unit in units)
    width += -width % ALIGNED
    tokens, positions = np.zeros((len(units), width), np.int64), np.zeros((len(units), width), np.int64)
    row_id = np.full((len(units), width), -1, np.int64)
    begins = []
    for g, unit in enumerate(units):
        at = start = shared_length(examples[unit[0]])
        tokens[g, :start] = examples[unit[0]].tokens[:start]
        positions[g, :start], row_id[g, :start] = np.arange(start), 0
        for number, i in enumerate(unit, 1):
            begins.append(g * width + at - start)
            own = slice(at, at + len(examples[i]) - start)
            tokens[g, own] = examples[i].tokens[start:]
            positions[g, own], row_id[g, own] = np.arange(start, len(examples[i])), number
            at = own.stop
    members = [i for unit in units for i in unit]
    return Batch(
        tokens=torch.from_numpy(tokens).to(device),
        start=torch.zeros(len(units), dtype=torch.long, device=device),
        prefixes=None,
        prefix_lengths=None,
        owner=None,
        row_id=torch.from_numpy(row_id).to(device),
        positions=torch.from_numpy(positions).to(device),
        **what_to_predict(examples, members, begins, device),
    )


def what_to_predict(
    examples: Sequence[Example], members: list[int], begins: list[int], device: torch.device | str
) -> dict[str, Any]:
    """The flat side of a batch: `begins` says where a row's position 0 stands, or would stand, in the flat tokens."""
    rows = [examples[i] for i in members]
    lengths = np.array([len(row) for row in rows])
    starts = np.cumsum(lengths) - lengths
    every = {name: np.concatenate([row.weights[name] for row in rows]) for name in COMPONENTS}
    every["logprobs"] = np.concatenate([row.logprobs for row in rows])
    every["temperature"] = np.repeat(np.array([row.temperature for row in rows], np.float32), lengths)
    for name in sorted({name for row in rows for name in row.columns}):
        every[name] = np.concatenate([row.columns[name] for row in rows])
    active = np.flatnonzero(np.logical_or.reduce([every[name] != 0 for name in COMPONENTS]))
    owner = np.searchsorted(starts, active, side="right") - 1
    at = active - starts[owner]
    ends = np.searchsorted(owner, np.arange(1, len(rows)))
    return {
        "where": torch.from_numpy(np.asarray(begins)[owner] + at - 1).to(device),
        "targets": torch.from_numpy(np.concatenate([row.tokens for row in rows])[active].astype(np.int64)).to(device),
        "columns": {name: torch.from_numpy(values[active]).to(device) for name, values in every.items()},
        "places": list(zip(members, np.split(at, ends), strict=True)),
    }
