"""The reference that a KL is measured against: the policy as it was at the start of the stage, or one that follows it.

Where only adapters learn, the reference is a copy of the adapters alone, put in place while it is scored: the base is
shared. Where all weights learn, it is a second model.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from oneiro.episode import Floats
from oneiro.learning.example import Example
from oneiro.learning.learner import Learner
from oneiro.learning.settings import ReferenceSettings
from oneiro.models.backbone import Backbone


class Reference:
    """Other weights for the policy's model."""

    def __init__(self, policy: Backbone, settings: ReferenceSettings) -> None:
        self.policy, self.settings = policy, settings
        adapters = any(not p.requires_grad for p in policy.parameters())
        self.model = None if adapters else copy.deepcopy(policy).requires_grad_(False).eval()
        # In float32, so that small moves are not rounded away where the policy computes in bfloat16.
        self.weights = {
            name: parameter.detach().float().clone()
            for name, parameter in policy.named_parameters()
            if parameter.requires_grad and (adapters or settings.sync_every)
        }

    def logprobs(self, examples: Sequence[Example], learner: Learner) -> list[Floats]:
        """Log-probability of every token that carries loss; [T] per example. `learner` is the policy's."""
        if self.model is not None:
            return learner.logprobs(examples, self.model)[0]
        theirs = {name: p.detach().clone() for name, p in self.policy.named_parameters() if name in self.weights}
        try:
            put(self.policy, self.weights)
            return learner.logprobs(examples, self.policy)[0]
        finally:
            put(self.policy, theirs)

    @torch.no_grad()
    def follow(self, step: int) -> None:
        """After step number `step`, counted from 1: move towards the policy if it is time."""
        if not self.settings.sync_every or step % self.settings.sync_every:
            return
        theirs = dict(self.policy.named_parameters())
        for name, mine in self.weights.items():
            mine.lerp_(theirs[name].float(), self.settings.mix)
        if self.model is not None:
            put(self.model, self.weights)

    def state(self) -> dict[str, Tensor]:
        """What a resumed run needs: nothing where the reference stays what it was at the start."""
        return self.weights if self.settings.sync_every else {}

    def restore(self, tensors: dict[str, Tensor]) -> None:
        for name, mine in self.weights.items():
            mine.copy_(tensors[name])
        if self.model is not None:
            put(self.model, self.weights)


@torch.no_grad()
def put(model: Backbone, weights: Mapping[str, Tensor]) -> None:
    """Copy weights into a model, by name."""
    own = dict(model.named_parameters())
    for name, tensor in weights.items():
        own[name].copy_(tensor)
