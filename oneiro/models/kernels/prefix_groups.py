"""Attention within prefix groups as GPU kernels: what a token may not see is not computed.

A sequence is a prefix and rows that continue it (`backbone.PrefixGroups`). A block of queries meets the blocks of the
prefix, and those from where its first row begins up to itself; whatever else stands in these blocks is masked.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

LOG2E = 1.4426950408889634
MOST_HEADS = 65_535
"""What the second axis of a launch can count."""


@triton.jit
def _tile(x, at, step, within, DIM: tl.constexpr):  # type: ignore[no-untyped-def]
    """Rows `at` of a matrix of rows `step` apart, [n, DIM]; 0 where a row is not `within` it."""
    return tl.load(x + at[:, None] * step + tl.arange(0, DIM)[None, :], mask=within[:, None], other=0.0)


@triton.jit
def _logits(q, k, row_id_q, row_id_k, at_q, at_k, scale):  # type: ignore[no-untyped-def]
    """Scores of queries [M, D] and keys [N, D] in powers of two; what may not be seen has none."""
    seen = ((row_id_k == 0)[None, :] | (row_id_k[None, :] == row_id_q[:, None])) & (at_k[None, :] <= at_q[:, None])
    return tl.where(seen, tl.dot(q, tl.trans(k), input_precision="ieee") * scale, float("-inf"))


@triton.jit
def _meet(q, row_id_q, at_q, k, v, row_id, start, length, k_step, v_step, scale, mixed, top, total,  # type: ignore[no-untyped-def]
          DIM: tl.constexpr, N: tl.constexpr):  # fmt: skip
    """Queries meet one block of keys; the softmax so far is rescaled as it goes."""
    at_k = start + tl.arange(0, N)
    within = at_k < length
    row_id_k = tl.load(row_id + at_k, mask=within, other=-2)
    keys = _tile(k, at_k, k_step, within, DIM)
    scores = _logits(q, keys, row_id_q, row_id_k, at_q, at_k, scale)
    new = tl.maximum(top, tl.max(scores, 1))
    safe = tl.where(new == float("-inf"), 0.0, new)
    weights = tl.exp2(scores - safe[:, None])
    shrink = tl.exp2(top - safe)
    values = _tile(v, at_k, v_step, within, DIM)
    mixed = mixed * shrink[:, None] + tl.dot(weights.to(values.dtype), values)
    return mixed, new, total * shrink + tl.sum(weights, 1)


@triton.jit
def _forward(  # type: ignore[no-untyped-def]
    q, k, v, out, lse, row_id, begin, prefix, length, scale,
    q_batch, q_head, q_step, k_batch, k_head, k_step, v_batch, v_head, v_step, out_batch, out_head, out_step,
    HEADS: tl.constexpr, GROUP: tl.constexpr, DIM: tl.constexpr, M: tl.constexpr, N: tl.constexpr,
):  # fmt: skip
    block = tl.program_id(0)
    batch = (tl.program_id(1) // HEADS).to(tl.int64)
    head = (tl.program_id(1) % HEADS).to(tl.int64)
    at_q = block * M + tl.arange(0, M)
    within = at_q < length
    column = tl.arange(0, DIM)
    row_id += batch * length
    k += batch * k_batch + head // GROUP * k_head
    v += batch * v_batch + head // GROUP * v_head
    row_id_q = tl.load(row_id + at_q, mask=within, other=-3)
    queries = _tile(q + batch * q_batch + head * q_head, at_q, q_step, within, DIM)
    mixed = tl.zeros([M, DIM], tl.float32)
    top = tl.full([M], float("-inf"), tl.float32)
    total = tl.zeros([M], tl.float32)
    last = tl.minimum((block + 1) * M, length)
    common = tl.cdiv(tl.minimum(tl.load(prefix + batch), last), N) * N
    for start in range(0, common, N):
        mixed, top, total = _meet(
            queries, row_id_q, at_q, k, v, row_id, start, length, k_step, v_step, scale, mixed, top, total, DIM, N
        )  # fmt: skip
    own = tl.maximum(tl.load(begin + batch * length + block * M) // N * N, common)
    for start in range(own, last, N):
        mixed, top, total = _meet(
            queries, row_id_q, at_q, k, v, row_id, start, length, k_step, v_step, scale, mixed, top, total, DIM, N
        )  # fmt: skip
    total = tl.where(within, total, 1.0)
    place = out + batch * out_batch + head * out_head + at_q[:, None] * out_step + column[None, :]
    tl.store(place, (mixed / total[:, None]).to(out.dtype.element_ty), mask=within[:, None])
    tl.store(lse + (batch * HEADS + head) * length + at_q, top + tl.log2(total), mask=within)


@triton.jit
def _query_part(q, g, row_id_q, at_q, norm, delta, k, v, row_id, start, length, k_step, v_step, scale, by_q,  # type: ignore[no-untyped-def]
                DIM: tl.constexpr, N: tl.constexpr):  # fmt: skip
    """What one block of keys adds to the gradient by queries."""
    at_k = start + tl.arange(0, N)
    within = at_k < length
    row_id_k = tl.load(row_id + at_k, mask=within, other=-2)
    keys = _tile(k, at_k, k_step, within, DIM)
    values = _tile(v, at_k, v_step, within, DIM)
    weights = tl.exp2(_logits(q, keys, row_id_q, row_id_k, at_q, at_k, scale) - norm[:, None])
    change = weights * (tl.dot(g, tl.trans(values)) - delta[:, None])
    return by_q + tl.dot(change.to(keys.dtype), keys)


@triton.jit
def _backward_queries(  # type: ignore[no-untyped-def]
    q, k, v, grad, lse, deltas, by_query, row_id, begin, prefix, length, scale,
    q_batch, q_head, q_step, k_batch, k_head, k_step, v_batch, v_head, v_step, g_batch, g_head, g_step,
    out_batch, out_head, out_step,
    HEADS: tl.constexpr, GROUP: tl.constexpr, DIM: tl.constexpr, M: tl.constexpr, N: tl.constexpr,
):  # fmt: skip
    block = tl.program_id(0)
    batch = (tl.program_id(1) // HEADS).to(tl.int64)
    head = (tl.program_id(1) % HEADS).to(tl.int64)
    at_q = block * M + tl.arange(0, M)
    within = at_q < length
    column = tl.arange(0, DIM)
    row_id += batch * length
    k += batch * k_batch + head // GROUP * k_head
    v += batch * v_batch + head // GROUP * v_head
    row_id_q = tl.load(row_id + at_q, mask=within, other=-3)
    flat = (batch * HEADS + head) * length + at_q
    norm = tl.load(lse + flat, mask=within, other=0.0)
    delta = tl.load(deltas + flat, mask=within, other=0.0)
    queries = _tile(q + batch * q_batch + head * q_head, at_q, q_step, within, DIM)
    g = _tile(grad + batch * g_batch + head * g_head, at_q, g_step, within, DIM)
    by_q = tl.zeros([M, DIM], tl.float32)
    last = tl.minimum((block + 1) * M, length)
    common = tl.cdiv(tl.minimum(tl.load(prefix + batch), last), N) * N
    for start in range(0, common, N):
        by_q = _query_part(
            queries, g, row_id_q, at_q, norm, delta, k, v, row_id, start, length, k_step, v_step, scale, by_q, DIM, N
        )  # fmt: skip
    own = tl.maximum(tl.load(begin + batch * length + block * M) // N * N, common)
    for start in range(own, last, N):
        by_q = _query_part(
            queries, g, row_id_q, at_q, norm, delta, k, v, row_id, start, length, k_step, v_step, scale, by_q, DIM, N
        )  # fmt: skip
    place = by_query + batch * out_batch + head * out_head + at_q[:, None] * out_step + column[None, :]
    tl.store(place, (by_q * (scale / 1.4426950408889634)).to(by_query.dtype.element_ty), mask=within[:, None])


@triton.jit
def _backward_keys(  # type: ignore[no-untyped-def]
    q, k, v, grad, lse, deltas, by_key, by_value, row_id, end, prefix, sizes, length, scale,
    q_batch, q_head, q_step, k_batch, k_head, k_step, v_batch, v_head, v_step, g_batch, g_head, g_step,
    out_batch, out_head, out_step,
    HEADS: tl.constexpr, GROUP: tl.constexpr, DIM: tl.constexpr, M: tl.constexpr, N: tl.constexpr,
):  # fmt: skip
    block = tl.program_id(0)
    batch = (tl.program_id(1) // (HEADS // GROUP)).to(tl.int64)
    kv_head = (tl.program_id(1) % (HEADS // GROUP)).to(tl.int64)
    at_k = block * N + tl.arange(0, N)
    within = at_k < length
    column = tl.arange(0, DIM)
    row_id += batch * length
    row_id_k = tl.load(row_id + at_k, mask=within, other=-2)
    k += batch * k_batch + kv_head * k_head
    v += batch * v_batch + kv_head * v_head
    keys = _tile(k, at_k, k_step, within, DIM)
    values = _tile(v, at_k, v_step, within, DIM)
    by_k = tl.zeros([N, DIM], tl.float32)
    by_v = tl.zeros([N, DIM], tl.float32)
    # Every row sees the prefix; a row's own keys are seen up to the row's end.
    reach = tl.load(end + batch * length + tl.minimum((block + 1) * N, length) - 1)
    reach = tl.where(block * N < tl.load(prefix + batch), tl.load(sizes + batch), reach)
    for member in range(GROUP):
        head = kv_head * GROUP + member
        for start in range(block * N // M * M, reach, M):
            at_q = start + tl.arange(0, M)
            here = at_q < length
            row_id_q = tl.load(row_id + at_q, mask=here, other=-3)
            flat = (batch * HEADS + head) * length + at_q
            norm = tl.load(lse + flat, mask=here, other=0.0)
            delta = tl.load(deltas + flat, mask=here, other=0.0)
            queries = _tile(q + batch * q_batch + head * q_head, at_q, q_step, here, DIM)
            g = _tile(grad + batch * g_batch + head * g_head, at_q, g_step, here, DIM)
            weights = tl.exp2(_logits(queries, keys, row_id_q, row_id_k, at_q, at_k, scale) - norm[:, None])
            by_v += tl.dot(tl.trans(weights).to(g.dtype), g)
            change = weights * (tl.dot(g, tl.trans(values)) - delta[:, None])
            by_k += tl.dot(tl.trans(change).to(queries.dtype), queries)
    place = batch * out_batch + kv_head * out_head + at_k[:, None] * out_step + column[None, :]
    tl.store(by_key + place, (by_k * (scale / 1.4426950408889634)).to(by_key.dtype.element_ty), mask=within[:, None])
    tl.store(by_value + place, by_v.to(by_value.dtype.element_ty), mask=within[:, None])


def heads_inside(like: Tensor) -> Tensor:
    """An empty [B, H, T, D] whose heads of one token lie together."""
    batch, heads, length, dim = like.shape
    return torch.empty((batch, length, heads, dim), dtype=like.dtype, device=like.device).transpose(1, 2)


class GroupLayout:
    """Where rows begin and end in sequences `row_id` [B, T], and how long prefixes and groups are."""

    def __init__(self, row_id: Tensor) -> None:
        batch, length = row_id.shape
        at = torch.arange(length, device=row_id.device, dtype=torch.int32).expand(batch, length)
        turns = row_id[:, 1:] != row_id[:, :-1]
        edge = turns.new_ones(batch, 1)
        self.row_id = row_id.int().contiguous()
        self.begin = torch.where(torch.cat([edge, turns], 1), at, 0).cummax(1).values.int().contiguous()
        ends = torch.where(torch.cat([turns, edge], 1), at + 1, length)
        self.end = ends.flip(1).cummin(1).values.flip(1).int().contiguous()
        self.prefix = (row_id == 0).sum(1, dtype=torch.int32)
        self.sizes = (row_id >= 0).sum(1, dtype=torch.int32)


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, layout: GroupLayout) -> Tensor:
        batch, heads, length, dim = query.shape
        query, key, value = (x if x.stride(3) == 1 else x.contiguous() for x in (query, key, value))
        out = heads_inside(query)
        lse = torch.empty((batch, heads, length), device=query.device)
        scale = dim**-0.5 * LOG2E
        m, n = 128 if dim <= 64 else 64, 64
        _forward[(triton.cdiv(length, m), batch * heads)](
            query, key, value, out, lse, layout.row_id, layout.begin, layout.prefix, length, scale,
            *query.stride()[:3], *key.stride()[:3], *value.stride()[:3], *out.stride()[:3],
            HEADS=heads, GROUP=heads // key.shape[1], DIM=dim, M=m, N=n, num_warps=4, num_stages=3,
        )  # fmt: skip
        ctx.save_for_backward(query, key, value, out, lse)
        ctx.layout = layout
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, out, lse = ctx.saved_tensors
        layout: GroupLayout = ctx.layout
        grad = grads[0] if grads[0].stride(3) == 1 else grads[0].contiguous()
        batch, heads, length, dim = query.shape
        deltas = (grad.float() * out.float()).sum(-1).contiguous()
        by_query, by_key, by_value = (heads_inside(x) for x in (query, key, value))
        scale, group = dim**-0.5 * LOG2E, heads // key.shape[1]
        strides = [*query.stride()[:3], *key.stride()[:3], *value.stride()[:3], *grad.stride()[:3]]
        sizes: dict[str, Any] = {"HEADS": heads, "GROUP": group, "DIM": dim, "M": 64, "N": 64, "num_warps": 4}
        _backward_queries[(triton.cdiv(length, 64), batch * heads)](
            query, key, value, grad, lse, deltas, by_query, layout.row_id, layout.begin, layout.prefix, length, scale,
            *strides, *by_query.stride()[:3], **sizes, num_stages=2,
        )  # fmt: skip
        _backward_keys[(triton.cdiv(length, 64), batch * heads // group)](
            query, key, value, grad, lse, deltas, by_key, by_value, layout.row_id, layout.end, layout.prefix,
            layout.sizes,
            length, scale, *strides, *by_key.stride()[:3], **sizes, num_stages=2,
        )  # fmt: skip
        return by_query, by_key, by_value, None


def fits(query: Tensor) -> bool:
    """Whether the kernels can do these heads: 16-bit numbers, in tiles of a power of two, so many at once."""
    batch, heads, _, dim = query.shape
    return query.dtype.itemsize == 2 and 16 <= dim <= 128 and dim & (dim - 1) == 0 and batch * heads <= MOST_HEADS


def group_attention(query: Tensor, key: Tensor, value: Tensor, layout: GroupLayout) -> Tensor:
    """Query [B, H, T, D], key and value [B, K, T, D] -> [B, H, T, D]: each token sees its prefix and its own row."""
    return _Attention.apply(query, key, value, layout)
