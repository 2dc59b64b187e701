"""From logits to one token a row: exact, seeded, independent of how rows were batched.

Each row brings one uniform number per position; the token is where that number falls in the row's cumulated
distribution. The same number gives the same token in any slot and any batch.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from oneiro.episode import SamplingParams

BLOCK = 256  # words summed at once: first the block is found, then the word in it
SMALL = 1024
"""Up to so many words a vocabulary is cumulated whole."""


def draw(logits: Tensor, uniforms: Tensor, how: SamplingParams) -> tuple[Tensor, Tensor]:
    """Logits [B, V] and uniforms [B] -> token ids [B] and log-probabilities [B].

    Log-probabilities are those of the temperature-scaled distribution before truncation, which is what the learner
    recomputes; the segment remembers `how`.
    """
    logits = logits.float()
    if how.temperature == 0:
        tokens = logits.argmax(-1)
        return tokens, torch.log_softmax(logits, -1).gather(1, tokens[:, None])[:, 0]
    if how.temperature != 1:
        logits = logits / how.temperature
    probabilities = logits.softmax(-1)
    weights = probabilities if how.whole else probabilities.where(truncate(logits, how) > -torch.inf, 0.0)
    tokens = invert(weights, uniforms)
    # Whatever is drawn has a probability well above the smallest float: its logarithm is as exact as the learner's.
    return tokens, probabilities.gather(1, tokens[:, None])[:, 0].log_()


def invert(weights: Tensor, uniforms: Tensor) -> Tensor:
    """Where each uniform falls in its row's cumulated weights: weights [B, V], uniforms [B] -> indices [B].

    A large vocabulary is read once instead of being cumulated whole: first among sums of blocks, then inside a block.
    """
    rows, vocabulary = weights.shape
    if vocabulary <= SMALL:
        cumulated = weights.cumsum(-1)
        return find(cumulated, uniforms[:, None] * cumulated[:, -1:])[:, 0]
    if vocabulary % BLOCK:
        weights = F.pad(weights, (0, -vocabulary % BLOCK))
    padded = weights.view(rows, -1, BLOCK)
    blocks = padded.sum(-1).cumsum(-1)
    threshold = uniforms[:, None] * blocks[:, -1:]
    block = find(blocks, threshold)
    before = torch.where(block > 0, blocks.gather(1, (block - 1).clamp_(min=0)), 0.0)
    inside = padded[torch.arange(rows, device=weights.device), block[:, 0]].cumsum(-1)
    return (block * BLOCK + find(inside, threshold - before))[:, 0]


def find(cumulated: Tensor, threshold: Tensor) -> Tensor:
    """The first place above each threshold [B, 1] in cumulated weights [B, n].

    Thresholds are scaled by the total, rather than trusting it to be 1; still, rounding may point just past the last
    place that has any weight: then it is that place.
    """
    last = (cumulated < cumulated[:, -1:]).sum(-1, keepdim=True)
    return torch.minimum(torch.searchsorted(cumulated, threshold, right=True), last)


def truncate(logits: Tensor, how: SamplingParams) -> Tensor:
    """Minus infinity outside the top-k and the nucleus; at least the best token stays."""
    if how.top_k and how.top_k < logits.shape[1]:
        least = logits.topk(how.top_k, dim=-1).values[:, -1:]
        logits = logits.masked_fill(logits < least, -torch.inf)
    if how.top_p < 1:
        ordered, order = logits.sort(descending=True, dim=-1)
        probabilities = ordered.softmax(-1)
        outside = probabilities.cumsum(-1) - probabilities >= how.top_p
        logits = logits.masked_fill(outside.scatter(1, order, outside), -torch.inf)
    return logits
