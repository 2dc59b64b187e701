"""The loss of one token, component by component: policy gradient, cross-entropy, KL to a reference, entropy, value.

Every component has its own weight per token and its own normaliser, so supervised learning, GRPO, PPO and learning from
environment tokens during RL (ECHO, arXiv 2605.24517) differ only in weights.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

import numpy as np
import torch
from torch import Tensor

from oneiro.learning.batch import COMPONENTS, Example
from oneiro.learning.settings import Aggregate, KlKind, LossSettings
from oneiro.models.heads import OutcomeHead, ValueHead
from oneiro.runtime import plugins
from oneiro.runtime.errors import OneiroError


def kl_estimate(logprobs: Tensor, reference: Tensor, kind: KlKind) -> Tensor:
    """Schulman's estimators of KL(policy || reference) from samples of the policy; k3 clamped to +-10 as is usual."""
    difference = reference - logprobs
    if kind == "k1":
        return -difference
    if kind == "k2":
        return 0.5 * difference.square()
    difference = difference.clamp(-10, 10)
    return difference.exp() - difference - 1


def policy_loss(log_ratio: Tensor, advantages: Tensor, settings: LossSettings) -> Tensor:
    """Clipped surrogate (PPO eq. 7) with separate bounds (DAPO) and dual clip, per token."""
    ratio = log_ratio.clamp(-20, 20).exp()
    clipped = ratio.clamp(1 - settings.clip_low, 1 + settings.clip_high)
    loss = torch.maximum(-advantages * ratio, -advantages * clipped)
    if settings.dual_clip is None:
        return loss
    return torch.where(advantages < 0, torch.minimum(loss, -advantages * settings.dual_clip), loss)


PolicyLoss = Callable[[Tensor, Tensor, LossSettings], Tensor]
"""Log-ratios to the old policy [N], advantages [N], settings -> the loss of each token [N]."""


@cache
def policy_loss_named(name: str) -> PolicyLoss:
    """What `loss.policy` names: the clipped surrogate, a loss of another package, or `module:function`."""
    target = plugins.with_offered("losses", {"clip": policy_loss}).get(name, name)
    return plugins.resolve(target, f"policy loss '{name}'") if isinstance(target, str) else target


def old_logprobs(columns: dict[str, Tensor]) -> Tensor:
    """The old policy's: recomputed before the first update where that was asked for, else the sampler's."""
    return columns["old"] if "old" in columns else columns["logprobs"]


def row_log_ratio(logprobs: Tensor, columns: dict[str, Tensor], rows: Tensor, count: int) -> Tensor:
    """GSPO's log s (arXiv 2507.18071, eq. 7): the mean log-ratio of a row's policy tokens, [N], alike in a row.

    `rows` [N] says which of the `count` rows a token is in.
    """
    counted = columns["policy"] != 0
    difference = torch.where(counted, logprobs - old_logprobs(columns), 0.0)
    sums, counts = torch.zeros(2, count, device=logprobs.device).unbind(0)
    sums.index_add_(0, rows, difference)
    counts.index_add_(0, rows, counted.float())
    return (sums / counts.clamp(min=1))[rows]


def row_loss(
    logprobs: Tensor, columns: dict[str, Tensor], rows: Tensor, count: int, settings: LossSettings
) -> tuple[Tensor, Tensor]:
    """WebRL's loss of each row (a step: one whole reply), told at its tokens: value and derivative, both [N].

    rho is the row's log-ratio to the policy before the first update, WebRL's reference: the sum over its tokens or
    (`aggregate: sequence-mean`) their mean; y is its target. The token weights of `normalise` then give the mean over
    rows; a token's derivative is that by rho.

        squared:  (beta rho - y)^2                                   eq. 6
        official: m SmoothL1(b rho, y) / b,  m = [y > 0],  b = 5 or 1 by the reference's confidence, at most |y / rho|
        linear:   -y rho
    """
    counted = columns["policy"] != 0
    zeros = torch.zeros(count, device=logprobs.device)
    lengths = zeros.index_add(0, rows, counted.float()).clamp(min=1)
    old = old_logprobs(columns)
    difference = torch.where(counted, logprobs - old, 0.0)
    mean = settings.aggregate == "sequence-mean"
    rho = zeros.index_add(0, rows, difference) / (lengths if mean else 1.0)
    target = zeros.index_add(0, rows, torch.where(counted, columns["advantages"], 0.0)) / lengths
    if settings.row == "squared":
        error = settings.row_beta * rho - target
        value, slope = error.square(), 2 * settings.row_beta * error
    elif settings.row == "official":
        confident = (zeros.index_add(0, rows, torch.where(counted, old, 0.0)) / lengths).exp()
        value, slope = official_row_loss(rho, target, confident)
    else:
        value, slope = -target * rho, -target
    # A sum's tokens have weight 1 each: the value is shared among them.
    share = value if mean else value / lengths
    return share[rows], slope[rows]


def official_row_loss(rho: Tensor, target: Tensor, confidence: Tensor) -> tuple[Tensor, Tensor]:
    """The released loss of rows and its derivative by rho, the mean log-ratio; `confidence` is the reference's
    geometric mean probability of the row's tokens.
    """
    # The release has another bound (0.9) for steps below 0, which its mask then leaves out of the loss.
    beta = torch.where(confidence >= 0.8, 5.0, 1.0)
    beta = torch.minimum(beta, torch.where(rho == 0, beta, (target / rho).abs()))
    error = beta * rho - target
    smooth = torch.where(error.abs() < 1, 0.5 * error.square(), error.abs() - 0.5)
    kept = (target > 0).float()
    return kept * smooth / beta, kept * error.clamp(-1, 1)


def critic_loss(
    head: ValueHead | OutcomeHead, hidden: Tensor, columns: dict[str, Tensor], clip: float | None
) -> tuple[Tensor, Tensor]:
    """What a critic's head says of hidden states [N, d], and how wrong that is, both [N]."""
    if isinstance(head, OutcomeHead):
        logits = head.logits(hidden)
        outcome = columns["returns"].long().expand(len(logits), -1)
        errors = torch.nn.functional.cross_entropy(logits.flatten(0, 1), outcome.flatten(), reduction="none")
        return head.smaller(logits), errors.view_as(outcome).sum(0)
    values = head(hidden)
    return values, value_loss(values, columns["values"], columns["returns"], clip)


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
    if "row_slope" in columns:
        # The row's loss in value, its derivative by each of its tokens in gradient.
        moved = columns["row_value"] + columns["row_slope"] * (logprobs - logprobs.detach())
        total = total + (columns["policy"] * torch.where(columns["policy"] != 0, moved, 0.0)).sum()
    elif "advantages" in columns:
        log_ratio = logprobs - old_logprobs(columns)
        if "row_log_ratio" in columns:
            # The row's ratio in value, the token's own in gradient: d s = s * mean of d logp over the row (eq. 14).
            log_ratio = columns["row_log_ratio"] + logprobs - logprobs.detach()
        # Not multiplied away: a masked token may have any ratio, and 0 * inf is no number.
        log_ratio = torch.where(columns["policy"] != 0, log_ratio, 0.0)
        policy = policy_loss_named(settings.policy)(log_ratio, columns["advantages"], settings)
        if policy.shape != log_ratio.shape:
            raise OneiroError(
                f"policy loss '{settings.policy}' gave {tuple(policy.shape)} for {len(log_ratio)} tokens; it must give "
                "one number for each"
            )
        if "correction" in columns:
            policy = columns["correction"] * policy
        total = total + (columns["policy"] * policy).sum()
    if "advantages" in columns and settings.entropy:
        total = total - settings.entropy * (columns["policy"] * entropies).sum()
    if "reference" in columns and settings.kl:
        total = (
            total + settings.kl * (columns["kl"] * kl_estimate(logprobs, columns["reference"], settings.kl_kind)).sum()
        )
    if settings.ce:
        total = total - settings.ce * (columns["ce"] * logprobs).sum()
    return total


def normalise(
    examples: Sequence[Example], aggregate: Aggregate, max_tokens: int | None = None
) -> list[dict[str, np.ndarray]]:
    """Weights scaled so that a component's loss is a plain sum over tokens.

    token-mean: every token counts alike. sequence-mean: every row counts alike. constant: tokens over rows x
    `max_tokens` (Dr.GRPO), so that a token counts the same in every batch. Cross-entropy is always a token mean.
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
            assert max_tokens is not None, "aggregate 'constant' needs max_tokens"
            divisors = np.full(len(sums), float(rows * max_tokens))
        divisors[divisors == 0] = 1.0
        parts = np.split((flat / np.repeat(divisors, lengths)).astype(np.float32), ends[:-1])
        for out, part in zip(scaled, parts, strict=True):
            out[name] = part
    return scaled
