"""The GPU kernels of a decoding step.

Attention of one new token a row over a padded key-value cache, reading only what each row has written and sees, and
over prompts that rows share; then drawing a token a row and writing it down, over logits that are read once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl
from torch import Tensor

from oneiro.models.attention import PLAIN, Rule

if TYPE_CHECKING:
    from oneiro.sampling.decode_batch import DecodeBatch

OWN, OWN_FEW = (16, 1, 3), (64, 2, 3)
"""Of the kernel that reads rows' own caches: tokens of a block, warps, blocks on their way at once. Few rows leave most
of a GPU idle, so each reads with more warps: on an H200 64 rows take 11.5 instead of 16.0 us a layer; 256 rows take
16.9 with one warp, and 17.7 or more with two.
"""
FEW_ROWS = 128
WIDE_HEAD = 256
"""Bytes of a head (float32, or very wide heads) above which large blocks do not fit into shared memory."""
SHARED = 64, 4, 3
"""The same of the kernel that reads shared prompts."""


@triton.jit
def _cap(scores, softcap):  # type: ignore[no-untyped-def]
    """softcap * tanh(scores / softcap)"""
    return softcap * (2 * tl.sigmoid(2 * scores / softcap) - 1)


@triton.jit
def _prompts(  # type: ignore[no-untyped-def]
    query, keys, values, length, tile_prompt, tile_rows, position, parts, totals, scale, window, softcap, chunk, chunks,
    q_row, q_head, q_group, k_row, k_head, k_position,
    GROUP: tl.constexpr, MEMBERS: tl.constexpr, PADDED: tl.constexpr, DIM: tl.constexpr, BLOCK: tl.constexpr,
    CAPPED: tl.constexpr, WINDOWED: tl.constexpr,
):  # fmt: skip
    """A chunk of a prompt, for one key head of the rows of a tile."""
    tile = tl.program_id(0)
    head = tl.program_id(1)
    number = tl.program_id(2)
    prompt = tl.load(tile_prompt + tile).to(tl.int64)
    if prompt < 0:
        return
    first = number * chunk
    end = tl.minimum(tl.load(length + prompt).to(tl.int32), first + chunk)
    if first >= end:
        return
    dim = tl.arange(0, DIM)
    line = tl.arange(0, PADDED)
    member = line // GROUP
    row = tl.load(tile_rows + tile * MEMBERS + member, mask=member < MEMBERS, other=-1).to(tl.int64)
    real = row >= 0
    place = query + row[:, None] * q_row + head * q_head + (line % GROUP)[:, None] * q_group + dim[None, :]
    q = tl.load(place, mask=real[:, None], other=0.0)
    if WINDOWED:
        edge = tl.load(position + row, mask=real, other=0) - window
    base = prompt * k_row + head * k_head
    highest = tl.full([PADDED], float("-inf"), tl.float32)
    total = tl.zeros([PADDED], tl.float32)
    mixed = tl.zeros([PADDED, DIM], tl.float32)
    for start in range(first, end, BLOCK):
        at = start + tl.arange(0, BLOCK)
        within = at < end
        cell = base + at[:, None] * k_position + dim[None, :]
        k = tl.load(keys + cell, mask=within[:, None], other=0.0)
        v = tl.load(values + cell, mask=within[:, None], other=0.0)
        scores = tl.dot(q, tl.trans(k)).to(tl.float32) * scale
        if CAPPED:
            scores = _cap(scores, softcap)
        scores = tl.where(within[None, :], scores, float("-inf"))
        if WINDOWED:
            scores = tl.where(at[None, :] > edge[:, None], scores, float("-inf"))
        # Not below what float32 holds: a row may see nothing of this chunk.
        new = tl.maximum(tl.maximum(highest, tl.max(scores, 1)), -3e38)
        shrink = tl.exp(highest - new)
        weights = tl.exp(scores - new[:, None])
        total = total * shrink + tl.sum(weights, 1)
        mixed = mixed * shrink[:, None] + tl.dot(weights.to(v.dtype), v).to(tl.float32)
        highest = new
    sees = total > 0
    total = tl.where(sees, total, 1.0)
    heads = tl.num_programs(1)
    part = ((row * heads + head) * GROUP + line % GROUP) * chunks + number
    tl.store(parts + part[:, None] * DIM + dim[None, :], mixed / total[:, None], mask=real[:, None])
    tl.store(totals + part, tl.where(sees, highest + tl.log(total), float("-inf")), mask=real)


@triton.jit
def _decode(  # type: ignore[no-untyped-def]
    query, new_key, new_value, keys, values, position, sinks, out, scale, window, softcap,
    prompt, parts, totals, chunk, chunks,
    q_row, q_head, q_group, n_row, n_head, m_row, m_head, k_row, k_head, k_position, o_row, o_head, o_group,
    GROUP: tl.constexpr, PADDED: tl.constexpr, DIM: tl.constexpr, BLOCK: tl.constexpr,
    CAPPED: tl.constexpr, SINKS: tl.constexpr, SHARED: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1)
    past = tl.load(position + row)
    if SHARED:
        # The row's own cache begins behind the prompt that it shares.
        before = tl.load(prompt + row)
        past -= before
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
    if SHARED:
        part = ((row * tl.num_programs(1) + head) * GROUP + group) * chunks
        for number in range(0, tl.cdiv(before, chunk)):
            other = tl.load(totals + part + number, mask=within, other=float("-inf"))
            new = tl.maximum(highest, other)
            shrink = tl.exp(highest - new)
            weight = tl.exp(other - new)
            cell = parts + (part + number)[:, None] * DIM + dim[None, :]
            theirs = tl.load(cell, mask=within[:, None], other=0.0)
            total = total * shrink + weight
            mixed = mixed * shrink[:, None] + theirs * weight[:, None]
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
    of_prompts: tuple[Tensor, int, Tensor, Tensor] | None = None,
) -> Tensor:
    """Queries [B, K, G, D] against a cache [slots, K, capacity, D] in which row b holds position[b] tokens.

    Writes the new keys and values [B, K, 1, D] at position[b] and attends to them too; returns [B, K, G, D]. Grouped
    queries are padded to 16, the least a tensor core takes: a step is bound by reading keys, not by arithmetic.
    `of_prompts` is (tokens that each row has in a shared prompt instead, tokens of a chunk, and what
    `prompt_attention` wrote).
    """
    rows, heads, group, dim = query.shape
    out = torch.empty((rows, heads, group, dim), dtype=query.dtype, device=query.device)
    prompt, chunk, parts, totals = of_prompts or (position, 1, query, query)
    wide = dim * query.element_size() > WIDE_HEAD
    block, warps, stages = OWN if rows >= FEW_ROWS or wide else OWN_FEW
    _decode[(rows, heads)](
        query, new_key, new_value, keys, values, position, query if rule.sinks is None else rule.sinks, out, dim**-0.5,
        keys.shape[2] + 1 if rule.window is None else rule.window, rule.softcap or 1.0,
        prompt, parts, totals, chunk, 1 if of_prompts is None else parts.shape[3],
        *query.stride()[:3], *new_key.stride()[:2], *new_value.stride()[:2], *keys.stride()[:3], *out.stride()[:3],
        GROUP=group, PADDED=max(16, triton.next_power_of_2(group)), DIM=dim, BLOCK=block,
        CAPPED=rule.softcap is not None, SINKS=rule.sinks is not None, SHARED=of_prompts is not None,
        num_warps=warps, num_stages=stages,
    )  # fmt: skip
    return out


def prompt_attention(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    length: Tensor,
    tile_prompt: Tensor,
    tile_rows: Tensor,
    position: Tensor,
    rule: Rule,
    chunk: int,
    parts: Tensor,
    totals: Tensor,
) -> None:
    """Queries [B, K, G, D] against stored prompts [P, K, capacity, D], as `prompt_store.attend_prompts`, in chunks.

    Writes what a row mixes of each chunk of its prompt to `parts` [B, K, G, chunks, D], and the logarithm of the sum of
    its weights to `totals` [B, K, G, chunks]; chunks behind the prompt's end are left as they are.
    """
    _, heads, group, dim = query.shape
    (tiles, members), chunks = tile_rows.shape, parts.shape[3]
    padded = max(16, triton.next_power_of_2(members * group))
    block, warps, stages = SHARED
    if padded * dim > 64 * 64:
        warps = 8
    if dim * query.element_size() > WIDE_HEAD:
        block, stages = 32, 1
    _prompts[(tiles, heads, chunks)](
        query, keys, values, length, tile_prompt, tile_rows, position, parts, totals, dim**-0.5,
        0 if rule.window is None else rule.window, rule.softcap or 1.0, chunk, chunks,
        *query.stride()[:3], *keys.stride()[:3],
        GROUP=group, MEMBERS=members, PADDED=padded, DIM=dim, BLOCK=block,
        CAPPED=rule.softcap is not None, WINDOWED=rule.window is not None, num_warps=warps, num_stages=stages,
    )  # fmt: skip


BLOCK = 2048


@triton.jit
def _summarise(logits, highest, sums, vocabulary, blocks, coldness, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """Of each block of a row's logits the highest, and the sum of exponentials below it."""
    row = tl.program_id(0).to(tl.int64)
    block = tl.program_id(1)
    token = block * BLOCK + tl.arange(0, BLOCK)
    scaled = tl.load(logits + row * vocabulary + token, mask=token < vocabulary, other=float("-inf")).to(tl.float32)
    scaled *= coldness
    top = tl.max(scaled, 0)
    tl.store(highest + row * blocks + block, top)
    # A block without any finite logit weighs nothing.
    tl.store(sums + row * blocks + block, tl.sum(tl.where(scaled > float("-inf"), tl.exp(scaled - top), 0.0), 0))


@triton.jit
def _find(weights, threshold, places):  # type: ignore[no-untyped-def]
    """The first place with weight at which the cumulated weights pass the threshold, and what lies before it.

    Sums made in parallel round differently from place to place, so cumulated weights may fall by a rounding: only
    places that have weight are asked, and the last of them answers where none passes.
    """
    has_weight = weights > 0
    passed = has_weight & (tl.cumsum(weights, 0) > threshold)
    last = tl.max(tl.where(has_weight, places, 0), 0)
    place = tl.min(tl.where(passed, places, last), 0)
    return place, tl.sum(tl.where(places < place, weights, 0.0), 0)


@triton.jit
def _take(  # type: ignore[no-untyped-def]
    logits, highest, sums, slots, last, position, count, done, uniforms, forced, tokens, logprobs, limit, ends,
    vocabulary, blocks, steps, coldness,
    FREE: tl.constexpr, ENDS: tl.constexpr, BLOCKS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    slot = tl.load(slots + row)
    if tl.load(done + slot) != 0:
        return
    at = slot * steps + tl.load(count + slot)
    blockwise = tl.arange(0, BLOCKS)
    real = blockwise < blocks
    tops = tl.load(highest + row * blocks + blockwise, mask=real, other=float("-inf"))
    top = tl.max(tops, 0)
    weights = tl.load(sums + row * blocks + blockwise, mask=real, other=0.0) * tl.exp(tops - top)
    threshold = tl.load(uniforms + at) * tl.sum(weights, 0)
    block, before = _find(weights, threshold, blockwise)
    inside = tl.arange(0, BLOCK)
    token = block * BLOCK + inside
    scaled = tl.load(logits + row * vocabulary + token, mask=token < vocabulary, other=float("-inf")).to(tl.float32)
    scaled *= coldness
    place, _ = _find(tl.exp(scaled - top), threshold - before, inside)
    drawn = (block * BLOCK + place).to(tl.int64)
    logprob = tl.sum(tl.where(inside == place, scaled, 0.0), 0) - top - tl.log(tl.sum(weights, 0))
    wanted = tl.load(forced + at)
    free = wanted == FREE
    drawn = tl.where(free, drawn, wanted)
    tl.store(tokens + at, drawn)
    tl.store(logprobs + at, tl.where(free, logprob, 0.0))
    tl.store(last + slot, drawn)
    taken = tl.load(count + slot) + 1
    tl.store(count + slot, taken)
    tl.store(position + slot, tl.load(position + slot) + 1)
    stops = tl.load(ends + tl.arange(0, ENDS))
    ended = tl.sum((stops == drawn).to(tl.int32), 0) > 0
    tl.store(done + slot, ended | (taken >= tl.load(limit)))


def take(rows: DecodeBatch, logits: Tensor, slots: Tensor, temperature: float, free: int) -> None:
    """Draw from logits [n, V] for rows `slots` [n] that are not done, or take what is forced, and store it."""
    count, vocabulary = logits.shape
    blocks = triton.cdiv(vocabulary, BLOCK)
    highest = torch.empty((count, blocks), dtype=torch.float32, device=logits.device)
    sums = torch.empty_like(highest)
    _summarise[(count, blocks)](logits, highest, sums, vocabulary, blocks, 1 / temperature, BLOCK=BLOCK, num_warps=4)
    _take[(count,)](
        logits, highest, sums, slots, rows.token, rows.position, rows.count, rows.done, rows.uniforms, rows.forced,
        rows.tokens, rows.logprobs, rows.limit, rows.ends, vocabulary, blocks, rows.steps, 1 / temperature,
        FREE=free, ENDS=len(rows.ends), BLOCKS=triton.next_power_of_2(blocks), BLOCK=BLOCK, num_warps=4,
    )  # fmt: skip
