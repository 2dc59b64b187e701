"""The head in chunks: scores, losses and gradients."""

from __future__ import annotations

import pytest
import torch

from oneiro.episode import SamplingParams
from oneiro.learning import head
from oneiro.models.heads import OutputHead


def test_chunks_cover_all_tokens_once() -> None:
    cpu = torch.device("cpu")
    assert head.chunks(40, 1 << 22, cpu) == [slice(0, 16), slice(16, 32), slice(32, 40)]
    assert head.chunks(40, 1 << 17, cpu) == [slice(0, 32), slice(32, 40)] and head.chunks(0, 9, cpu) == []


@pytest.mark.parametrize("temperature", [1.0, 2.0, 0.5])
def test_scores_and_gradients_of_a_capped_head_in_parts(temperature: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(head, "CHUNK_NUMBERS", {"cpu": 1})
    torch.manual_seed(0)
    count, vocabulary = 37, 11
    hidden = torch.randn(count, 5, requires_grad=True)
    weight, bias = torch.randn(vocabulary, 5, requires_grad=True), torch.randn(vocabulary, requires_grad=True)
    targets, cold = torch.randint(0, vocabulary, (count,)), torch.full((count,), temperature)
    by_logprob, by_entropy = torch.randn(count), torch.randn(count)

    def objective(logprobs: torch.Tensor, entropies: torch.Tensor, part: slice) -> torch.Tensor:
        return (by_logprob[part] * logprobs + by_entropy[part] * entropies).sum()

    output = OutputHead(weight, bias, 1.5)
    total, logprobs, entropies = head.loss(hidden, output, targets, cold, objective)
    found = torch.autograd.grad(3 * total, (hidden, weight, bias))
    logits = 1.5 * torch.tanh((hidden @ weight.T + bias) / 1.5) / temperature
    scores = logits.log_softmax(-1)
    own, spread = scores.gather(1, targets[:, None])[:, 0], -(scores.exp() * scores).sum(-1)
    expected = torch.autograd.grad(3 * (by_logprob @ own + by_entropy @ spread), (hidden, weight, bias))
    torch.testing.assert_close(logprobs, own.detach())
    torch.testing.assert_close(entropies, spread.detach())
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-4)
    for a, b in zip(head.score(hidden, output, targets, cold), (own, spread), strict=True):
        torch.testing.assert_close(a, b.detach())
    params = SamplingParams(temperature, top_k=3)
    mass = head.log_kept_mass(hidden, output, targets, cold, params)
    for row in range(count):
        best = set(scores[row].topk(3).indices.tolist()) | {int(targets[row])}
        assert float(mass[row]) == pytest.approx(float(scores[row, list(best)].detach().exp().sum().log()), abs=1e-5)


def test_a_head_in_bfloat16_measures_in_float32() -> None:
    """Logits are rounded once, by the product; what follows has all digits. Gradients have the weights' type."""
    generator = torch.Generator().manual_seed(5)
    hidden = torch.randn(6, 8, generator=generator).bfloat16().requires_grad_()
    weight = torch.randn(20, 8, generator=generator).bfloat16().requires_grad_()
    targets, cold = torch.arange(6), torch.full((6,), 0.7)

    def objective(logprobs: torch.Tensor, entropies: torch.Tensor, part: slice) -> torch.Tensor:
        return -logprobs.sum() - 0.3 * entropies.sum()

    total, logprobs, entropies = head.loss(hidden, OutputHead(weight), targets, cold, objective)
    total.backward()
    logits = (hidden.detach() @ weight.detach().T).float().requires_grad_()
    every = torch.log_softmax(logits / 0.7, -1)
    own, spread = every[range(6), targets], -(every.exp() * every).sum(-1)
    torch.testing.assert_close(logprobs, own.detach(), atol=1e-6, rtol=1e-6)
    torch.testing.assert_close(entropies, spread.detach(), atol=1e-6, rtol=1e-6)
    for found, expected in zip(head.score(hidden, OutputHead(weight), targets, cold), (own, spread), strict=True):
        torch.testing.assert_close(found, expected.detach(), atol=1e-6, rtol=1e-6)
    (-own.sum() - 0.3 * spread.sum()).backward()
    assert logits.grad is not None and hidden.grad is not None and weight.grad is not None
    assert hidden.grad.dtype == weight.grad.dtype == torch.bfloat16
    torch.testing.assert_close(hidden.grad.float(), logits.grad @ weight.detach().float(), atol=0.05, rtol=0.02)
    torch.testing.assert_close(weight.grad.float(), logits.grad.T @ hidden.detach().float(), atol=0.05, rtol=0.02)
