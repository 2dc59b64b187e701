"""What the learner learns from: rows with one number per token for every loss component, laid out in micro-batches.

Rows that begin with the same given tokens, a prefix group, share the computation of that prefix. On a CPU the prefix is
laid out once and the rows continue it; rows of like length stand together, right-padded, so that little is wasted. On a
GPU a group is one sequence, the prefix and then row after row: one pass, nothing padded but its end.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from oneiro.episode import Floats, PrefixGroup, Row, SamplingParams, Tokens, group_by_prefix
from oneiro.models.attention import AfterPrefix, Causal, Prefill, PrefixGroups
from oneiro.models.backbone import Backbone
from oneiro.runtime.errors import OneiroError

COMPONENTS = ("policy", "ce", "kl")


@dataclass(slots=True)
class Example:
    """One row ready for learning. Every array is [T], aligned with `tokens`; a token's number is for predicting it."""

    tokens: Tokens
    weights: dict[str, Floats]
    logprobs: Floats
    """As the sampler recorded them, before truncation; 0 on given tokens."""
    temperature: Floats
    """What sampled tokens were drawn at; 1 on given ones."""
    acts: NDArray[np.bool_]
    """True on what the agent said: the tokens that algorithms see."""
    prefix: int = 0
    """Leading tokens that carry no loss and may be shared with other rows."""
    sampling: SamplingParams = field(default_factory=SamplingParams)
    """How its sampled tokens were drawn."""
    columns: dict[str, Floats] = field(default_factory=dict)
    """advantages, reference, values, returns; old and correction: added by `update`."""

    @classmethod
    def of(cls, row: Row) -> Example:
        if not row.temperature:
            raise OneiroError("greedy samples cannot be learned from: set sampling.temperature above 0")
        weights = {name: row.weights(name) for name in COMPONENTS}
        for values in weights.values():
            values[:1] = 0  # nothing predicts the first token
        temperature = np.where(row.sampled, row.temperature, 1).astype(np.float32)
        return cls(row.tokens, weights, row.logprobs, temperature, row.acts, len(row.prefix), sampling_of(row))

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def shared(self) -> Tokens:
        """The prefix that a group computes once. Its last token stays with the row: it predicts the first own one."""
        return self.tokens[: max(0, self.prefix - 1)]


def sampling_of(row: Row) -> SamplingParams:
    """How the tokens of a row were drawn; one row has one way."""
    params = {segment.params for segment in row.segments if segment.params is not None}
    if len(params) > 1:
        raise ValueError("one row mixes ways of sampling")
    return params.pop() if params else SamplingParams()


def prefix_groups(examples: Sequence[Example]) -> list[PrefixGroup]:
    return group_by_prefix(example.shared for example in examples)


def gather(examples: Sequence[Example], arrays: Iterable[Floats]) -> Floats:
    """Arrays [T] of the rows of one episode -> their numbers at the agent's own tokens, row after row."""
    return np.concatenate([array[example.acts] for example, array in zip(examples, arrays, strict=True)])


def scatter(examples: Sequence[Example], column: str, values: Floats) -> None:
    """The inverse of `gather`: numbers of the agent's own tokens into a column of their rows, 0 elsewhere."""
    start = 0
    for example in examples:
        end = start + int(example.acts.sum())
        example.columns[column] = np.zeros(len(example), np.float32)
        example.columns[column][example.acts] = values[start:end]
        start = end


# Micro-batches --------------------------------------------------------------------------------------------------------

SHARE_AT_LEAST = 0.2
"""Share prefixes when that saves at least this part of the tokens; below it a second pass costs more than it saves."""
MAX_GROUP_TOKENS = 4096
"""Tokens of a group in one sequence: where attention needs a mask, the mask has that many squared."""
ALIGNED = 8
"""What the length of a sequence is a multiple of where its mask is given: fast attention kernels ask for it."""

Device = torch.device | str


@dataclass(frozen=True, slots=True)
class Batch:
    """A micro-batch: padded tokens [B, R], and flat columns over the N tokens that carry loss. Subclasses say how the
    rows see each other.
    """

    tokens: Tensor
    where: Tensor
    """[N] flat indices into B*R whose hidden state predicts a target."""
    targets: Tensor
    """[N]"""
    columns: dict[str, Tensor]
    """name -> [N]"""
    places: list[tuple[int, np.ndarray]]
    """For every row its index in the caller's list and the positions its N-part came from, in order."""

    def hidden(self, backbone: Backbone) -> Tensor:
        """Hidden states [N, d] at the positions that predict a target."""
        raise NotImplementedError

    @property
    def rows(self) -> Tensor:
        """[N]: the row of each token, counted from 0."""
        counts = torch.tensor([len(at) for _, at in self.places])
        return torch.repeat_interleave(counts).to(self.where.device)

    @property
    def computed_tokens(self) -> int:
        """Padded positions pushed through the blocks."""
        return self.tokens.numel()


@dataclass(frozen=True, slots=True)
class SeparateRows(Batch):
    """Every row stands alone."""

    def hidden(self, backbone: Backbone) -> Tensor:
        positions = torch.arange(self.tokens.shape[1], device=self.tokens.device)
        return backbone(self.tokens, positions, Causal(), self.where)


@dataclass(frozen=True, slots=True)
class RowsAfterPrefix(Batch):
    """Rows that continue prefixes which are computed before them."""

    start: Tensor
    """[B] position of each row's first token: the length of its prefix."""
    prefixes: Tensor
    """[G, P], right-padded."""
    lengths: Tensor
    """[G]"""
    owner: Tensor
    """[B] which prefix a row continues."""

    def hidden(self, backbone: Backbone) -> Tensor:
        prefill, width = Prefill(), self.tokens.shape[1]
        positions = torch.arange(width, device=self.tokens.device)
        # Of a prefix only keys and values are used, nothing that comes out of the last layer.
        nothing = self.owner[:0]
        backbone(self.prefixes, torch.arange(self.prefixes.shape[1], device=positions.device), prefill, nothing)
        after = AfterPrefix(prefill.kv_cache, self.owner, self.lengths, width)
        return backbone(self.tokens, self.start[:, None] + positions, after, self.where)

    @property
    def computed_tokens(self) -> int:
        return self.tokens.numel() + self.prefixes.numel()


@dataclass(frozen=True, slots=True)
class PackedGroups(Batch):
    """Every sequence is a prefix group: the prefix, then row after row."""

    row_id: Tensor
    """[B, R]: 0 for the prefix, 1, 2, ... for the rows, -1 for padding."""
    positions: Tensor
    """[B, R]: every row continues the prefix."""

    def hidden(self, backbone: Backbone) -> Tensor:
        return backbone(self.tokens, self.positions, PrefixGroups(self.row_id, backbone.dtype), self.where)


def batches(
    examples: Sequence[Example],
    budget: int,
    device: Device = "cpu",
    share: bool | None = None,
    packed: bool | None = None,
) -> Iterator[Batch]:
    """Lay examples out in micro-batches of at most `budget` padded tokens.

    `share` forces or forbids prefix sharing; `packed` says whether a group is one sequence, by default on a GPU.
    """
    packed = torch.device(device).type == "cuda" if packed is None else packed
    groups = prefix_groups(examples)
    if share is None:
        saved = sum(group.length * (len(group.rows) - 1) for group in groups)
        share = saved >= SHARE_AT_LEAST * sum(len(e) for e in examples)
    if not share:
        # By length, so that rows of a batch are padded little; by number where lengths are equal, so that the order is
        # fixed.
        alone = [PrefixGroup(0, [i]) for i in sorted(range(len(examples)), key=lambda i: (len(examples[i]), i))]
        for chunk in pack(alone, examples, budget):
            yield separate_rows(examples, chunk, device)
        return
    # A group larger than the budget is cut; the cut parts compute their prefix again.
    most = min(budget, MAX_GROUP_TOKENS) if packed else budget
    groups = [piece for group in groups for piece in cut(group, examples, most)]
    if packed:
        groups.sort(key=lambda group: (packed_length(examples, group), group.rows[0]))
        for chunk in pack_sequences(groups, examples, budget):
            yield packed_groups(examples, chunk, device)
        return
    groups.sort(key=lambda group: (group.length, max(len(examples[i]) for i in group.rows), group.rows[0]))
    for chunk in pack(groups, examples, budget):
        yield rows_after_prefix(examples, chunk, device)


def packed_length(examples: Sequence[Example], group: PrefixGroup) -> int:
    return group.length + sum(len(examples[i]) - group.length for i in group.rows)


def cut(group: PrefixGroup, examples: Sequence[Example], budget: int) -> Iterator[PrefixGroup]:
    """Parts of a group that fit into the budget, each of one row at least."""
    start, spent = 0, group.length
    for place, row in enumerate(group.rows):
        size = len(examples[row]) - group.length
        if place > start and spent + size > budget:
            yield PrefixGroup(group.length, group.rows[start:place])
            start, spent = place, group.length
        spent += size
    yield PrefixGroup(group.length, group.rows[start:])


def pack_sequences(
    groups: Iterable[PrefixGroup], examples: Sequence[Example], budget: int
) -> Iterator[list[PrefixGroup]]:
    """Greedy packing of groups as sequences, shortest first, under a padded-token budget."""
    chunk: list[PrefixGroup] = []
    for group in groups:
        # Groups come shortest first, so the new one sets the width of all.
        if chunk and (len(chunk) + 1) * packed_length(examples, group) > budget:
            yield chunk
            chunk = []
        chunk.append(group)
    if chunk:
        yield chunk


def pack(groups: Iterable[PrefixGroup], examples: Sequence[Example], budget: int) -> Iterator[list[PrefixGroup]]:
    """Greedy packing of groups, rows with one prefix each, under a padded-token budget."""
    chunk: list[PrefixGroup] = []
    longest = prefix = rows = 0
    for group in groups:
        own = max(len(examples[i]) for i in group.rows) - group.length
        # Rows and prefixes are padded apart, each to its own longest.
        grown = (rows + len(group.rows)) * max(longest, own) + (len(chunk) + 1) * max(prefix, group.length)
        if chunk and grown > budget:
            yield chunk
            chunk, longest, prefix, rows = [], 0, 0, 0
        chunk.append(group)
        longest, prefix, rows = max(longest, own), max(prefix, group.length), rows + len(group.rows)
    if chunk:
        yield chunk


# From groups to tensors -----------------------------------------------------------------------------------------------


def separate_rows(examples: Sequence[Example], groups: list[PrefixGroup], device: Device) -> Batch:
    tokens, begins = _pad(examples, groups)
    return SeparateRows(**_columns(examples, groups, tokens, begins, device))


def rows_after_prefix(examples: Sequence[Example], groups: list[PrefixGroup], device: Device) -> Batch:
    tokens, begins = _pad(examples, groups)
    prefixes = np.zeros((len(groups), max(1, *(group.length for group in groups))), np.int64)
    for g, group in enumerate(groups):
        prefixes[g, : group.length] = examples[group.rows[0]].tokens[: group.length]
    return RowsAfterPrefix(
        **_columns(examples, groups, tokens, begins, device),
        start=torch.tensor([group.length for group in groups for _ in group.rows], device=device),
        prefixes=_tensor(prefixes, device),
        lengths=torch.tensor([group.length for group in groups], device=device),
        owner=torch.tensor([g for g, group in enumerate(groups) for _ in group.rows], device=device),
    )


def packed_groups(examples: Sequence[Example], groups: list[PrefixGroup], device: Device) -> Batch:
    width = max(packed_length(examples, group) for group in groups)
    width += -width % ALIGNED
    tokens, positions = np.zeros((len(groups), width), np.int64), np.zeros((len(groups), width), np.int64)
    row_id = np.full((len(groups), width), -1, np.int64)
    begins = []
    for g, group in enumerate(groups):
        at = start = group.length
        tokens[g, :start] = examples[group.rows[0]].tokens[:start]
        positions[g, :start], row_id[g, :start] = np.arange(start), 0
        for number, i in enumerate(group.rows, 1):
            # Where position 0 would stand if the row had its prefix in front of it: positions then count as in the
            # example.
            begins.append(g * width + at - start)
            own = slice(at, at + len(examples[i]) - start)
            tokens[g, own] = examples[i].tokens[start:]
            positions[g, own], row_id[g, own] = np.arange(start, len(examples[i])), number
            at = own.stop
    columns = _columns(examples, groups, tokens, begins, device)
    return PackedGroups(**columns, row_id=_tensor(row_id, device), positions=_tensor(positions, device))


def _pad(examples: Sequence[Example], groups: list[PrefixGroup]) -> tuple[np.ndarray, list[int]]:
    """The rows' own tokens [B, R], right-padded, and where each row's position 0 would stand in the flat tokens."""
    rows = [(i, group.length) for group in groups for i in group.rows]
    width = max(len(examples[i]) - start for i, start in rows)
    tokens = np.zeros((len(rows), width), np.int64)
    for b, (i, start) in enumerate(rows):
        tokens[b, : len(examples[i]) - start] = examples[i].tokens[start:]
    return tokens, [b * width - start for b, (_, start) in enumerate(rows)]


def _columns(
    examples: Sequence[Example], groups: list[PrefixGroup], tokens: np.ndarray, begins: list[int], device: Device
) -> dict[str, Any]:
    """What every batch has: `begins` says where a row's position 0 stands, or would stand, in the flat tokens."""
    order = [row for group in groups for row in group.rows]
    rows = [examples[i] for i in order]
    lengths = np.array([len(row) for row in rows])
    starts = np.cumsum(lengths) - lengths
    every = {name: np.concatenate([row.weights[name] for row in rows]) for name in COMPONENTS}
    every["logprobs"] = np.concatenate([row.logprobs for row in rows])
    every["temperature"] = np.concatenate([row.temperature for row in rows])
    for name in sorted({name for row in rows for name in row.columns}):
        every[name] = np.concatenate([row.columns[name] for row in rows])
    # Only tokens that carry loss go through the output layer, which is the widest of all.
    active = np.flatnonzero(np.logical_or.reduce([every[name] != 0 for name in COMPONENTS]))
    owner = np.searchsorted(starts, active, side="right") - 1
    at = active - starts[owner]
    ends = np.searchsorted(owner, np.arange(1, len(rows)))
    return {
        "tokens": _tensor(tokens, device),
        "where": _tensor(np.asarray(begins)[owner] + at - 1, device),  # the hidden state before a token predicts it
        "targets": _tensor(np.concatenate([row.tokens for row in rows])[active].astype(np.int64), device),
        "columns": {name: _tensor(values[active], device) for name, values in every.items()},
        "places": list(zip(order, np.split(at, ends), strict=True)),
    }


def _tensor(array: np.ndarray, device: Device) -> Tensor:
    return torch.from_numpy(array).to(device)
