"""WebRL's critic: the SFT model's body and two heads that say whether the task will be done, read at the last token.

A value is the smaller of the two heads' probabilities. Both learn the outcome of the trajectory by cross-entropy in
every state. States are laid out by the learner's own batches, so that no padding is ever read.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from oneiro.episode import Floats, Tokens
from oneiro.learning.batch import Batch, batches
from oneiro.learning.example import COMPONENTS, Example
from oneiro.learning.finite import require
from oneiro.learning.learner import hidden_matrices
from oneiro.learning.optimiser import Optimiser, learning_rate
from oneiro.learning.settings import LearnerSettings
from oneiro.models.backbone import Backbone
from oneiro.models.language import read_state, write_state
from oneiro.runtime import seeds

HEADS = 2
BUDGET = 16384
"""Padded tokens of a micro-batch, where the settings say nothing."""


class OutcomeHead(nn.Module):
    """Three layers from a hidden state to the logits of failure and success."""

    def __init__(self, width: int, generator: torch.Generator, device: torch.device) -> None:
        super().__init__()
        self.first, self.second, self.last = (nn.utils.skip_init(nn.Linear, width, size) for size in (width, width, 2))
        with torch.no_grad():
            for layer in (self.first, self.second, self.last):
                layer.weight.normal_(0.0, width**-0.5, generator=generator)  # the release's 0.2 saturates large models
                layer.bias.zero_()
        self.to(device)

    def forward(self, hidden: Tensor) -> Tensor:
        """[N, d] -> [N, 2]"""
        found: Tensor = self.last(self.second(self.first(hidden.float()).relu()).relu())
        return found


class Critic:
    """A body of its own with two heads."""

    def __init__(self, body: Backbone, seed: int) -> None:
        self.body = copy.deepcopy(body)
        generator = torch.Generator().manual_seed(seed % (1 << 63))
        self.heads = nn.ModuleList(OutcomeHead(body.shape.width, generator, body.device) for _ in range(HEADS))

    def logits(self, batch: Batch) -> list[Tensor]:
        """Of each head, [N, 2]."""
        hidden = batch.hidden(self.body)
        return [head(hidden) for head in self.heads]

    @torch.no_grad()
    def values(self, prompts: Sequence[Tokens], budget: int | None = None) -> Floats:
        """[N]: the smaller of the heads' probabilities of success."""
        found = np.zeros(len(prompts), np.float32)
        for batch in _batches(prompts, budget, self.body):
            chances = torch.stack([logits.softmax(-1)[:, 1] for logits in self.logits(batch)]).amin(0)
            found[[i for i, _ in batch.places]] = chances.cpu().numpy()
        return found

    def train(
        self,
        prompts: Sequence[Tokens],
        outcomes: Sequence[float],
        settings: LearnerSettings,
        batch: int,
        epochs: int,
        seed: int,
        log: Callable[[int, dict[str, float]], None] = lambda step, values: None,
    ) -> dict[str, float]:
        """Cross-entropy of both heads on the outcome, in every state; returns the last epoch's means."""
        named = [(name, p) for name, p in self.body.named_parameters() if p.requires_grad and name != "head.weight"]
        matrices = hidden_matrices(self.body, named)
        named += [(f"heads.{name}", p) for name, p in self.heads.named_parameters()]
        optimiser = Optimiser(named, settings.optimiser, matrices)
        labels = np.asarray(outcomes, np.float32)
        count = max(1, -(-len(prompts) // batch))
        means: dict[str, float] = {}
        for epoch in range(epochs):
            order = seeds.generator(seed, "critic", epoch).permutation(len(prompts))
            total = 0.0
            for number in range(count):
                chosen = order[number * batch : (number + 1) * batch]
                rate = learning_rate(settings.optimiser, epoch * count + number, epochs * count)
                loss = self._step([prompts[i] for i in chosen], labels[chosen], optimiser, settings, rate)
                total += loss * len(chosen) / max(1, len(prompts))
                log(epoch * count + number + 1, {"loss": loss})
            means = {"loss": total}
        require(means)
        return means

    def _step(
        self, prompts: Sequence[Tokens], labels: Floats, optimiser: Optimiser, settings: LearnerSettings, rate: float
    ) -> float:
        total = 0.0
        for part in _batches(prompts, settings.token_budget, self.body):
            wanted = torch.from_numpy(labels[[i for i, _ in part.places]]).long().to(self.body.device)
            found = [nn.functional.cross_entropy(logits, wanted, reduction="sum") for logits in self.logits(part)]
            loss = torch.stack(found).sum() / len(prompts)
            loss.backward()
            total += float(loss.detach())
        optimiser.step(rate)
        return total

    def save(self, path: Path) -> None:
        """All weights as one safetensors file."""
        tensors = {f"body/{name}": p for name, p in self.body.named_parameters()}
        tensors |= {f"heads/{name}": p for name, p in self.heads.named_parameters()}
        write_state(path, {name: tensor.detach().cpu().clone() for name, tensor in tensors.items()})

    def load(self, path: Path) -> None:
        saved = read_state(path, "the critic")
        with torch.no_grad():
            for prefix, module in (("body", self.body), ("heads", self.heads)):
                for name, parameter in module.named_parameters():
                    parameter.copy_(saved[f"{prefix}/{name}"])


def _batches(prompts: Sequence[Tokens], budget: int | None, body: Backbone) -> Iterator[Batch]:
    """Prompts laid out so that a batch's hidden states are those of each prompt's last token.

    A batch gives the state that predicts a token with loss: one token of no meaning is put behind every prompt.
    """
    examples = []
    for prompt in prompts:
        tokens = np.append(prompt, np.int32(0)).astype(np.int32)
        weights = {name: np.zeros(len(tokens), np.float32) for name in COMPONENTS}
        weights["policy"][-1] = 1.0
        zeros = np.zeros(len(tokens), np.float32)
        examples.append(Example(tokens, weights, zeros, zeros + 1, len(prompt)))
    return batches(examples, budget or BUDGET, body.device)


def auc(values: Sequence[float], outcomes: Sequence[float]) -> float | None:
    """Probability that a success has a higher value than a failure, ties half; None without both."""
    good = np.array([v for v, o in zip(values, outcomes, strict=True) if o > 0])
    bad = np.array([v for v, o in zip(values, outcomes, strict=True) if o <= 0])
    if not len(good) or not len(bad):
        return None
    above = (good[:, None] > bad[None]).mean() + 0.5 * (good[:, None] == bad[None]).mean()
    return float(above)
