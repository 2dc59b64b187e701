"""What the vocabulary head needs of a chunk of logits, on a GPU: read twice, written once, nothing else in memory."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 4096


@triton.jit
def _measure(  # type: ignore[no-untyped-def]
    logits, targets, temperature, logprobs, entropies, normalisers, VOCABULARY: tl.constexpr, BLOCK: tl.constexpr
):
    """One pass over a token's logits: the highest, the sum of exponentials, their mean logit; rescaled as it goes."""
    token = tl.program_id(0).to(tl.int64)
    coldness = 1 / tl.load(temperature + token)
    row = logits + token * VOCABULARY
    top = float("-inf")
    total = 0.0
    weighted = 0.0
    for start in range(0, VOCABULARY, BLOCK):
        at = start + tl.arange(0, BLOCK)
        scaled = tl.load(row + at, mask=at < VOCABULARY, other=float("-inf")).to(tl.float32) * coldness
        new = tl.maximum(top, tl.max(scaled, 0))
        weights = tl.exp(scaled - new)
        shrink = tl.exp(top - new)
        total = total * shrink + tl.sum(weights, 0)
        weighted = weighted * shrink + tl.sum(tl.where(weights > 0, weights * scaled, 0.0), 0)
        top = new
    normaliser = top + tl.log(total)
    chosen = tl.load(row + tl.load(targets + token)).to(tl.float32) * coldness
    tl.store(logprobs + token, chosen - normaliser)
    tl.store(entropies + token, normaliser - weighted / total)
    tl.store(normalisers + token, normaliser)


@triton.jit
def _differentiate(  # type: ignore[no-untyped-def]
    logits, targets, temperature, normalisers, entropies, by_logprob, by_entropy,
    VOCABULARY: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Turn logits into the loss's gradient by them: d logp = onehot - p, d H = -p (log p + H)."""
    token = tl.program_id(0).to(tl.int64)
    coldness = 1 / tl.load(temperature + token)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    place = logits + token * VOCABULARY + at
    logp = tl.load(place, mask=at < VOCABULARY, other=0.0).to(tl.float32) * coldness - tl.load(normalisers + token)
    policy = tl.load(by_logprob + token)
    grad = -tl.exp(logp) * (policy + tl.load(by_entropy + token) * (logp + tl.load(entropies + token)))
    grad = (grad + tl.where(at == tl.load(targets + token), policy, 0.0)) * coldness
    tl.store(place, grad.to(logits.dtype.element_ty), mask=at < VOCABULARY)


def measure(logits: Tensor, targets: Tensor, temperature: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Logits [c, V] -> log-probability of each target, entropy and normaliser, each [c] in float32."""
    count, vocabulary = logits.shape
    logprobs, entropies, normalisers = torch.empty(3, count, device=logits.device).unbind(0)
    _measure[(count,)](
        logits, targets, temperature, logprobs, entropies, normalisers, VOCABULARY=vocabulary, BLOCK=BLOCK, num_warps=8
    )
    return logprobs, entropies, normalisers


def differentiate(
    logits: Tensor,
    targets: Tensor,
    temperature: Tensor,
    normalisers: Tensor,
    entropies: Tensor,
    by_logprob: Tensor,
    by_entropy: Tensor,
) -> Tensor:
    """The gradient by the logits [c, V], written over them, given the loss's gradient by `measure`'s results [c]."""
    count, vocabulary = logits.shape
    _differentiate[(count, triton.cdiv(vocabulary, BLOCK))](
        logits, targets, temperature, normalisers, entropies, by_logprob, by_entropy,
        VOCABULARY=vocabulary, BLOCK=BLOCK, num_warps=8,
    )  # fmt: skip
    return logits
