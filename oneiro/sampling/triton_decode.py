"""Attention of one new token a row over a padded key-value cache, reading only what each row has written."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def _decode(  # type: ignore[no-untyped-def]
    query, keys, values, position, out, scale,
    q_row, q_head, q_group, k_row, k_head, k_position, o_row, o_head, o_group,
    GROUP: tl.constexpr, PADDED: tl.constexpr, DIM: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1)
    length = tl.load(position + row) + 1
    group = tl.arange(0, PADDED)
    dim = tl.arange(0, DIM)
    within = group < GROUP
    q = tl.load(
        query + row * q_row + head * q_head + group[:, None] * q_group + dim[None, :], mask=within[:, None], other=0.0
    )
    highest = tl.full([PADDED], float("-inf"), tl.float32)
    total = tl.zeros([PADDED], tl.float32)
    mixed = tl.zeros([PADDED, DIM], tl.float32)
    base = row * k_row + head * k_head
    for start in range(0, length, BLOCK):
        at = start + tl.arange(0, BLOCK)
        seen = at < length
        place = base + at[:, None] * k_position + dim[None, :]
        k = tl.load(keys + place, mask=seen[:, None], other=0.0)
        scores = tl.dot(q, tl.trans(k)).to(tl.float32) * scale
        scores = tl.where(seen[None, :], scores, float("-inf"))
        new = tl.maximum(highest, tl.max(scores, 1))
        shrink = tl.exp(highest - new)
        weights = tl.exp(scores - new[:, None])
        v = tl.load(values + place, mask=seen[:, None], other=0.0)
        total = total * shrink + tl.sum(weights, 1)
        mixed = mixed * shrink[:, None] + tl.dot(weights.to(v.dtype), v).to(tl.float32)
        highest = new
    mixed = mixed / total[:, None]
    target = out + row * o_row + head * o_head + group[:, None] * o_group + dim[None, :]
    tl.store(target, mixed.to(out.dtype.element_ty), mask=within[:, None])


def decode_attention(query: Tensor, keys: Tensor, values: Tensor, position: Tensor) -> Tensor:
    """Queries [B, K, G, D] against keys and values [slots, K, capacity, D], row b up to position[b]; returns [B, K,
       G, D].

    Grouped queries are padded to 16, the least a tensor core takes; the step is bound by reading keys, not by
    arithmetic.
    """
    rows, heads, group, dim = query.shape
    out = torch.empty_like(query)
    _decode[(rows, heads)](
        query, keys, values, position, out, dim**-0.5,
        *query.stride()[:3], *keys.stride()[:3], *out.stride()[:3],
        GROUP=group, PADDED=max(16, triton.next_power_of_2(group)), DIM=dim, BLOCK=64, num_warps=4,
    )  # fmt: skip
    return out
