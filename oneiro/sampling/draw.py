"""From logits to one token a row: exact, seeded, independent of how rows were batched.

Each row brings one uniform number per position; the token is where that number falls in the row's cumulated
distribution. The same number gives the same token in any slot and any batch.
"""

from __future__ import annotations

import torch
from torch import Tensor

from oneiro.episode import Draw


def draw(logits: Tensor, uniforms: Tensor, how: Draw) -> tuple[Tensor, Tensor]:
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
    normaliser = logits.logsumexp(-1, keepdim=True)
    weights = (truncate(logits, how) - normaliser).exp()
    cumulated = weights.cumsum(-1)
    # Scaling by the total, rather than trusting it to be 1, keeps rounding from choosing a token of weight 0.
    threshold = uniforms[:, None] * cumulated[:, -1:]
    tokens = torch.searchsorted(cumulated, threshold, right=True).clamp_(max=logits.shape[1] - 1)
    return tokens[:, 0], (logits.gather(1, tokens) - normaliser)[:, 0]


def truncate(logits: Tensor, how: Draw) -> Tensor:
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
