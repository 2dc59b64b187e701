"""Drawing a token a row on a GPU, and writing it down: two kernels over logits that are read once.

The same rule as `draw`: a row's uniform number falls somewhere in its cumulated distribution, first among blocks of the
vocabulary, then inside one block.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl
from torch import Tensor

if TYPE_CHECKING:
    from oneiro.sampling.decode_batch import DecodeBatch

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
