"""The sampler is not quite the policy: its kernels round otherwise, its weights may be older, it may truncate.

The learner then recomputes the old policy's log-probabilities before the first update. The clipped ratio is against
those; what the sampler did otherwise is corrected by a weight on each token, the importance

    w = p_old(token) / p_sampler(token)

TIS (truncated importance sampling) caps it. IcePop (arXiv 2510.18855) leaves out tokens whose weight is outside a band:
they leave the mean too. Where top-p or top-k cut the distribution, the sampler's probability is the renormalised one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import torch
from torch import Tensor

from oneiro.episode import Floats
from oneiro.learning.example import Example
from oneiro.learning.learner import Learner
from oneiro.learning.settings import CorrectionSettings


def token_weights(old: Tensor, sampler: Tensor, settings: CorrectionSettings) -> tuple[Tensor, Tensor]:
    """Log-probabilities [N] of both -> the weight of each token's policy loss, and which tokens stay in it."""
    importance = (old - sampler).exp()
    if settings.name == "tis":
        kept = ~importance.isnan()
        return torch.where(kept, importance.clamp(max=settings.cap), 0.0), kept
    kept = (importance >= settings.low) & (importance <= settings.high)
    return torch.where(kept, importance, 0.0), kept


def correct(examples: Sequence[Example], learner: Learner, settings: CorrectionSettings) -> dict[str, float]:
    """Put `old` and `correction` beside the sampler's log-probabilities, take masked tokens out of the policy loss, and
    say how far sampler and learner are apart.
    """
    recomputed, _ = learner.logprobs(examples)
    log_mass = learner.log_kept_mass(examples)
    policy = np.concatenate([example.weights["policy"] for example in examples]) != 0
    for example, old, mass in zip(examples, recomputed, log_mass, strict=True):
        sampler = torch.from_numpy(example.logprobs - mass)
        weights, kept = token_weights(torch.from_numpy(old), sampler, settings)
        example.columns["old"], example.columns["correction"] = old, weights.numpy()
        example.weights["policy"] = np.where(kept.numpy(), example.weights["policy"], 0).astype(np.float32)

    def at_policy(arrays: Iterable[Floats]) -> Floats:
        return np.concatenate(list(arrays))[policy]

    return {
        **mismatch(at_policy(recomputed), at_policy(e.logprobs for e in examples)),
        "correction": float(at_policy(e.columns["correction"] for e in examples).mean()),
        "correction_masked": float((at_policy(e.weights["policy"] for e in examples) == 0).mean()),
        "kept_mass": float(np.exp(at_policy(log_mass)).mean()),
    }


def mismatch(learner: Floats, sampler: Floats) -> dict[str, float]:
    """Log-probabilities of the same tokens: the largest difference, and the KL from sampler to learner (k3)."""
    difference = learner.astype(np.float64) - sampler
    kl = np.expm1(difference) - difference
    return {"mismatch": float(np.abs(difference).max()), "mismatch_kl": float(kl.mean())}
