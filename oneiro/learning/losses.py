"""The loss of one token, component by component: policy gradient, cross-entropy, KL to a reference, entropy, value.

Every component has its own weight per token and its own normaliser, so supervised learning, GRPO, PPO and learning from
environment tokens during RL (ECHO, arXiv 2605.24517) differ only in weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from oneiro.learning.example import COMPONENTS, Example
from oneiro.recipe import Settings

KlKind = Literal["k1", "k2", "k3"]
Aggregate = Literal["token-mean", "sequence-mean", "constant"]


class LossSettings(Settings):
    """How the components add up."""

    clip_low: float = Field(0.2, ge=0)
    clip_high: float = Field(0.2, ge=0)
    dual_clip: float | None = Field(3.0, gt=1)
    """Bound on the loss of a token with negative advantage and a large ratio (Ye et al. 2020); None switches it off."""
    kl: float = Field(0.0, ge=0)
    """Weight of the KL to the reference as a loss."""
    kl_kind: KlKind = "k3"
    entropy: float = 0.0
    """Weight of the entropy bonus."""
    ce: float = Field(1.0, ge=0)
    """Weight of cross-entropy on tokens that carry a cross-entropy weight."""
    aggregate: Aggregate = "token-mean"
    value: float = Field(1.0, ge=0)
    value_clip: float | None = 0.5


def kl_estimate(logprobs: Tensor, reference: Tensor, kind: KlKind) -> Tensor:
    """Schulman's estimators of KL(policy || reference) from samples of the policy; k3 clamped to +-10 as is usual."""
    difference = reference - logprobs
    if kind == "k1":
        return -difference
    if kind == "k2":
        return 0.5 * difference.square()
    difference = difference.clamp(-10, 10)
    return difference.exp() - difference - 1


def policy_loss(logprobs: Tensor, old: Tensor, advantages: Tensor, settings: LossSettings) -> Tensor:
    """Clipped surrogate (PPO eq. 7) with separate bounds (DAPO) and dual clip, per token."""
    ratio = (logprobs - old).clamp(-20, 20).exp()
    clipped = ratio.clamp(1 - settings.clip_low, 1 + settings.clip_high)
    loss = torch.maximum(-advantages * ratio, -advantages * clipped)
    if settings.dual_clip is None:
        return loss
    return torch.where(advantages < 0, torch.minimum(loss, -advantages * settings.dual_clip), loss)


def value_loss(values: Tensor, old: Tensor, returns: Tensor, clip: float | None) -> Tensor:
    """Half squared error; with a clip, the worse of the plain and the clipped prediction."""
    plain = (values - returns).square()
    if clip is None:
        return 0.5 * plain
    near = old + (values - old).clamp(-clip, clip)
    return 0.5 * torch.maximum(plain, (near - returns).square())


def token_losses(logprobs: Tensor, entropies: Tensor, columns: dict[str, Tensor], settings: LossSettings) -> Tensor:
    """Sum over the given tokens of all components; the weights in `columns` are already normalised (`normalise`)."""
    total = logprobs.new_zeros(())
    if "advantages" in columns:
        policy = policy_loss(logprobs, columns["logprobs"], columns["advantages"], settings)
        total = total + (columns["policy"] * policy).sum()
        if settings.entropy:
            total = total - settings.entropy * (columns["policy"] * entropies).sum()
    if "reference" in columns and settings.kl:
        total = (
            total + settings.kl * (columns["kl"] * kl_estimate(logprobs, columns["reference"], settings.kl_kind)).sum()
        )
    if settings.ce:
        total = total - settings.ce * (columns["ce"] * logprobs).sum()
    return total


def normalise(examples: Sequence[Example], aggregate: Aggregate, longest: int) -> list[dict[str, np.ndarray]]:
    """Weights scaled so that a component's loss is a plain sum over tokens.

    token-mean: every token counts alike. sequence-mean: every row counts alike. constant: tokens over rows x `longest`
    (Dr.GRPO), so that long rows are neither favoured nor punished. Cross-entropy is always a token mean.
    """
    scaled: list[dict[str, np.ndarray]] = [{} for _ in examples]
    lengths = np.array([len(e) for e in examples])
    ends = np.cumsum(lengths)
    for name in COMPONENTS:
        flat = np.concatenate([e.weights[name] for e in examples])
        sums = np.add.reduceat(flat, ends - lengths, dtype=np.float64)
        rows = max(1, int((sums != 0).sum()))
        if aggregate == "token-mean" or name == "ce":
            divisors = np.full(len(sums), sums.sum())
        elif aggregate == "sequence-mean":
            divisors = sums * rows
        else:
            divisors = np.full(len(sums), float(rows * longest))
        divisors[divisors == 0] = 1.0
        parts = np.split((flat / np.repeat(divisors, lengths)).astype(np.float32), ends[:-1])
        for out, part in zip(scaled, parts, strict=True):
            out[name] = part
    return scaled
