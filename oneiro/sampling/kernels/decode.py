"""Attention of one new token a row over a padded key-value cache, reading only what each row has written and sees."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from oneiro.models.attention import PLAIN, Rule


@triton.jit
def _cap(scores, softcap):  # type: ignore[no-untyped-def]
    """softcap * tanh(scores / softcap)"""
    return softcap * (2 * tl.sigmoid(2 * scores / softcap) - 1)


@triton.jit
def _decode(  # type: ignore[no-untyped-def]
    query, new_key, new_value, keys, values, position, sinks, out, scale, window, softcap,
    q_row, q_head, q_group, n_row, n_head, m_row, m_head, k_row, k_head, k_position, o_row, o_head, o_group,
    GROUP: tl.constexpr, PADDED: tl.constexpr, DIM: tl.constexpr, BLOCK: tl.constexpr,
    CAPPED: tl.constexpr, SINKS: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1)
    past = tl.load(position + row)
    group = tl.arange(0, PADDED)
    dim = tl.arange(0, DIM)
    within = group < GROUP
    place = query + row * q_row + head * q_head + group[:, None] * q_group + dim[None, :]
    q = tl.load(place, mask=within[:, None], other=0.0)
    # The new token first: written to the cache, and attended to from registers.
    base = row * k_row + head * k_head
    k_new = tl.load(new_key + row * n_row + head * n_head + dim)
    v_new = tl.load(new_value + row * m_row + head * m_head + dim)
    tl.store(keys + base + past * k_position + dim, k_new)
    tl.store(values + base + past * k_position + dim, v_new)
    highest = tl.sum(q.to(tl.float32) * k_new.to(tl.float32)[None, :], 1) * scale
    if CAPPED:
        highest = _cap(highest, softcap)
    total = tl.full([PADDED], 1.0, tl.float32)
    mixed = tl.zeros([PADDED, DIM], tl.float32) + v_new.to(tl.float32)[None, :]
    if SINKS:
        total += tl.exp(tl.load(sinks + head * GROUP + group, mask=within, other=0.0).to(tl.float32) - highest)
    first = tl.maximum(past - window + 1, 0) // BLOCK * BLOCK
    for start in range(first, past, BLOCK):
        at = start + tl.arange(0, BLOCK)
        seen = (at < past) & (at > past - window)
        cell = base + at[:, None] * k_position + dim[None, :]
        k = tl.load(keys + cell, mask=seen[:, None], other=0.0)
        v = tl.load(values + cell, mask=seen[:, None], other=0.0)
        scores = tl.dot(q, tl.trans(k)).to(tl.float32) * scale
        if CAPPED:
            scores = _cap(scores, softcap)
        scores = tl.where(seen[None, :], scores, float("-inf"))
        new = tl.maximum(highest, tl.max(scores, 1))
        shrink = tl.exp(highest - new)
        weights = tl.exp(scores - new[:, None])
        total = total * shrink + tl.sum(weights, 1)
        mixed = mixed * shrink[:, None] + tl.dot(weights.to(v.dtype), v).to(tl.float32)
        highest = new
    mixed = mixed / total[:, None]
    target = out + row * o_row + head * o_head + group[:, None] * o_group + dim[None, :]
    tl.store(target, mixed.to(out.dtype.element_ty), mask=within[:, None])


def decode_attention(
    query: Tensor,
    new_key: Tensor,
    new_value: Tensor,
    keys: Tensor,
    values: Tensor,
    position: Tensor,
    rule: Rule = PLAIN,
) -> Tensor:
    """Queries [B, K, G, D] against a cache [slots, K, capacity, D] in which row b holds position[b] tokens.

    Writes the new keys and values [B, K, 1, D] at position[b] and attends to them too; returns [B, K, G, D]. Grouped
    queries are padded to 16, the least a tensor core takes: a step is bound by reading keys, not by arithmetic.
    """
    rows, heads, group, dim = query.shape
    out = torch.empty((rows, heads, group, dim), dtype=query.dtype, device=query.device)
    _decode[(rows, heads)](
        query, new_key, new_value, keys, values, position, query if rule.sinks is None else rule.sinks, out, dim**-0.5,
        keys.shape[2] + 1 if rule.window is None else rule.window, rule.softcap or 1.0,
        *query.stride()[:3], *new_key.stride()[:2], *new_value.stride()[:2], *keys.stride()[:3], *out.stride()[:3],
        GROUP=group, PADDED=max(16, triton.next_power_of_2(group)), DIM=dim, BLOCK=16,
        CAPPED=rule.softcap is not None, SINKS=rule.sinks is not None, num_warps=1, num_stages=3,
    )  # fmt: skip
    return out
