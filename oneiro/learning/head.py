"""Log-probabilities, entropies and losses over the vocabulary without ever holding a [tokens, vocabulary] matrix.

Hidden states meet the vocabulary in chunks. For learning, each chunk's loss is differentiated on the spot, while its
logits exist, so one pass computes loss and gradient with three matrix products and nothing is kept or computed twice.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from oneiro.episode import SamplingParams
from oneiro.models.heads import OutputHead
from oneiro.models.kernels import triton_module
from oneiro.sampling.decode_batch import truncate

Objective = Callable[[Tensor, Tensor, slice], Tensor]
"""(log-probabilities [c], entropies [c], which tokens) -> the loss those tokens add, weighted and normalised."""

CHUNK_NUMBERS = {"cpu": 1 << 22, "cuda": 1 << 29}
"""How many logits exist at once."""


def chunks(count: int, vocabulary: int, device: torch.device) -> list[slice]:
    size = max(16, CHUNK_NUMBERS.get(device.type, 1 << 22) // vocabulary)
    return [slice(start, min(start + size, count)) for start in range(0, count, size)]


@torch.no_grad()
def score(hidden: Tensor, output: OutputHead, targets: Tensor, temperature: Tensor) -> tuple[Tensor, Tensor]:
    """Hidden states [N, d] -> log-probability of each target [N] and entropy of each distribution [N], no gradient."""
    logprobs, entropies = (
        torch.empty(len(targets), device=hidden.device),
        torch.empty(len(targets), device=hidden.device),
    )
    chunk = _chunk(output, hidden.device)
    for part in chunks(len(targets), len(output.weight), hidden.device):
        logprobs[part], entropies[part] = chunk.measure(hidden[part], targets[part], temperature[part])
    return logprobs, entropies


@torch.no_grad()
def log_kept_mass(
    hidden: Tensor, output: OutputHead, targets: Tensor, temperature: Tensor, params: SamplingParams
) -> Tensor:
    """Hidden states [N, d] -> [N]: the logarithm of what truncation leaves of a distribution, the target included."""
    log_mass = torch.empty(len(targets), device=hidden.device)
    for part in chunks(len(targets), len(output.weight), hidden.device):
        logits = output.logits(hidden[part]).float() / temperature[part, None]
        kept = truncate(logits, params) > -torch.inf
        # The sampler drew it, though a nucleus computed once more may end one token earlier.
        kept.scatter_(1, targets[part, None], True)
        log_mass[part] = logits.log_softmax(-1).where(kept, -torch.inf).logsumexp(-1)
    return log_mass


class _PlainChunk:
    """Some tokens' logits: measured, then turned into their own gradient.

    Two buffers serve all chunks of a call, so that a processor's memory is asked for once; logits become probabilities
    become the gradient in the first, log-probabilities stand in the second.
    """

    def __init__(self, output: OutputHead) -> None:
        self.output = output
        self.buffers: tuple[Tensor, Tensor] | None = None

    def measure(self, hidden: Tensor, targets: Tensor, temperature: Tensor) -> tuple[Tensor, Tensor]:
        weight = self.output.weight
        if self.buffers is None:  # the first chunk is the largest
            size = len(hidden), len(weight)
            self.buffers = hidden.new_empty(size), torch.empty(size, device=hidden.device)
        first, second = (buffer[: len(hidden)] for buffer in self.buffers)
        logits = torch.mm(hidden, weight.T, out=first)
        self.slope = self.output.finish_(logits)
        logits = logits.float()
        self.targets, self.coldness, self.dtype = targets[:, None], 1 / temperature[:, None], weight.dtype
        self.tempered = bool((temperature != 1).any())
        if self.tempered:
            logits.mul_(self.coldness)
        self.logp = torch.log_softmax(logits, -1, out=second)
        self.probabilities = torch.exp(self.logp, out=logits)
        self.entropies = torch.linalg.vecdot(self.probabilities, self.logp).neg_()
        return self.logp.gather(1, self.targets)[:, 0], self.entropies

    def differentiate(self, by_logprob: Tensor, by_entropy: Tensor) -> Tensor:
        # d logp / d logits = onehot - p;  d H / d logits = -p * (log p + H)
        if by_entropy.any():
            shifted = self.logp.add_(self.entropies.detach()[:, None]).mul_(-by_entropy[:, None])
            grad = self.probabilities.mul_(shifted.sub_(by_logprob[:, None]))
        else:
            grad = self.probabilities.mul_(-by_logprob[:, None])
        grad.scatter_add_(1, self.targets, by_logprob[:, None])
        if self.slope is not None:
            grad.mul_(self.slope)
        return (grad.mul_(self.coldness) if self.tempered else grad).to(self.dtype)


class _FusedChunk:
    """The same in two kernels on a GPU."""

    def __init__(self, output: OutputHead, kernels: Any) -> None:
        self.output, self.kernels = output, kernels

    def measure(self, hidden: Tensor, targets: Tensor, temperature: Tensor) -> tuple[Tensor, Tensor]:
        self.targets, self.temperature, self.logits = targets, temperature, hidden @ self.output.weight.T
        self.slope = self.output.finish_(self.logits)
        logprobs, self.entropies, self.normalisers = self.kernels.measure(self.logits, targets, temperature)
        return logprobs, self.entropies

    def differentiate(self, by_logprob: Tensor, by_entropy: Tensor) -> Tensor:
        grad = self.kernels.differentiate(
            self.logits,
            self.targets,
            self.temperature,
            self.normalisers,
            self.entropies.detach(),
            by_logprob,
            by_entropy,
        )
        return grad if self.slope is None else grad.mul_(self.slope)


def _chunk(output: OutputHead, device: torch.device) -> _PlainChunk | _FusedChunk:
    kernels = triton_module("oneiro.learning.kernels", device.type)
    return _FusedChunk(output, kernels) if kernels else _PlainChunk(output)


class _HeadLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        softcap: float | None,
        targets: Tensor,
        temperature: Tensor,
        objective: Objective,
    ) -> tuple[Tensor, Tensor, Tensor]:
        total = torch.zeros((), device=hidden.device)
        logprobs, entropies = (
            torch.empty(len(targets), device=hidden.device),
            torch.empty(len(targets), device=hidden.device),
        )
        hidden_grad = torch.empty_like(hidden)
        weight_grad = torch.zeros_like(weight) if ctx.needs_input_grad[1] else None
        bias_grad = torch.zeros_like(bias) if bias is not None and ctx.needs_input_grad[2] else None
        chunk = _chunk(OutputHead(weight, bias, softcap), hidden.device)
        for part in chunks(len(targets), len(weight), hidden.device):
            logprob, entropy = chunk.measure(hidden[part], targets[part], temperature[part])
            logprobs[part], entropies[part] = logprob, entropy
            with torch.enable_grad():
                logprob, entropy = logprob.requires_grad_(), entropy.requires_grad_()
                loss = objective(logprob, entropy, part)
                by_logprob, by_entropy = torch.autograd.grad(
                    loss, (logprob, entropy), allow_unused=True, materialize_grads=True
                )
            total += loss.detach()
            grad = chunk.differentiate(by_logprob, by_entropy)
            torch.mm(grad, weight, out=hidden_grad[part])
            if weight_grad is not None:
                weight_grad.addmm_(grad.T, hidden[part])
            if bias_grad is not None:
                bias_grad += grad.sum(0)
        ctx.save_for_backward(hidden_grad, weight_grad, bias_grad)
        ctx.mark_non_differentiable(logprobs, entropies)
        return total, logprobs, entropies

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        # In place: this is the only use of what `forward` kept, and the vocabulary's gradient is large.
        scale = grads[0].to(ctx.saved_tensors[0].dtype)
        kept = (grad if grad is None else grad.mul_(scale) for grad in ctx.saved_tensors)
        return *kept, None, None, None, None


def loss(
    hidden: Tensor, output: OutputHead, targets: Tensor, temperature: Tensor, objective: Objective
) -> tuple[Tensor, Tensor, Tensor]:
    """Scalar loss with gradient to `hidden` and the head; log-probabilities and entropies come along, detached."""
    return _HeadLoss.apply(hidden, output.weight, output.bias, output.softcap, targets, temperature, objective)
