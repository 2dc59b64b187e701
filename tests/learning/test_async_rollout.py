"""Playing ahead of the learner."""

from __future__ import annotations

import torch

from oneiro.episode import Episode
from oneiro.learning.async_rollout import AsyncRollout, copy_of
from oneiro.models.language import LanguageModel


def test_an_actor_follows_the_policy_and_plays_ahead_with_what_it_knew(tiny: LanguageModel) -> None:
    actor = copy_of(tiny)
    assert not any(p.requires_grad for p in actor.backbone.parameters()) and actor.backbone is not tiny.backbone
    seen: list[tuple[int, float]] = []

    def play(step: int) -> list[Episode]:
        seen.append((step, float(actor.backbone.norm.weight.detach()[0])))
        return [Episode([], seed=step)]

    def set_policy(value: float) -> None:
        with torch.no_grad():
            tiny.backbone.norm.weight[0] = value

    with AsyncRollout(play, tiny, actor) as rollout:
        set_policy(1.0)
        assert rollout.episodes(0)[0].seed == 0
        rollout.begin(1)
        assert rollout._coming is not None and rollout._coming.result()[0].seed == 1
        set_policy(2.0)
        assert rollout.episodes(1)[0].seed == 1 and rollout._coming is None
        assert rollout.more(7)[0].seed == 7
        assert rollout.episodes(2)[0].seed == 2
    assert seen == [(0, 1.0), (1, 1.0), (7, 1.0), (2, 2.0)]
    with AsyncRollout(lambda step: [Episode([], seed=step)], tiny, tiny) as own:
        own.begin(3)
        assert own._coming is None and own.episodes(4)[0].seed == 4
