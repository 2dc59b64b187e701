"""Attention, and the plans by which the tokens of a call meet those of earlier calls.

A *plan* belongs to a call: plain rows, rows behind a shared prefix, a cache. A *rule* belongs to a layer: how far back
it looks, whether its scores are capped. Every plan keeps every rule, so a new way to batch is a new plan and a new kind
of layer is a new rule.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from oneiro.models.kernels import triton_module


@dataclass(frozen=True, eq=False, slots=True)
class Rule:
    """What a layer asks of attention besides looking only back."""

    window: int | None = None
    """A token sees itself and the `window - 1` tokens before it; None: all of them."""
    softcap: float | None = None
    """Scores are squeezed into +-softcap by a tanh."""
    sinks: Tensor | None = None
    """[H] a score of every head that takes part in the softmax and adds nothing."""

    @property
    def plain(self) -> bool:
        """Whether the softmax is the usual one."""
        return self.softcap is None and self.sinks is None

    def sees_all(self, length: int) -> bool:
        """Whether the window hides nothing in sequences of up to `length` tokens."""
        return self.window is None or self.window >= length


PLAIN = Rule()


class Attend(Protocol):
    """An attention plan: given this call's queries [B, H, T, D] and keys, values [B, K, T, D], mix [B, H, T, D]."""

    def __call__(self, layer: int, query: Tensor, key: Tensor, value: Tensor, rule: Rule = PLAIN) -> Tensor: ...


class Causal:
    """Rows stand alone: position t sees positions up to t. Right padding needs no mask, nothing real looks at it."""

    def __init__(self) -> None:
        self._bands: dict[int, Tensor] = {}

    def __call__(self, layer: int, query: Tensor, key: Tensor, value: Tensor, rule: Rule = PLAIN) -> Tensor:
        length = query.shape[2]
        if rule.window is None or rule.sees_all(length):
            return attention(query, key, value, rule, causal=True)
        if rule.window not in self._bands:
            ones = torch.ones(length, length, dtype=torch.bool, device=query.device)
            self._bands[rule.window] = ones.tril().triu(1 - rule.window)
        return attention(query, key, value, rule, mask=self._bands[rule.window])


class Prefill(Causal):
    """Causal, and keeps every layer's keys and values, with their graph, for `AfterPrefix` or a cache."""

    def __init__(self) -> None:
        super().__init__()
        self.kv_cache: list[tuple[Tensor, Tensor]] = []

    def __call__(self, layer: int, query: Tensor, key: Tensor, value: Tensor, rule: Rule = PLAIN) -> Tensor:
        self.kv_cache.append((key, value))
        return super().__call__(layer, query, key, value, rule)


class AfterPrefix:
    """Rows that continue a shared prefix: each sees its own prefix's keys and, causally, itself.

    `kv_cache` holds keys and values [G, K, P, D] of G prefixes, `owner` [B] says whose row it is, `lengths` [G] how
    much of each padded prefix is real.
    """

    def __init__(self, kv_cache: list[tuple[Tensor, Tensor]], owner: Tensor, lengths: Tensor, row_length: int) -> None:
        self.kv_cache, self.owner, self.start, self.row_length = kv_cache, owner, lengths[owner, None], row_length
        self.padded = kv_cache[0][0].shape[2]
        self._masks: dict[int | None, Tensor] = {}

    def __call__(self, layer: int, query: Tensor, key: Tensor, value: Tensor, rule: Rule = PLAIN) -> Tensor:
        past_key, past_value = self.kv_cache[layer]
        key = torch.cat([past_key[self.owner], key], dim=2)
        value = torch.cat([past_value[self.owner], value], dim=2)
        window = None if rule.sees_all(self.padded + self.row_length) else rule.window
        if window not in self._masks:
            self._masks[window] = self._mask(window)
        return attention(query, key, value, rule, mask=self._masks[window])

    def _mask(self, window: int | None) -> Tensor:
        """[B, 1, T, P + T] whether a token of a row sees a token of its prefix or of itself."""
        device, rows = self.owner.device, len(self.owner)
        within = torch.arange(self.padded, device=device)
        own = self.start + torch.arange(self.row_length, device=device)
        at = torch.cat([within.expand(rows, -1), own], 1)
        real = torch.cat([within < self.start, torch.ones_like(own, dtype=torch.bool)], 1)
        distance = own[:, :, None] - at[:, None, :]
        seen = real[:, None, :] & (distance >= 0)
        return (seen if window is None else seen & (distance < window))[:, None]


class PrefixGroups:
    """Sequences of a prefix and rows that continue it: a token sees, causally, the prefix and its own row.

    `row_id` [B, T] is 0 in the prefix, the row's number in a row, -1 in padding.
    """

    def __init__(self, row_id: Tensor, dtype: torch.dtype) -> None:
        self.row_id, self.dtype = row_id, dtype
        self.kernels = triton_module("oneiro.models.kernels.prefix_groups", row_id.device.type)
        self._biases: dict[int | None, Tensor] = {}

    def __call__(self, layer: int, query: Tensor, key: Tensor, value: Tensor, rule: Rule = PLAIN) -> Tensor:
        window = None if rule.sees_all(self.row_id.shape[1]) else rule.window
        if self.kernels is not None and window is None and rule.plain and self.kernels.fits(query):
            return self.kernels.group_attention(query, key, value, self.layout)
        heads = query.shape[1]
        if heads != key.shape[1]:  # kernels that take a mask want as many key heads as query heads
            key, value = (x.repeat_interleave(heads // x.shape[1], dim=1) for x in (key, value))
        if window not in self._biases:
            self._biases[window] = self._bias(window)
        return attention(query, key, value, rule, mask=self._biases[window].expand(-1, heads, -1, -1))

    @cached_property
    def layout(self) -> Any:
        """For the kernels: where rows begin and end."""
        return self.kernels.GroupLayout(self.row_id)

    def _bias(self, window: int | None) -> Tensor:
        """For attention with a mask: [B, 1, T, T], -inf where a token may not look."""
        row_id, order = self.row_id, torch.arange(self.row_id.shape[1], device=self.row_id.device)
        seen = (row_id[:, None, :] == 0) | (row_id[:, None, :] == row_id[:, :, None])
        seen &= order[None, :] <= order[:, None]
        if window is not None:
            # A row's first token stands right behind the prefix, wherever the row lies in the sequence.
            edges = F.pad(row_id[:, 1:] != row_id[:, :-1], (1, 0))  # position 0 is itself where it begins
            begin = torch.where(edges, order, 0).cummax(1).values
            prefix = (row_id == 0).sum(1, keepdim=True)
            at = torch.where(row_id == 0, order, prefix + order - begin)
            seen &= at[:, :, None] - at[:, None, :] < window
        return torch.zeros(seen.shape, dtype=self.dtype, device=row_id.device).masked_fill_(~seen, -torch.inf)[:, None]


def attention(
    query: Tensor, key: Tensor, value: Tensor, rule: Rule = PLAIN, causal: bool = False, mask: Tensor | None = None
) -> Tensor:
    """Scaled dot-product attention with grouped key-value heads; the window is part of the mask."""
    grouped = query.shape[1] != key.shape[1]
    if rule.plain:
        return F.scaled_dot_product_attention(query, key, value, attn_mask=mask, is_causal=causal, enable_gqa=grouped)
    heads, shared = query.shape[1], key.shape[1]
    if causal:
        mask = torch.ones(query.shape[2], key.shape[2], dtype=torch.bool, device=query.device).tril()
    query = (query * query.shape[-1] ** -0.5).unflatten(1, (shared, heads // shared))
    scores = query @ key[:, :, None].transpose(-1, -2)
    if mask is not None:
        if mask.dim() == 4:  # [B, 1 or H, T, S]: heads as above
            mask = mask.unflatten(1, (shared, -1)) if mask.shape[1] == heads else mask[:, :, None]
        scores = scores.masked_fill(~mask, -torch.inf) if mask.dtype == torch.bool else scores + mask
    return (weights(scores, rule) @ value[:, :, None]).flatten(1, 2)


def weights(scores: Tensor, rule: Rule) -> Tensor:
    """Scores [B, K, H / K, ..., S], -inf where nothing is seen, -> what each seen token counts."""
    if rule.softcap is not None:
        scores = torch.where(scores == -torch.inf, scores, rule.softcap * torch.tanh(scores / rule.softcap))
    if rule.sinks is None:
        return scores.softmax(-1, dtype=torch.float32).to(scores.dtype)
    sinks = rule.sinks.view(*scores.shape[1:3], *(1 for _ in scores.shape[3:]))
    column = sinks.to(scores.dtype).expand(*scores.shape[:-1], 1)
    return torch.cat([scores, column], -1).softmax(-1, dtype=torch.float32)[..., :-1].to(scores.dtype)
