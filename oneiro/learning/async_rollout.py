"""Playing the next step while the present one is learned, by a copy of the policy that is one step older.

The learner weighs each token by how much likelier it has become since it was sampled, so what a slightly older policy
did still teaches the present one.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from types import TracebackType

import torch

from oneiro.episode import Episode
from oneiro.models.language import LanguageModel
from oneiro.runtime import distributed
from oneiro.runtime.clock import spent


def copy_of(policy: LanguageModel) -> LanguageModel:
    """The same model with weights of its own, which nothing trains."""
    return replace(policy, backbone=copy.deepcopy(policy.backbone).requires_grad_(False).eval())


class AsyncRollout:
    """Gives the episodes of each step: played when they are asked for, or begun before.

    `actor` is the model that plays. Where it is the policy itself, nothing is played ahead.
    """

    def __init__(self, play: Callable[[int], list[Episode]], policy: LanguageModel, actor: LanguageModel) -> None:
        self.play, self.policy, self.actor = play, policy, actor
        self._thread = ThreadPoolExecutor(1, "ahead")
        self._coming: Future[list[Episode]] | None = None
        cuda = policy.backbone.device.type == "cuda"
        self._stream = torch.cuda.Stream(policy.backbone.device) if cuda and actor is not policy else None

    def __enter__(self) -> AsyncRollout:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._thread.shutdown(cancel_futures=True)

    def begin(self, step: int) -> None:
        """Start to play the step that is asked for next, with the weights as they are now.

        The policy itself cannot: its weights are about to change under it.
        """
        if self.actor is self.policy:
            return
        self._follow()
        if self._stream is not None:
            self._stream.wait_stream(torch.cuda.current_stream())
        self._coming = self._thread.submit(self._play, step)

    def episodes(self, step: int) -> list[Episode]:
        coming, self._coming = self._coming, None
        if coming is not None:
            with spent("waiting"):
                return coming.result()
        self._follow()
        return self.more(step)

    def more(self, number: int) -> list[Episode]:
        """Further episodes, with the weights that played the last ones. Nothing may be played ahead meanwhile."""
        with spent("worlds"):
            # What every rank computed for itself, such as a reward, may differ in its last digits.
            return distributed.broadcast(self.play(number))

    def _play(self, step: int) -> list[Episode]:
        own: AbstractContextManager[object] = torch.cuda.stream(self._stream) if self._stream else nullcontext()
        with own, distributed.background():
            return distributed.broadcast(self.play(step))

    @torch.no_grad()
    def _follow(self) -> None:
        """Give the actor the policy's present weights."""
        if self.actor is self.policy:
            return
        pairs = zip(self.actor.backbone.parameters(), self.policy.backbone.parameters(), strict=True)
        for mine, theirs in pairs:
            mine.copy_(theirs)
