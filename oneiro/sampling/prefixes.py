"""Prompts that several rows continue, on a CPU: their keys and values are kept once and read once a step for all."""

from __future__ import annotations

import torch
from torch import Tensor

from oneiro.models.attention import PLAIN, Rule, weights

NONE = -1  # the row shares no prompt
KVCache = list[tuple[Tensor, Tensor]]
"""Keys and values [B, K, T, D] of every layer."""
Index = Tensor | slice


class Sharing:
    """Which rows continue which shared prompt."""

    def __init__(self, rows: int) -> None:
        self.start = torch.zeros(rows, dtype=torch.long)
        """[rows] how many of a row's first positions are in a shared prompt; 0 for a row that has them itself."""
        self.batch = torch.full((rows,), NONE)
        """[rows] the prefilled batch that prompt belongs to."""
        self.owner = torch.zeros(rows, dtype=torch.long)
        """[rows] the prompt's place in it."""
        self.prefixes: dict[int, Prefixes] = {}
        self._seated = 0

    def clear(self) -> None:
        self.prefixes = {}
        self.batch.fill_(NONE)
        self.start.fill_(0)

    def admit(self, slots: slice, kv_cache: KVCache, owner: Tensor, lengths: Tensor) -> bool:
        """Let n rows `slots` share prompts `owner` [n] of `lengths` [n]; False if copying those suits them better.

        Sharing pays where rows come in groups of like size.
        """
        self._seated = 0
        prompts, largest = len(kv_cache[0][0]), int(torch.bincount(owner).max())
        if len(owner) < 2 * prompts or prompts * largest > 2 * len(owner):
            self.batch[slots], self.start[slots] = NONE, 0
            return False
        known = [number for number, prefixes in self.prefixes.items() if prefixes.source is kv_cache]
        number = known[0] if known else max(self.prefixes, default=NONE) + 1
        if not known:
            self.prefixes[number] = Prefixes(
                kv_cache, torch.ones(prompts, dtype=torch.long).scatter_(0, owner, lengths)
            )
        self.batch[slots], self.owner[slots], self.start[slots] = number, owner, lengths
        return True

    def move(self, sources: Tensor, targets: Tensor) -> None:
        self._seated = 0
        for tensor in (self.batch, self.owner, self.start):
            tensor[targets] = tensor[sources]

    def seat_rows(self, rows: int) -> list[Prefixes]:
        """The prompts that the first `rows` rows share, each knowing its rows; prompts nobody continues are dropped."""
        if self._seated != rows:
            for number, prefixes in list(self.prefixes.items()):
                own = torch.nonzero(self.batch[:rows] == number)[:, 0]
                if len(own):
                    prefixes.seat(own, self.owner[own])
                else:
                    del self.prefixes[number]
            self._seated = rows
        return list(self.prefixes.values())


class Prefixes:
    """A prefilled batch of G prompts, padded to P tokens, and the rows that continue them."""

    def __init__(self, kv_cache: KVCache, lengths: Tensor) -> None:
        """`lengths` [G]: how much of each prompt is real."""
        self.source = kv_cache
        self.kv_cache = [(key.contiguous().flatten(0, 1), value.contiguous().flatten(0, 1)) for key, value in kv_cache]
        self.prompts, self.heads, self.padded, _ = kv_cache[0][0].shape
        beyond = torch.arange(self.padded) >= lengths[:, None]
        bias = torch.zeros(beyond.shape, dtype=kv_cache[0][0].dtype).masked_fill_(beyond, -torch.inf)
        self.bias = bias.repeat_interleave(self.heads, 0)[:, None]
        """[G * K, 1, P]"""

    def seat(self, rows: Tensor, owner: Tensor) -> None:
        """From now on `rows` [n] continue prompts `owner` [n]; G x members seats, those of a group side by side."""
        order = owner.argsort(stable=True)
        rows, owner = rows[order], owner[order]
        counts = torch.bincount(owner, minlength=self.prompts)
        self.members = int(counts.max())
        places = owner * self.members + torch.arange(len(owner)) - (counts.cumsum(0) - counts)[owner]
        # A seat that is not taken holds some row, to no effect.
        seats = rows[:1].repeat(self.prompts * self.members)
        seats[places] = rows
        self.rows: Index = rows
        self.places: Index = places
        """Where each row sits."""
        self.seats: Index = seats
        """Who sits there."""
        if len(rows) == len(seats) and bool((rows == torch.arange(len(rows))).all()):
            # The first rows, in order, all seats taken: views do.
            self.rows = self.places = self.seats = slice(0, len(rows))

    def score(self, layer: int, query: Tensor, scores: Tensor) -> None:
        """Queries [R, K, g, D] against the prompts, into scores [R, K, g, >= P] of the rows seated here."""
        keys = self.kv_cache[layer][0]
        own_scores = torch.baddbmm(self.bias, self._gather(query), keys.transpose(1, 2))
        scores[self.rows, :, :, : self.padded] = self._scatter(own_scores, query.shape[2])

    def mix(self, layer: int, weights: Tensor, mixed: Tensor) -> None:
        """Add the prompts' values, weighted by [R, K, g, >= P], to mixed [R, K, g, D] of the rows seated here."""
        values = self.kv_cache[layer][1]
        own_mixed = torch.bmm(self._gather(weights[..., : self.padded]), values)
        mixed[self.rows] += self._scatter(own_mixed, weights.shape[2])

    def _gather(self, x: Tensor) -> Tensor:
        """[R, K, g, n] -> [G * K, members * g, n]: the members of a group side by side."""
        _, heads, group, size = x.shape
        seated = x[self.seats].view(self.prompts, self.members, heads, group, size)
        return seated.transpose(1, 2).reshape(self.prompts * heads, self.members * group, size)

    def _scatter(self, x: Tensor, group: int) -> Tensor:
        """The inverse, for the rows seated here: [G * K, members * g, n] -> [n rows, K, g, n]."""
        seated = x.view(self.prompts, self.heads, self.members, group, -1).transpose(1, 2)
        return seated.flatten(0, 1)[self.places]


class ContinueShared:
    """The same on a CPU: a row's own cache begins where the prompt it shares ends."""

    def __init__(self, kv_cache: KVCache, position: Tensor, sharing: Sharing) -> None:
        rows = len(position)
        self.kv_cache, self.position, self.prefixes = kv_cache, position, sharing.seat_rows(rows)
        self._far: dict[int, Tensor] = {}
        self.longest = max((prefix.padded for prefix in self.prefixes), default=0)
        self.at = position - sharing.start[:rows]
        self.seen = int(self.at.max()) + 1
        # Rows that began together write to one column and see all of it.
        self.together = int(self.at.min()) + 1 == self.seen
        if not self.together:
            self.every = torch.arange(rows)
            hidden = torch.arange(self.seen) > self.at[:, None]
            self.bias = torch.zeros(hidden.shape).masked_fill_(hidden, -torch.inf)[:, None, None]

    def __call__(self, layer: int, query: Tensor, key: Tensor, value: Tensor, rule: Rule = PLAIN) -> Tensor:
        rows, heads, _, dim = query.shape
        keys, values = (cache[:rows] for cache in self.kv_cache[layer])
        for cache, new in ((keys, key), (values, value)):
            if self.together:
                cache[:, :, self.seen - 1] = new[:, :, 0]
            else:
                cache[self.every, :, self.at] = new[:, :, 0]
        # Query heads that share a key head become that head's queries: grouped attention without repeating keys.
        query = query.reshape(rows, keys.shape[1], -1, dim) * dim**-0.5
        keys, values = keys[:, :, : self.seen].flatten(0, 1), values[:, :, : self.seen].flatten(0, 1)
        scores = torch.bmm(query.flatten(0, 1), keys.transpose(1, 2)).view(*query.shape[:3], self.seen)
        if not self.together:
            scores += self.bias
        if self.prefixes:
            scores = torch.cat([scores.new_full((*query.shape[:3], self.longest), -torch.inf), scores], -1)
            for prefix in self.prefixes:
                prefix.score(layer, query, scores)
        if rule.window is not None and int(self.position.max()) >= rule.window:
            scores = scores.masked_fill(self.far(rule.window)[:, None, None], -torch.inf)
        mixing = weights(scores, rule)
        mixed = torch.bmm(mixing[..., self.longest :].flatten(0, 1), values).view_as(query)
        for prefix in self.prefixes:
            prefix.mix(layer, mixing, mixed)
        return mixed.view(rows, heads, 1, dim)

    def far(self, window: int) -> Tensor:
        """[rows, prompt and own positions]: whether a position lies too far back to be seen."""
        if window not in self._far:
            prompt = self.position[:, None] - torch.arange(self.longest)
            own = self.at[:, None] - torch.arange(self.seen)
            self._far[window] = torch.cat([prompt, own], 1) >= window
        return self._far[window]
