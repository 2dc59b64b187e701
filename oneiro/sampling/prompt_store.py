"""Prompts that several rows continue, on a GPU: kept once, and read once a step for all their rows.

Attention has two parts. The prompt's is one product for all queries of the rows that share it, in *tiles* of a prompt
and up to 16 of its rows; a row's own part begins where the prompt ends. Each part says what it mixed and the logarithm
of its weights' sum, in float32, and these are merged. Shapes stay the same whoever shares what, so that a step can be
recorded as a CUDA graph.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from oneiro.episode import PrefixGroup
from oneiro.models.attention import PLAIN, Rule
from oneiro.models.backbone import Backbone
from oneiro.sampling.prefixes import NONE, KVCache

MOST_QUERIES = 128
"""Queries of a tile, one key head's: what the registers of a multiprocessor hold."""
LEAST_CHUNK = 128
"""A prompt is cut into chunks that are read side by side, none shorter than this."""
PROGRAMS = 264
"""Chunks of all tiles and heads that keep a GPU busy: two for each of 132 multiprocessors."""


@dataclass(frozen=True, slots=True)
class Share:
    """What a row has in common with others: the first `length` tokens of its prompt, with everybody in `group`."""

    group: int = NONE
    length: int = 0


class PromptStore:
    """Keys and values of up to `prompts` prompts of `capacity` tokens, and which of `rows` rows continue which."""

    def __init__(self, backbone: Backbone, rows: int, prompts: int, capacity: int) -> None:
        shape, device = backbone.shape, backbone.device
        self.prompts, self.capacity, self.heads = prompts, capacity, shape.kv_heads
        size = (prompts, shape.kv_heads, capacity, shape.head_dim)
        self.kv_cache: KVCache = [
            (backbone.head_weight.new_zeros(size), backbone.head_weight.new_zeros(size)) for _ in range(shape.layers)
        ]
        self.length = torch.zeros(prompts, dtype=torch.long, device=device)
        self.longest = 1
        """The most tokens of a prompt that this call has stored."""
        self.start = torch.zeros(rows, dtype=torch.long, device=device)
        """[rows] how many of a row's first positions are in the store; 0 for a row that has them itself."""
        self.used = False
        """Whether a row of this call has ever had its prompt here."""
        self.places: dict[int, int] = {}
        """Where the prompt of each group of rows lies."""
        self.place_of = np.full(rows, NONE)
        """[rows] the place of a row's prompt."""
        self.members = max(1, min(16, MOST_QUERIES // max(1, shape.heads // shape.kv_heads)))
        """Rows of a tile."""
        most = min(rows, prompts + rows // self.members)
        self.tile_prompt = torch.full((most,), NONE, dtype=torch.int32, device=device)
        self.tile_rows = torch.full((most, self.members), NONE, dtype=torch.int32, device=device)
        self._tiles: tuple[int, int] | None = None

    def clear(self) -> None:
        self.used, self.longest = False, 1
        self.places = {}
        self.place_of.fill(NONE)
        self.start.fill_(0)
        self._tiles = None

    @property
    def free(self) -> int:
        """How many more prompts fit."""
        return self.prompts - len(self.places)

    def admit(self, slots: slice, kv_cache: KVCache, owner: Tensor, shares: Sequence[Share]) -> None:
        """Rows `slots` continue prompts `owner` [n] of a prefilled batch and share their beginnings as `shares` [n]
        says.
        """
        groups, shared = [share.group for share in shares], [share.length for share in shares]
        free = iter(sorted(set(range(self.prompts)) - set(self.places.values())))
        first: dict[int, int] = {}
        for i, group in enumerate(groups):
            first.setdefault(group, i)
        fresh = [i for group, i in first.items() if group != NONE and group not in self.places]
        self.places.update((groups[i], next(free)) for i in fresh)
        self.place_of[slots] = [self.places.get(group, NONE) for group in groups]
        self.start[slots] = torch.tensor(shared, device=self.start.device)
        self._tiles = None
        if not fresh:
            return
        self.used = True
        places, lengths = [self.places[groups[i]] for i in fresh], [shared[i] for i in fresh]
        where = torch.tensor(places, device=self.length.device)
        self.length[where] = torch.tensor(lengths, device=self.length.device)
        sources, width = owner[torch.tensor(fresh, device=owner.device)], max(lengths)
        self.longest = max(self.longest, width)
        for mine, theirs in zip(self.kv_cache, kv_cache, strict=True):
            for stored, computed in zip(mine, theirs, strict=True):
                stored[where, :, :width] = computed[sources, :, :width]

    def move(self, sources: Tensor, targets: Tensor) -> None:
        self.start[targets] = self.start[sources]
        self.place_of[targets.cpu().numpy()] = self.place_of[sources.cpu().numpy()]
        self._tiles = None

    def keep(self, rows: int) -> None:
        """Only the first `rows` rows go on; prompts of nobody else make room."""
        self.place_of[rows:] = NONE
        held = set(self.place_of[:rows].tolist())
        self.places = {group: place for group, place in self.places.items() if place in held}
        self._tiles = None

    def tiles(self) -> tuple[int, int]:
        """(Tiles, tokens of a chunk), both in few distinct sizes; writes the tiles down."""
        if self._tiles is None:
            tiles: list[tuple[int, list[int]]] = []
            for place in self.places.values():
                rows = np.flatnonzero(self.place_of == place).tolist()
                tiles += [(place, rows[i : i + self.members]) for i in range(0, len(rows), self.members)]
            prompt = np.full(len(self.tile_prompt), NONE, np.int32)
            tile_rows = np.full(self.tile_rows.shape, NONE, np.int32)
            for number, (place, rows) in enumerate(tiles):
                prompt[number], tile_rows[number, : len(rows)] = place, rows
            self.tile_prompt.copy_(torch.from_numpy(prompt))
            self.tile_rows.copy_(torch.from_numpy(tile_rows))
            count = min(len(prompt), power_of_two(len(tiles)))
            self._tiles = count, chunk_tokens(self.longest, count * self.heads)
        return self._tiles


def power_of_two(size: int) -> int:
    """The least one that is no smaller."""
    return 1 << max(0, size - 1).bit_length()


def chunk_tokens(longest: int, programs: int) -> int:
    """How long the chunks are into which prompts are cut, where each is read by so many programs."""
    longest = max(LEAST_CHUNK, power_of_two(longest))
    chunks = min(longest // LEAST_CHUNK, power_of_two(-(-PROGRAMS // programs)))
    return longest // chunks


class ContinueStored:
    """Attention plan of a step whose rows may continue stored prompts: a row's own cache begins where those end."""

    def __init__(self, kv_cache: KVCache, position: Tensor, store: PromptStore, kernels: Any) -> None:
        self.kv_cache, self.position, self.store, self.kernels = kv_cache, position, store, kernels
        tiles, self.chunk = store.tiles()
        self.start = store.start[: len(position)]
        self.tile_prompt, self.tile_rows = store.tile_prompt[:tiles], store.tile_rows[:tiles]
        self._parts: tuple[Tensor, Tensor] | None = None

    def __call__(self, layer: int, query: Tensor, key: Tensor, value: Tensor, rule: Rule = PLAIN) -> Tensor:
        keys, values = self.kv_cache[layer]
        stored_keys, stored_values = self.store.kv_cache[layer]
        # Query heads that share a key head become that head's queries: grouped attention without repeating keys.
        grouped = query.reshape(len(query), keys.shape[1], -1, query.shape[-1])
        of_prompts = (grouped, stored_keys, stored_values, self.store.length, self.tile_prompt, self.tile_rows)
        if self.kernels:
            if self._parts is None:  # room that all layers use in turn
                chunks = -(-stored_keys.shape[2] // self.chunk)
                room = grouped.new_empty((*grouped.shape[:3], chunks, grouped.shape[3]), dtype=torch.float32)
                self._parts = room, room.new_empty(room.shape[:4])
            parts = self._parts
            self.kernels.attend_prompts(*of_prompts, self.position, rule, self.chunk, *parts)
            of_rows = (grouped, key, value, keys, values, self.position, rule)
            mixed: Tensor = self.kernels.attend(*of_rows, (self.start, self.chunk, *parts))
            return mixed.view_as(query)
        at = self.position - self.start
        every = torch.arange(len(at), device=at.device)
        keys[every, :, at], values[every, :, at] = key[:, :, 0], value[:, :, 0]
        back = at[:, None] - torch.arange(keys.shape[2], device=at.device)
        own = attend_part(
            grouped, keys[: len(at)], values[: len(at)], visible(back, back >= 0, rule)[:, None, None], rule
        )
        return merge([attend_prompts(*of_prompts, self.position, rule), own], rule).to(query.dtype).view_as(query)


Part = tuple[Tensor, Tensor]
"""What queries mixed of some keys, float32 [..., D], and the logarithm of the sum of their weights there [...]."""


def visible(back: Tensor, there: Tensor, rule: Rule) -> Tensor:
    """Whether what lies so far `back`, and is `there` at all, is seen."""
    return there if rule.window is None else there & (back < rule.window)


def attend_part(query: Tensor, keys: Tensor, values: Tensor, seen: Tensor, rule: Rule) -> Part:
    """Attention of queries [B, K, g, D] to some of their keys, values [B, K, S, D]."""
    scores = (query * query.shape[-1] ** -0.5 @ keys.transpose(-1, -2)).float()
    if rule.softcap is not None:
        scores = rule.softcap * torch.tanh(scores / rule.softcap)
    scores = scores.masked_fill(~seen, -torch.inf)
    total = scores.logsumexp(-1)
    # Where nothing is seen the sum is 0, its logarithm -inf, and nothing is mixed.
    weights = (scores - total[..., None].clamp(min=torch.finfo(torch.float32).min)).exp()
    return (weights.to(values.dtype) @ values).float(), total


def attend_prompts(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    length: Tensor,
    tile_prompt: Tensor,
    tile_rows: Tensor,
    position: Tensor,
    rule: Rule,
) -> Part:
    """Attention of queries [R, K, g, D] to the stored prompts [P, K, capacity, D] of `length` [P]; rows in no tile
    [T, members] mix nothing.
    """
    rows, heads, group, dim = query.shape
    prompt, members = tile_prompt.clamp(min=0).long(), tile_rows.clamp(min=0).long()
    tiles, count = members.shape
    gathered = query[members].transpose(1, 2).reshape(tiles, heads, count * group, dim)
    at = torch.arange(keys.shape[2], device=query.device)
    back = position[members][..., None] - at
    seen = visible(back, (at < length[prompt][:, None])[:, None], rule).expand(tiles, count, -1)
    seen = seen.repeat_interleave(group, 1)[:, None]
    mixed, total = attend_part(gathered, keys[prompt], values[prompt], seen, rule)
    # One row more than there are: there go seats that nobody takes.
    target = torch.where((tile_rows >= 0) & (tile_prompt >= 0)[:, None], members, rows).flatten()
    all_mixed, all_total = (
        mixed.new_zeros(rows + 1, heads, group, dim),
        total.new_full((rows + 1, heads, group), -torch.inf),
    )
    all_mixed[target] = mixed.view(tiles, heads, count, group, dim).transpose(1, 2).flatten(0, 1)
    all_total[target] = total.view(tiles, heads, count, group).transpose(1, 2).flatten(0, 1)
    return all_mixed[:rows], all_total[:rows]


def merge(parts: Sequence[Part], rule: Rule) -> Tensor:
    """Attention [R, K, g, D] to all keys, from parts of which at least one sees something."""
    totals = torch.stack([total for _, total in parts])
    whole = totals.logsumexp(0)
    if rule.sinks is not None:
        whole = torch.logaddexp(whole, rule.sinks.float().view(whole.shape[1:]))
    weights = (totals - whole).exp()
    return (torch.stack([mixed for mixed, _ in parts]) * weights[..., None]).sum(0)


@dataclass(frozen=True, slots=True)
class _Piece:
    """Neighbours among sorted prompts: the first and the last, how they are grouped, how many tokens that spares."""

    first: int
    last: int
    groups: list[PrefixGroup]
    spared: int


def common_prefixes(prompts: Sequence[NDArray[np.integer]], copies: int, least: int) -> list[PrefixGroup]:
    """Group prompts that begin with the same `least` tokens or more, whatever follows; each has `copies` rows.

    Neighbours among sorted prompts join, those with most in common first, where one group spares as many tokens as
    the groups they are in. Prompts with nobody to share with are in no group.
    """
    order = sorted(range(len(prompts)), key=lambda i: prompts[i].tobytes())
    alone = [PrefixGroup(len(prompts[i]), [i]) for i in order]
    pieces = [
        _Piece(k, k, [group], (copies - 1) * group.length if group.length >= least else 0)
        for k, group in enumerate(alone)
    ]
    common = [common_length(prompts[i], prompts[k]) for i, k in itertools.pairwise(order)]
    for k in sorted(range(len(common)), key=lambda k: -common[k]):
        if common[k] < least:
            break
        left, right = pieces[k], pieces[k + 1]
        first, last = left.first, right.last
        groups, spared = left.groups + right.groups, left.spared + right.spared
        together = (copies * (last + 1 - first) - 1) * common[k]
        if together >= spared:
            groups, spared = [PrefixGroup(common[k], order[first : last + 1])], together
        # Only the ends of a piece are ever asked.
        pieces[first] = pieces[last] = _Piece(first, last, groups, spared)
    groups, k = [], 0
    while k < len(order):
        groups += pieces[k].groups
        k = pieces[k].last + 1
    return [group for group in groups if group.length >= least and copies * len(group.rows) > 1]


def common_length(one: NDArray[np.integer], other: NDArray[np.integer]) -> int:
    """How many tokens two prompts have in common at the beginning."""
    shorter = min(len(one), len(other))
    differ = one[:shorter] != other[:shorter]
    return int(differ.argmax()) if differ.any() else shorter
