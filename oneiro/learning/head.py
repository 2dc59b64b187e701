"""Log-probabilities, entropies and losses over the vocabulary without ever holding a [tokens, vocabulary] matrix.

Hidden states meet the vocabulary in chunks. For learning, each chunk's loss is differentiated on the spot, while its
logits exist, so one pass computes loss and gradient with three matrix products and nothing is kept or computed twice.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

Objective = Callable[[Tensor, Tensor, slice], Tensor]
"""(log-probabilities [c], entropies [c], which tokens) -> the loss those tokens add, weighted and normalised."""

CHUNK_NUMBERS = {"cpu": 1 << 21, "cuda": 1 << 26}
"""How many logits exist at once."""


def chunks(count: int, vocabulary: int, device: torch.device) -> list[slice]:
    size = max(16, CHUNK_NUMBERS.get(device.type, 1 << 22) // vocabulary)
    return [slice(start, min(start + size, count)) for start in range(0, count, size)]


def _scaled_logits(hidden: Tensor, weight: Tensor, temperature: Tensor) -> Tensor:
    return (hidden @ weight.T).float().div_(temperature[:, None])


@torch.no_grad()
def score(hidden: Tensor, weight: Tensor, targets: Tensor, temperature: Tensor) -> tuple[Tensor, Tensor]:
    """Hidden states [N, d] -> log-probability of each target [N] and entropy of each distribution [N], no gradient."""
    logprobs, entropies = (
        torch.empty(len(targets), device=hidden.device),
        torch.empty(len(targets), device=hidden.device),
    )
    for part in chunks(len(targets), len(weight), hidden.device):
        logits = _scaled_logits(hidden[part], weight, temperature[part])
        logprobs[part], entropies[part], _ = _measure(logits, targets[part])
    return logprobs, entropies


def _measure(logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Log-probabilities [c], entropies [c] and probabilities [c, V]."""
    normaliser = logits.logsumexp(-1)
    logprobs = logits.gather(1, targets[:, None])[:, 0] - normaliser
    probabilities = torch.exp(logits - normaliser[:, None])
    return logprobs, normaliser - torch.linalg.vecdot(probabilities, logits), probabilities


class _HeadLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, targets: Tensor, temperature: Tensor, objective: Objective
    ) -> tuple[Tensor, Tensor, Tensor]:
        total = torch.zeros((), device=hidden.device)
        logprobs, entropies = (
            torch.empty(len(targets), device=hidden.device),
            torch.empty(len(targets), device=hidden.device),
        )
        hidden_grad = torch.empty_like(hidden)
        weight_grad = torch.zeros_like(weight) if ctx.needs_input_grad[1] else None
        for part in chunks(len(targets), len(weight), hidden.device):
            logits = _scaled_logits(hidden[part], weight, temperature[part])
            logprob, entropy, probabilities = _measure(logits, targets[part])
            logprobs[part], entropies[part] = logprob, entropy
            with torch.enable_grad():
                logprob, entropy = logprob.requires_grad_(), entropy.requires_grad_()
                loss = objective(logprob, entropy, part)
                by_logprob, by_entropy = torch.autograd.grad(
                    loss, (logprob, entropy), allow_unused=True, materialize_grads=True
                )
            total += loss.detach()
            # d logp / d logits = onehot - p;  d H / d logits = -p * (log p + H)
            if by_entropy.any():
                shifted = logits.sub_((logits.logsumexp(-1) - entropy.detach())[:, None])
                grad = probabilities.mul_(shifted.mul_(-by_entropy[:, None]).sub_(by_logprob[:, None]))
            else:
                grad = probabilities.mul_(-by_logprob[:, None])
            grad.scatter_add_(1, targets[part, None], by_logprob[:, None])
            grad = grad.div_(temperature[part, None]).to(weight.dtype)
            hidden_grad[part] = grad @ weight
            if weight_grad is not None:
                weight_grad.addmm_(grad.T, hidden[part])
        ctx.save_for_backward(hidden_grad, weight_grad)
        ctx.mark_non_differentiable(logprobs, entropies)
        return total, logprobs, entropies

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        hidden_grad, weight_grad = ctx.saved_tensors
        scale = grads[0].to(hidden_grad.dtype)
        return hidden_grad * scale, weight_grad * scale if weight_grad is not None else None, None, None, None


def loss(
    hidden: Tensor, weight: Tensor, targets: Tensor, temperature: Tensor, objective: Objective
) -> tuple[Tensor, Tensor, Tensor]:
    """Scalar loss with gradient to `hidden` and `weight`; log-probabilities and entropies come along, detached."""
    return _HeadLoss.apply(hidden, weight, targets, temperature, objective)
